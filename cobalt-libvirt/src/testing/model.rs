//! The domains of a scripted daemon: a little state under the recorded answers.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::{
    answer::{Answer, Event},
    driver::{Deed, Driver, Kind, element, with_id},
    recording::Recording,
    wire::{Identity, Reader, Writer, parse_uuid},
};
use crate::frame::Status;

const RUNNING: (i32, i32) = (1, 1);
const PAUSED: (i32, i32) = (3, 1);
const SHUT_OFF: (i32, i32) = (5, 2);
const NEVER_RAN: (i32, i32) = (5, 0);

#[derive(Debug)]
struct Domain {
    identity: Identity,
    state: (i32, i32),
    persistent: bool,
    /// What it was put in with, where that is not what the driver makes of a definition.
    xml: Option<String>,
}

impl Domain {
    fn active(&self) -> bool {
        self.identity.id >= 0
    }

    /// Whether it is wanted by the filter bits that lists and statistics share.
    fn wanted(&self, flags: u32) -> bool {
        let of = |bits: [(u32, bool); 2]| {
            let asked: Vec<bool> = bits.into_iter().filter(|(bit, _)| flags & bit != 0).map(|(_, is)| is).collect();
            asked.is_empty() || asked.contains(&true)
        };
        let states = [(16, self.state.0 == 1), (32, self.state.0 == 3), (64, self.state.0 == 5)];
        let asked: Vec<bool> = states.into_iter().filter(|(bit, _)| flags & bit != 0).map(|(_, is)| is).collect();
        of([(1, self.active()), (2, !self.active())])
            && of([(4, self.persistent), (8, !self.persistent)])
            && (asked.is_empty() || asked.contains(&true))
    }
}

/// The state of the daemon that outlives its connections.
#[derive(Debug)]
pub(super) struct Model {
    driver: Driver,
    domains: BTreeMap<[u8; 16], Domain>,
    started: i32,
    /// Waits to be sent once the answer is out.
    told: Vec<Event>,
}

impl Model {
    pub(super) fn new(recording: Recording) -> Self {
        Self { driver: Driver::recorded(recording), domains: BTreeMap::new(), started: 0, told: Vec::new() }
    }

    pub(super) fn take_events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.told)
    }

    pub(super) fn tells(&self, event: &Event) -> bool {
        self.driver.tells(event.kind)
    }

    pub(super) fn identities(&self) -> Vec<Identity> {
        self.domains.values().map(|domain| domain.identity.clone()).collect()
    }

    /// Puts a domain in without a word to anybody.
    pub(super) fn put(&mut self, xml: &str, running: bool) -> Option<Identity> {
        let uuid = parse_uuid(element(xml, "uuid")?)?;
        let id = if running { self.take_number() } else { -1 };
        let identity = Identity { name: element(xml, "name")?.to_owned(), uuid, id };
        let state = if running { RUNNING } else { NEVER_RAN };
        let domain = Domain { identity: identity.clone(), state, persistent: true, xml: Some(xml.to_owned()) };
        self.domains.insert(uuid, domain);
        Some(identity)
    }

    /// Takes a domain out without a word to anybody.
    pub(super) fn take(&mut self, uuid: &[u8; 16]) -> bool {
        self.domains.remove(uuid).is_some()
    }

    /// Sets libvirt's numbers for state and reason without a word to anybody.
    pub(super) fn set_state(&mut self, uuid: &[u8; 16], state: (i32, i32)) -> bool {
        self.domains.get_mut(uuid).map(|domain| domain.state = state).is_some()
    }

    fn take_number(&mut self) -> i32 {
        self.started += 1;
        self.driver.next_id(self.started)
    }

    /// Answers a call, and remembers what is to be told about it.
    pub(super) fn answer(&mut self, procedure: u32, arguments: &Bytes) -> Answer {
        if let Some(lacking) = self.driver.recording.lacking(procedure) {
            return lacking;
        }
        if let Some(refused) = self.driver.recording.find(procedure, arguments).filter(is_about_arguments) {
            return refused;
        }
        if let Some(answer) = self.stateful(procedure, Reader::new(arguments)) {
            return answer;
        }
        let recording = &self.driver.recording;
        let recorded = recording.find(procedure, arguments).or_else(|| match procedure {
            // Domain capabilities depend on arguments that every client chooses differently.
            342 => recording.any(procedure),
            // Keepalive is spoken here, every other feature was recorded or is not there.
            60 => Some(Answer::ok(Writer::new().i32(i32::from(arguments.as_ref() == [0, 0, 0, 10])).finish())),
            _ => None,
        });
        recorded.unwrap_or_else(|| Answer::error(39, 7, &format!("unknown procedure: {procedure}")))
    }

    /// The answer to what depends on the domains there are; `None` for everything else.
    fn stateful(&mut self, procedure: u32, mut arguments: Reader) -> Option<Answer> {
        let malformed = || Answer::error(39, 7, "Unable to decode message payload");
        let answer = match procedure {
            1 | 2 => Some(Answer::done()),
            9 => arguments.domain().map(|domain| self.start(&domain, false)),
            10 => arguments.string().map(|xml| self.define(&xml, Deed::StartTransient)),
            12 | 234 => arguments.domain().map(|domain| self.stop(&domain, Deed::Destroy)),
            14 => arguments.domain().and_then(|domain| Some(self.xml(&domain, arguments.u32()?))),
            16 => arguments.domain().map(|domain| self.info(&domain)),
            22 => arguments.i32().map(|id| self.lookup(|domain| domain.id == id)),
            23 => arguments.string().map(|name| self.lookup(|domain| domain.name == name)),
            24 => arguments.bytes(16).map(|uuid| self.lookup(|domain| domain.uuid == uuid.as_ref())),
            27 => arguments.domain().map(|domain| self.disturb(&domain, Deed::Reboot)),
            28 => arguments.domain().map(|domain| self.turn(&domain, Deed::Resume)),
            33 | 258 => arguments.domain().map(|domain| self.stop(&domain, Deed::Shutdown)),
            34 => arguments.domain().map(|domain| self.turn(&domain, Deed::Suspend)),
            150 => arguments.domain().map(|domain| self.flag(&domain, Domain::active)),
            151 => arguments.domain().map(|domain| self.flag(&domain, |domain| domain.persistent)),
            164 => arguments.domain().map(|domain| self.abort(&domain)),
            196 => arguments.domain().map(|domain| self.start(&domain, true)),
            212 => arguments.domain().map(|domain| self.state(&domain)),
            231 => arguments.domain().map(|domain| self.undefine(&domain)),
            245 => arguments.domain().map(|domain| self.disturb(&domain, Deed::Reset)),
            273 => arguments.u32().and_then(|results| Some(self.list(results != 0, arguments.u32()?))),
            298 => arguments.domain().and_then(|domain| Some(self.job(&domain, arguments.u32()? != 0))),
            305 => arguments.domain().map(|domain| self.migrate(&domain)),
            344 => arguments.domains().and_then(|of| Some(self.stats(&of, arguments.u32()?, arguments.u32()?))),
            350 => arguments.string().map(|xml| self.define(&xml, Deed::Define)),
            _ => return None,
        };
        Some(answer.unwrap_or_else(malformed))
    }

    fn missing(&self, domain: &Identity) -> Answer {
        self.driver.error("errors/get_info/no_such_domain", domain, 42)
    }

    fn tell(&mut self, deed: Deed, before: &Identity, after: &Identity, persistent: bool) {
        let events = self.driver.events(deed, before, after, persistent);
        self.told.extend(events);
    }

    fn lookup(&self, wanted: impl Fn(&Identity) -> bool) -> Answer {
        if let Some(identity) = self.domains.values().map(|domain| &domain.identity).find(|identity| wanted(identity)) {
            return Answer::ok(Writer::new().domain(identity).finish());
        }
        let recorded = self.driver.recording.answer("errors/lookup_by_uuid/not_found");
        recorded.unwrap_or_else(|| Answer::error(42, 20, "Domain not found"))
    }

    fn flag(&self, domain: &Identity, is: impl Fn(&Domain) -> bool) -> Answer {
        match self.domains.get(&domain.uuid) {
            Some(found) => Answer::ok(Writer::new().i32(i32::from(is(found))).finish()),
            None => self.missing(domain),
        }
    }

    fn state(&self, domain: &Identity) -> Answer {
        match self.domains.get(&domain.uuid) {
            Some(found) => Answer::ok(Writer::new().i32(found.state.0).i32(found.state.1).finish()),
            None => self.missing(domain),
        }
    }

    fn info(&self, domain: &Identity) -> Answer {
        let Some(found) = self.domains.get(&domain.uuid) else { return self.missing(domain) };
        let place = if found.active() { "dom-running/get_info" } else { "dom-inactive/get_info" };
        let Some(recorded) = self.driver.recording.answer(place) else { return Answer::no_support() };
        // The first word is the state; what follows is the size and the CPU time.
        Answer::ok(Writer::new().i32(found.state.0).raw(recorded.payload.get(4..).unwrap_or_default()).finish())
    }

    fn xml(&self, domain: &Identity, flags: u32) -> Answer {
        const INACTIVE: u32 = 2;
        let Some(found) = self.domains.get(&domain.uuid) else { return self.missing(domain) };
        let id = if flags & INACTIVE != 0 { -1 } else { found.identity.id };
        let xml = match &found.xml {
            Some(xml) => with_id(xml, id),
            None => self.driver.xml(&Identity { id, ..found.identity.clone() }),
        };
        Answer::ok(Writer::new().string(&xml).finish())
    }

    fn list(&self, results: bool, flags: u32) -> Answer {
        let wanted: Vec<&Domain> = self.domains.values().filter(|domain| domain.wanted(flags)).collect();
        let count = u32::try_from(wanted.len()).unwrap_or(u32::MAX);
        let shown = if results { wanted.as_slice() } else { &[] };
        let start = Writer::new().u32(u32::try_from(shown.len()).unwrap_or(u32::MAX));
        let body = shown.iter().fold(start, |body, domain| body.domain(&domain.identity));
        Answer::ok(body.u32(count).finish())
    }

    fn stats(&self, of: &[Identity], groups: u32, flags: u32) -> Answer {
        let named = |domain: &&Domain| of.is_empty() || of.iter().any(|one| one.uuid == domain.identity.uuid);
        let wanted: Vec<&Domain> =
            self.domains.values().filter(named).filter(|domain| domain.wanted(flags & 0xff)).collect();
        let start = Writer::new().u32(u32::try_from(wanted.len()).unwrap_or(u32::MAX));
        let body = wanted.iter().fold(start, |body, domain| {
            let params = self.driver.stats(domain.active(), domain.state, groups);
            let body = body.domain(&domain.identity).u32(u32::try_from(params.len()).unwrap_or(u32::MAX));
            params.iter().fold(body, |body, param| body.raw(param))
        });
        Answer::ok(body.finish())
    }

    fn job(&self, domain: &Identity, completed: bool) -> Answer {
        match self.domains.get(&domain.uuid) {
            Some(found) if !found.active() && !completed => self.driver.error("dom-inactive/get_job_stats", domain, 55),
            Some(_) => Answer::ok(Writer::new().i32(0).u32(0).finish()),
            None => self.missing(domain),
        }
    }

    fn abort(&self, domain: &Identity) -> Answer {
        match self.domains.get(&domain.uuid) {
            Some(_) => self.driver.error("dom-running/abort_job/no_job", domain, 55),
            None => self.missing(domain),
        }
    }

    /// There is no other host to go to; where a test wants one, it scripts the answer.
    fn migrate(&self, domain: &Identity) -> Answer {
        match self.domains.get(&domain.uuid) {
            Some(found) if found.active() => Answer::error(38, 7, "unable to connect to server: No route to host"),
            Some(_) => self.driver.error("errors/migrate/not_running", domain, 55),
            None => self.missing(domain),
        }
    }

    fn define(&mut self, xml: &str, deed: Deed) -> Answer {
        // A daemon makes a UUID up where none is given; this one remembers which.
        let made_up = || {
            let arguments = Writer::new().string(xml).u32(0).finish();
            let recorded = self.driver.recording.find(350, &arguments)?;
            Reader::new(&recorded.payload).domain().map(|domain| domain.uuid)
        };
        let uuid = element(xml, "uuid").and_then(parse_uuid).or_else(made_up);
        let (Some(name), Some(uuid)) = (element(xml, "name"), uuid) else {
            return Answer::error(27, 20, "XML error: a name and a uuid must be specified");
        };
        let transient = deed == Deed::StartTransient;
        let known = self.domains.get(&uuid).map(|domain| (domain.identity.id, domain.state));
        let id = if transient { self.take_number() } else { known.map_or(-1, |(id, _)| id) };
        let state = if transient { RUNNING } else { known.map_or(NEVER_RAN, |(_, state)| state) };
        let identity = Identity { name: name.to_owned(), uuid, id };
        let domain = Domain { identity: identity.clone(), state, persistent: !transient, xml: None };
        self.domains.insert(uuid, domain);
        self.tell(deed, &identity, &identity, !transient);
        Answer::ok(Writer::new().domain(&identity).finish())
    }

    fn start(&mut self, domain: &Identity, shown: bool) -> Answer {
        if !self.domains.contains_key(&domain.uuid) {
            return self.missing(domain);
        }
        if self.domains[&domain.uuid].active() {
            return self.driver.error("errors/create/already_running", domain, 55);
        }
        let id = self.take_number();
        let after = Identity { id, ..domain.clone() };
        if let Some(found) = self.domains.get_mut(&domain.uuid) {
            found.identity.id = id;
            found.state = RUNNING;
        }
        self.tell(Deed::Start, domain, &after, true);
        if !shown {
            return Answer::done();
        }
        // Cloud Hypervisor's driver answers with the number from before the start.
        let said = if self.driver.kind == Kind::CloudHypervisor { domain } else { &after };
        Answer::ok(Writer::new().domain(said).finish())
    }

    fn stop(&mut self, domain: &Identity, deed: Deed) -> Answer {
        let Some(found) = self.domains.get_mut(&domain.uuid) else { return self.missing(domain) };
        if !found.active() {
            return self.driver.error("errors/destroy/not_running", domain, 55);
        }
        if deed == Deed::Shutdown && self.driver.kind == Kind::Qemu {
            // The guest was asked, and takes its time.
            return Answer::done();
        }
        let before = found.identity.clone();
        let after = Identity { id: -1, ..before.clone() };
        let persistent = found.persistent;
        found.identity.id = -1;
        found.state = SHUT_OFF;
        if !persistent {
            self.domains.remove(&domain.uuid);
        }
        self.tell(deed, &before, &after, persistent);
        Answer::done()
    }

    fn undefine(&mut self, domain: &Identity) -> Answer {
        let Some(found) = self.domains.get_mut(&domain.uuid) else { return self.missing(domain) };
        let identity = found.identity.clone();
        found.persistent = false;
        if !found.active() {
            self.domains.remove(&domain.uuid);
        }
        self.tell(Deed::Undefine, &identity, &identity, false);
        Answer::done()
    }

    fn turn(&mut self, domain: &Identity, deed: Deed) -> Answer {
        let Some(found) = self.domains.get_mut(&domain.uuid) else { return self.missing(domain) };
        if !found.active() {
            return self.driver.error("errors/suspend/not_running", domain, 55);
        }
        if deed == Deed::Resume && found.state.0 != PAUSED.0 {
            return self.driver.error("life/resume/already_running", domain, 55);
        }
        found.state = if deed == Deed::Resume { (1, 5) } else { PAUSED };
        let identity = found.identity.clone();
        self.tell(deed, &identity, &identity, true);
        Answer::done()
    }

    fn disturb(&mut self, domain: &Identity, deed: Deed) -> Answer {
        let Some(found) = self.domains.get(&domain.uuid) else { return self.missing(domain) };
        if !found.active() {
            return self.driver.error("errors/reboot/not_running", domain, 55);
        }
        let identity = found.identity.clone();
        self.tell(deed, &identity, &identity, true);
        Answer::done()
    }
}

/// Whether a daemon refused the arguments as such, whatever the state of its domains.
fn is_about_arguments(answer: &Answer) -> bool {
    matches!(answer.code(), Some(8 | 27 | 35 | 67 | 74))
}

/// Whether an answer is one that ends the connection: the daemon hangs up after a successful close.
pub(super) fn hangs_up(procedure: u32, answer: &Answer) -> bool {
    procedure == 2 && answer.status == Status::Ok
}
