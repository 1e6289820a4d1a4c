//! What OVN's controller says.

use super::lines;

/// Reads `connection-status`: whether the controller is connected to the southbound database.
pub fn connected(text: &str) -> bool {
    text.trim() == "connected"
}

/// A claim of an interface to be a logical port, as the controller sees it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LocalBinding {
    /// The logical port that is claimed.
    pub logical_port: String,
    /// The interface that claims it.
    pub interface: Option<String>,
    /// How many logical ports are bound to it: none if OVN does not know the port or has it elsewhere.
    pub bound: u32,
    /// The logical port that is bound, if one is.
    pub primary: Option<String>,
}

/// Reads `debug/dump-local-bindings`.
pub fn bindings(text: &str) -> Vec<LocalBinding> {
    let mut bindings: Vec<LocalBinding> = Vec::new();
    for line in lines(text) {
        if let Some(rest) = line.strip_prefix("name: [") {
            bindings.push(LocalBinding {
                // A name may hold brackets; what follows it does not.
                logical_port: rest.split("], OVS interface name").next().unwrap_or(rest).trim_end_matches(']').into(),
                interface: bracketed(line, "OVS interface name : [").filter(|name| *name != "NULL").map(str::to_owned),
                bound: bracketed(line, "num binding lports : [").and_then(|count| count.parse().ok()).unwrap_or(0),
                primary: None,
            });
        } else if let (Some(binding), Some(primary)) = (bindings.last_mut(), bracketed(line, "primary lport : [")) {
            binding.primary = Some(primary.to_owned());
        }
    }
    bindings
}

fn bracketed<'a>(line: &'a str, before: &str) -> Option<&'a str> {
    let rest = &line[line.find(before)? + before.len()..];
    let end = rest.find("], ").or_else(|| rest.rfind(']'))?;
    Some(&rest[..end])
}
