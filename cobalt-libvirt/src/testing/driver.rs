//! How the drivers differ, as far as recordings show.

use super::{
    answer::{Answer, Event},
    recording::Recording,
    wire::{Identity, Reader},
};

/// What is done to a domain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Deed {
    Define,
    Undefine,
    Start,
    /// Made and started at once, without a definition.
    StartTransient,
    Suspend,
    Resume,
    Reset,
    Reboot,
    Shutdown,
    Destroy,
}

/// The drivers whose ways are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Qemu,
    CloudHypervisor,
    /// The test driver, and any other: lifecycle events only.
    Test,
}

/// A driver as it was recorded.
#[derive(Debug)]
pub(super) struct Driver {
    pub(super) kind: Kind,
    pub(super) recording: Recording,
    inactive_xml: Template,
    active_xml: Template,
}

/// A recorded domain XML, to be told of other domains.
#[derive(Debug, Default)]
struct Template {
    text: String,
    name: String,
    uuid: String,
}

impl Template {
    fn new(text: String) -> Self {
        let name = element(&text, "name").unwrap_or_default().to_owned();
        let uuid = element(&text, "uuid").unwrap_or_default().to_owned();
        Self { text, name, uuid }
    }

    fn tell(&self, domain: &Identity) -> String {
        let name = (format!("<name>{}</name>", self.name), format!("<name>{}</name>", domain.name));
        let uuid = (format!("<uuid>{}</uuid>", self.uuid), format!("<uuid>{}</uuid>", domain.uuid_text()));
        with_id(&self.text.replacen(&name.0, &name.1, 1).replacen(&uuid.0, &uuid.1, 1), domain.id)
    }
}

/// The text of the first element with this name.
pub(super) fn element<'a>(xml: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = xml.split_once(&format!("<{name}>"))?;
    rest.split_once(&format!("</{name}>")).map(|(text, _)| text)
}

/// The XML with this number of a running domain in its first tag, or with none.
pub(super) fn with_id(xml: &str, id: i32) -> String {
    let Some((before, rest)) = xml.split_once("<domain ") else { return xml.to_owned() };
    let Some((tag, after)) = rest.split_once('>') else { return xml.to_owned() };
    let kept: Vec<&str> = tag.split(' ').filter(|attribute| !attribute.starts_with("id=")).collect();
    let id = if id < 0 { String::new() } else { format!(" id='{id}'") };
    format!("{before}<domain {}{id}>{after}", kept.join(" "))
}

impl Driver {
    pub(super) fn recorded(recording: Recording) -> Self {
        let kind = match recording.text("host/connect_get_type").as_deref() {
            Some("QEMU") => Kind::Qemu,
            Some("CH") => Kind::CloudHypervisor,
            _ => Kind::Test,
        };
        let xml = |id| Template::new(recording.text(id).unwrap_or_default());
        let inactive_xml = xml("dom-inactive/get_xml_desc/inactive");
        let active_xml = xml("dom-running/get_xml_desc/live");
        Self { kind, recording, inactive_xml, active_xml }
    }

    /// The XML of a domain that was defined through the wire.
    pub(super) fn xml(&self, domain: &Identity) -> String {
        if domain.id < 0 { self.inactive_xml.tell(domain) } else { self.active_xml.tell(domain) }
    }

    /// Whether this driver ever sends this kind of event.
    pub(super) fn tells(&self, kind: i32) -> bool {
        self.kind == Kind::Qemu || kind == 0
    }

    /// The recorded error with this name about another domain.
    pub(super) fn error(&self, id: &str, domain: &Identity, otherwise: i32) -> Answer {
        let recorded = self.recording.answer(id).unwrap_or_else(|| Answer::error(otherwise, 20, "operation failed"));
        recorded.about(domain)
    }

    /// The number of a domain that starts: Cloud Hypervisor uses process ids, the others count.
    pub(super) fn next_id(&self, started: i32) -> i32 {
        if self.kind == Kind::CloudHypervisor { 15_100 + 11 * started } else { started }
    }

    /// The statistics of a domain in these groups (0 for all), as typed parameters; `state` replaces what was recorded.
    pub(super) fn stats(&self, active: bool, state: (i32, i32), groups: u32) -> Vec<bytes::Bytes> {
        let place = if active { "dom-running" } else { "dom-inactive" };
        let recorded = self.recording.answer(&format!("{place}/all_stats/this_domain_all_groups"));
        let params = recorded.and_then(|answer| {
            let mut reader = Reader::new(&answer.payload);
            reader.u32()?;
            reader.domain()?;
            reader.params()
        });
        let wanted = |name: &str| {
            const GROUPS: [(&str, u32); 6] =
                [("state.", 1), ("cpu.", 2), ("balloon.", 4), ("vcpu.", 8), ("net.", 16), ("block.", 32)];
            let group = GROUPS.iter().find(|(prefix, _)| name.starts_with(prefix)).map_or(1 << 30, |(_, bit)| *bit);
            groups == 0 || groups & group != 0
        };
        let params = params.unwrap_or_default().into_iter().filter(|(name, _)| wanted(name));
        let said = |name: &str, value| super::Writer::new().param_i32(name, value).finish();
        params
            .map(|(name, bytes)| match name.as_str() {
                "state.state" => said(&name, state.0),
                "state.reason" => said(&name, state.1),
                _ => bytes,
            })
            .collect()
    }

    /// What the driver tells about a deed. `before` is the domain with its number before it, `after` with the one after.
    pub(super) fn events(&self, deed: Deed, before: &Identity, after: &Identity, persistent: bool) -> Vec<Event> {
        const DEFINED: (i32, i32) = (0, 0);
        const UNDEFINED: (i32, i32) = (1, 0);
        const STARTED: (i32, i32) = (2, 0);
        const SUSPENDED: (i32, i32) = (3, 0);
        const RESUMED: (i32, i32) = (4, 0);
        const SHUT_DOWN: (i32, i32) = (5, 0);
        const DESTROYED: (i32, i32) = (5, 1);
        const FINISHED_BY_HOST: (i32, i32) = (6, 2);

        let tell = |whose: &Identity, (event, detail)| Event::lifecycle(whose, event, detail);
        match (self.kind, deed) {
            (_, Deed::Define) => vec![tell(after, DEFINED)],
            (_, Deed::Undefine) => vec![tell(after, UNDEFINED)],
            (Kind::Qemu, Deed::Start | Deed::StartTransient) => vec![tell(after, RESUMED), tell(after, STARTED)],
            (Kind::CloudHypervisor, Deed::Start) | (Kind::Test, Deed::Start | Deed::StartTransient) => {
                vec![tell(after, STARTED)]
            }
            (Kind::Qemu | Kind::Test, Deed::Suspend) => vec![tell(after, SUSPENDED)],
            (Kind::Qemu | Kind::Test, Deed::Resume) => vec![tell(after, RESUMED)],
            (Kind::Qemu, Deed::Reset) => vec![Event::reboot(after); 3],
            (Kind::Qemu, Deed::Destroy) => {
                vec![tell(before, FINISHED_BY_HOST), tell(after, DESTROYED)]
            }
            // The test driver tells the end of a domain without a definition under its old number.
            (Kind::Test, Deed::Destroy) if !persistent => vec![tell(before, DESTROYED)],
            (Kind::CloudHypervisor | Kind::Test, Deed::Destroy) => vec![tell(after, DESTROYED)],
            (Kind::Test, Deed::Shutdown) => vec![tell(after, SHUT_DOWN)],
            (Kind::CloudHypervisor, _)
            | (Kind::Qemu, Deed::Reboot | Deed::Shutdown)
            | (Kind::Test, Deed::Reset | Deed::Reboot) => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_a_running_domain_is_put_into_its_first_tag_only() {
        let xml = "<domain type='kvm' id='7'>\n<name>a</name><cell id='0'/></domain>";
        assert_eq!(with_id(xml, 12), "<domain type='kvm' id='12'>\n<name>a</name><cell id='0'/></domain>");
        assert_eq!(with_id(xml, -1), "<domain type='kvm'>\n<name>a</name><cell id='0'/></domain>");
        assert_eq!(element(xml, "name"), Some("a"));
    }
}
