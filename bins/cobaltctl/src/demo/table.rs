//! The Hypervisors as a table, made of nothing but what the API server tells.

use std::{fmt::Write as _, sync::Arc};

use cobalt_core::api::{ConditionStatus, Hypervisor, ResourceList, condition_types, labels, resources};
use comfy_table::{Attribute, Cell, CellAlignment, Color, ContentArrangement, LineStyle, Table, TableStyle};
use kube::ResourceExt;

/// A table of more rows than this is no help to anybody.
const ROWS: usize = 12;

/// A line under the header and room between the columns: it fits a terminal of eighty columns.
const STYLE: TableStyle = TableStyle::new().header_separator(LineStyle::none().fill('─').junction('─'));

const HEADER: [&str; 9] = ["NAME", "READY", "REASON", "LIFECYCLE", "VMS", "CPU", "MEMORY", "LIBVIRT", "ZONE"];

/// Renders the table, with a line about the rows that were left out.
pub(super) fn render(hypervisors: &[Arc<Hypervisor>], colours: bool) -> String {
    let mut sorted: Vec<_> = hypervisors.iter().collect();
    sorted.sort_by_key(|hypervisor| hypervisor.name_any());
    let mut table = Table::new();
    table.load_style(STYLE).set_content_arrangement(ContentArrangement::Dynamic);
    if colours {
        table.enforce_styling();
    } else {
        table.force_no_tty();
    }
    table.set_header(HEADER.map(|title| {
        let cell = Cell::new(title);
        if colours { cell.add_attribute(Attribute::Bold) } else { cell }
    }));
    for hypervisor in sorted.iter().take(ROWS) {
        table.add_row(row(hypervisor, colours));
    }
    for (index, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, u16::from(index + 1 != HEADER.len())));
        if [4, 5, 6].contains(&index) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let mut text = table.trim_fmt();
    text.push('\n');
    if sorted.len() > ROWS {
        let _ = writeln!(text, "  … and {} more", sorted.len() - ROWS);
    }
    text
}

fn row(hypervisor: &Hypervisor, colours: bool) -> Vec<Cell> {
    let paint = |text: String, colour: Option<Color>| match colour.filter(|_| colours) {
        Some(colour) => Cell::new(text).fg(colour),
        None => Cell::new(text),
    };
    let ready = hypervisor.condition(condition_types::READY);
    let (word, colour) = match ready.map(|condition| condition.status) {
        Some(ConditionStatus::True) => ("True", Some(Color::Green)),
        Some(ConditionStatus::False) => ("False", Some(Color::Yellow)),
        _ => ("-", None),
    };
    let (libvirt, libvirt_colour) = libvirt(hypervisor);
    let lifecycle = if hypervisor.spec.lifecycle_enabled() { "on" } else { "off" };
    vec![
        Cell::new(hypervisor.name_any()),
        paint(word.to_owned(), colour),
        Cell::new(ready.map_or("-", |condition| &condition.reason)),
        Cell::new(lifecycle),
        Cell::new(instances(hypervisor)),
        Cell::new(share(hypervisor, resources::CPU)),
        Cell::new(share(hypervisor, resources::MEMORY)),
        paint(libvirt.to_owned(), libvirt_colour),
        Cell::new(hypervisor.labels().get(labels::ZONE).map_or("-", String::as_str)),
    ]
}

/// `up`, `lost`, or nothing known.
fn libvirt(hypervisor: &Hypervisor) -> (&'static str, Option<Color>) {
    match hypervisor.condition(condition_types::LIBVIRT_CONNECTION).map(|condition| condition.status) {
        Some(ConditionStatus::True) => ("up", None),
        Some(ConditionStatus::False) => ("lost", Some(Color::Red)),
        _ => ("-", None),
    }
}

/// How many there are; `running/all` if not all of them run.
fn instances(hypervisor: &Hypervisor) -> String {
    // The number has a default in the CRD; the list has none, so it tells whether anybody has counted.
    let Some(status) = hypervisor.status.as_ref().filter(|status| status.instances.is_some()) else {
        return "-".into();
    };
    let active = status.instances().iter().filter(|instance| instance.active).count();
    if active == status.instances().len() {
        return status.num_instances().to_string();
    }
    format!("{active}/{}", status.num_instances())
}

/// `used/offered` of a resource; memory in GiB, written as Kubernetes does.
fn share(hypervisor: &Hypervisor, resource: &str) -> String {
    let Some(status) = &hypervisor.status else { return "-".into() };
    let amount = |list: &Option<ResourceList>| amount(list.as_ref(), resource);
    match (amount(&status.allocation), amount(&status.effective_capacity)) {
        (Some(used), Some(offered)) if resource == resources::MEMORY => {
            format!("{}/{}Gi", gib(used), gib(offered))
        }
        (Some(used), Some(offered)) => format!("{used}/{offered}"),
        _ => "-".into(),
    }
}

/// How much of a resource a list names, in whole units.
pub(super) fn amount(list: Option<&ResourceList>, resource: &str) -> Option<u64> {
    list?.get(resource)?.as_u64()
}

/// Bytes as whole GiB.
pub(super) fn gib(bytes: u64) -> u64 {
    bytes >> 30
}

#[cfg(test)]
mod tests {
    use cobalt_core::api::{Condition, Instance, Quantity, testing::hypervisor};

    use super::*;

    fn reported() -> Hypervisor {
        let mut found = hypervisor("hv-000").onboarded().build();
        let amounts = |cpus, bytes| {
            Some(ResourceList::from([
                (resources::CPU.to_owned(), Quantity::cpus(cpus)),
                (resources::MEMORY.to_owned(), Quantity::bytes(bytes)),
            ]))
        };
        let status = found.status.get_or_insert_default();
        status.allocation = amounts(6, 12 << 30);
        status.effective_capacity = amounts(256, 1 << 40);
        status.num_instances = Some(2);
        status.instances = Some(vec![
            Instance { id: "a".into(), active: true, ..Instance::default() },
            Instance { id: "b".into(), ..Instance::default() },
        ]);
        let lost = Condition::new(condition_types::LIBVIRT_CONNECTION, ConditionStatus::False, "ConnectFailed", "");
        status.conditions.push(lost);
        found
    }

    #[test]
    fn a_row_says_what_was_reported() {
        let text = render(&[Arc::new(reported())], false);
        for cell in ["hv-000", "1/2", "6/256", "12/1024Gi", "lost"] {
            assert!(text.contains(cell), "{cell} is not in: {text}");
        }
        assert!(!text.contains('\x1b'), "no colours unless asked for: {text}");
        assert!(render(&[Arc::new(reported())], true).contains('\x1b'));
    }

    #[test]
    fn what_nobody_has_reported_is_not_a_zero() {
        let text = render(&[Arc::new(Hypervisor::default())], false);
        assert!(!text.contains('0'), "{text}");
    }

    #[test]
    fn rows_are_in_order_and_not_too_many() {
        let many: Vec<_> = (0..20).rev().map(|n| Arc::new(hypervisor(&format!("hv-{n:03}")).build())).collect();
        let text = render(&many, false);
        assert!(text.find("hv-000") < text.find("hv-011") && text.contains("hv-011"), "{text}");
        assert!(!text.contains("hv-012") && text.ends_with("… and 8 more\n"), "{text}");
    }
}
