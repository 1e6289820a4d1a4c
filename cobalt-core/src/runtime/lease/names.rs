//! The Lease names of the existing programs.

use std::fmt::Write as _;

use ring::digest;

/// The operator's Lease, when it serves all nodes.
pub const OPERATOR: &str = "4c28796a.cloud.sap";

/// The node agent's Lease.
pub const NODE_AGENT: &str = "71df68e8.cloud.sap";

/// The labels injector's Lease.
pub const LABELS_INJECTOR: &str = "95d1dc58.kvm.cloud.sap";

/// The operator's Lease for the nodes a label selector chooses; an empty selector chooses all.
///
/// ```
/// use cobalt_core::runtime::lease::names;
///
/// assert_eq!(names::operator(""), "4c28796a.cloud.sap");
/// assert_eq!(
///     names::operator("zone=a"),
///     "b696c0ee8a155e4c928673fc5fabe7bd96c91e07f820ff18470eaa1fa4db2f5a.cloud.sap",
/// );
/// ```
pub fn operator(selector: &str) -> String {
    if selector.is_empty() {
        return OPERATOR.to_owned();
    }
    let mut context = digest::Context::new(&digest::SHA256);
    context.update(OPERATOR.as_bytes());
    context.update(selector.as_bytes());
    let mut name = String::with_capacity(74);
    for byte in context.finish().as_ref() {
        let _ = write!(name, "{byte:02x}");
    }
    name.push_str(".cloud.sap");
    name
}
