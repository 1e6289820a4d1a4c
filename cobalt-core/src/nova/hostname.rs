//! What a guest is called inside.

/// The most that Nova leaves of a name.
const LONGEST: usize = 63;

/// The name that a server's guest has for itself, which Nova makes of the server's: cut to 63 characters, without what no
/// hostname may contain, in lower case. It is what a guest shows on its console, and shorter than the server's name for
/// many a server.
///
/// ```
/// use cobalt_core::nova::guest_hostname;
///
/// assert_eq!(guest_hostname("Web_1.example"), "web-1-example");
/// ```
pub fn guest_hostname(server: &str) -> String {
    let kept = server.chars().filter(|letter| u32::from(*letter) <= 0xff).take(LONGEST);
    let dashed = kept.map(|letter| if matches!(letter, ' ' | '_' | '.') { '-' } else { letter });
    let legal = dashed.filter(|letter| *letter == '-' || letter.is_alphanumeric());
    legal.flat_map(char::to_lowercase).collect::<String>().trim_matches('-').to_owned()
}

#[cfg(test)]
mod tests {
    use super::guest_hostname;

    #[test]
    fn a_guest_is_called_what_nova_makes_of_its_servers_name() {
        let uid = "6f2c58a6-0000-4000-8000-00000000000a";
        for (server, guest) in [
            ("hv-1".to_owned(), "hv-1".to_owned()),
            ("Web Server_1.example".to_owned(), "web-server-1-example".to_owned()),
            ("a/b:c(d)".to_owned(), "abcd".to_owned()),
            ("-.name.-".to_owned(), "name".to_owned()),
            ("Übergröße-7²".to_owned(), "übergröße-7²".to_owned()),
            ("名前-7-Ω".to_owned(), "7".to_owned()),
            ("名前".to_owned(), String::new()),
            (
                format!("ohooc--hv-1.Example.com-{uid}"),
                "ohooc--hv-1-example-com-6f2c58a6-0000-4000-8000-00000000000a".into(),
            ),
            (format!("ohooc--{}-{uid}", "n".repeat(40)), format!("ohooc--{}-6f2c58a6-0000-4", "n".repeat(40))),
            // What is left out after the cut makes it shorter still, and a dash at the cut is taken off.
            (format!("{}!!!x", "n".repeat(60)), "n".repeat(60)),
            (format!("{}.x", "n".repeat(62)), "n".repeat(62)),
        ] {
            assert_eq!(guest_hostname(&server), guest, "{server}");
        }
    }
}
