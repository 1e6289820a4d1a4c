//! The checks, by subject. The order here is the order of the report.

mod access;
mod apply;
mod clients;
mod crds;
mod deletion;
mod lists;
mod objects;
mod patches;
mod status;
mod updates;
mod watches;

use super::check::Check;

pub(crate) fn all() -> Vec<Check> {
    [
        objects::CHECKS,
        updates::CHECKS,
        patches::CHECKS,
        apply::CHECKS,
        status::CHECKS,
        deletion::CHECKS,
        lists::CHECKS,
        watches::CHECKS,
        crds::CHECKS,
        access::CHECKS,
        clients::CHECKS,
    ]
    .into_iter()
    .flat_map(|checks| checks())
    .collect()
}
