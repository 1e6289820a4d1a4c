//! What is worth an Event between two lists of issues.
//!
//! An issue that stays is no news. Many of a type that come at once are one: a host that is sick has hundreds of
//! orphans, and an Event for each would say the same hundreds of times, to etcd and to everybody who watches.

use crate::api::Issue;

/// So many of one type are told one by one; more of them together.
const ONE_BY_ONE: usize = 3;

/// Something that came or went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct News {
    /// Whether it came.
    pub(super) bad: bool,
    pub(super) reason: String,
    pub(super) note: String,
}

/// What came and what went, by type in the order of the lists.
pub(super) fn between(before: &[Issue], after: &[Issue]) -> Vec<News> {
    let came = group(after.iter().filter(|issue| !in_list(before, issue)));
    let went = group(before.iter().filter(|issue| !in_list(after, issue)));
    let came = came.into_iter().flat_map(|(type_, messages)| {
        told(&messages).into_iter().map(move |note| News { bad: true, reason: type_.to_owned(), note })
    });
    let went = went.into_iter().flat_map(|(type_, messages)| {
        let reason = format!("{type_}Resolved");
        let notes = told(&messages).into_iter().map(|note| format!("No more: {note}"));
        notes.map(move |note| News { bad: false, reason: reason.clone(), note })
    });
    came.chain(went).collect()
}

fn in_list(list: &[Issue], issue: &Issue) -> bool {
    list.iter().any(|other| other.type_ == issue.type_ && other.object == issue.object)
}

fn group<'a>(issues: impl Iterator<Item = &'a Issue>) -> Vec<(&'a str, Vec<&'a str>)> {
    let mut groups: Vec<(&str, Vec<&str>)> = Vec::new();
    for issue in issues {
        let type_ = issue.type_.as_deref().unwrap_or("Issue");
        match groups.iter_mut().find(|(known, _)| *known == type_) {
            Some((_, messages)) => messages.push(&issue.message),
            None => groups.push((type_, vec![&issue.message])),
        }
    }
    groups
}

fn told(messages: &[&str]) -> Vec<String> {
    if messages.len() <= ONE_BY_ONE {
        return messages.iter().map(ToString::to_string).collect();
    }
    let more = messages.len() - ONE_BY_ONE;
    vec![format!("{}; and {more} more like these", messages[..ONE_BY_ONE].join("; "))]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn issue(type_: &str, object: &dyn ToString) -> Issue {
        let object = object.to_string();
        Issue {
            severity: "Warning".into(),
            message: format!("{type_} {object}"),
            detected_at: None,
            type_: Some(type_.into()),
            object: Some(object),
        }
    }

    #[test]
    fn what_stays_is_no_news_and_what_comes_or_goes_is_told_once() {
        let (stays, comes, goes) =
            (issue("LinkDown", &"eth1"), issue("BondDown", &"bond0"), issue("LinkDown", &"eth2"));
        let news = between(&[stays.clone(), goes], &[stays.clone(), comes]);
        let told: Vec<_> = news.iter().map(|news| (news.bad, news.reason.as_str(), news.note.as_str())).collect();
        assert_eq!(told, [(true, "BondDown", "BondDown bond0"), (false, "LinkDownResolved", "No more: LinkDown eth2")]);
        assert_eq!(between(std::slice::from_ref(&stays), std::slice::from_ref(&stays)), []);
    }

    #[test]
    fn many_of_a_type_at_once_are_one_event() {
        let orphans: Vec<Issue> = (0..51).map(|number| issue("OrphanPort", &number)).collect();
        let [came] = &between(&[], &orphans)[..] else { panic!("not one") };
        assert_eq!(came.note, "OrphanPort 0; OrphanPort 1; OrphanPort 2; and 48 more like these");
        assert_eq!(between(&orphans, &[]).len(), 1);
        assert_eq!(between(&orphans[..3], &[]).len(), 3);
    }
}
