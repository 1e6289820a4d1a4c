//! The smoke test: a server of our own on the new host, whose console must show its name, as it is or as Nova gives it to
//! the guest.
//!
//! ```text
//!   none ──create──▶ BUILD ──▶ ACTIVE ──name on the console──▶ delete ──▶ passed
//!    ▲                 │          │
//!    │               ERROR      no name in time, or not running
//!    │                 ▼          ▼
//!    └─── gone ◀───── delete, and say why ── after a pause, again
//! ```
//!
//! One run is one step. Where it is, only Nova knows: the server is found by its name, which contains the UID of the
//! Hypervisor. Servers of the same host with another UID are of an earlier life and are deleted; a server of another host
//! is never touched, however its name begins.

mod args;
mod run;

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex},
    time::Duration,
};

use clap::ValueEnum;
use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

pub use args::{SmokeTestArgs, SmokeTestLogin};
use run::TestHost;
pub(super) use run::{CleanUp, DELETING};

use crate::{
    Result,
    ids::{HostName, InstanceId},
    nova::{NewServer, NewVolume, NovaClient, Server, ServerName, ServerStatus, TestBed},
    operator::{Action, Cloud, Snapshot},
    runtime::lock,
};

/// What the test server boots from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum BootFrom {
    /// A local disk made of the image.
    Image,
    /// A new volume filled from the image, which tests the host's way to the storage too.
    #[default]
    Volume,
}

/// How hosts are tested.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SmokeTestSettings {
    /// What the names of test servers begin with, before the host's.
    pub prefix: String,
    /// The image, by its name or its UUID.
    pub image: String,
    /// The flavor, by its id or its name.
    pub flavor: String,
    /// The network, by its name or its UUID; `none` for none, `None` for the first of the project's own.
    pub network: Option<String>,
    /// What the server boots from.
    pub boot_from: BootFrom,
    /// The size of its volume.
    pub volume_size_gb: u32,
    /// The type of its volume; `None` for the cloud's default.
    pub volume_type: Option<String>,
    /// The availability zone asked for, with `{zone}` and `{host}` in their places.
    pub zone_format: String,
    /// How long after it was asked for the server must have been built.
    pub build_timeout: Duration,
    /// How long after its launch the server must have said its name.
    pub timeout: Duration,
    /// How many lines of the console are looked at.
    pub console_lines: u32,
    /// Pause between two looks.
    pub poll_interval: Duration,
    /// Pause after a failure.
    pub retry_interval: Duration,
}

impl Default for SmokeTestSettings {
    fn default() -> Self {
        Self {
            prefix: "ohooc--".into(),
            image: "cirros-kvm".into(),
            flavor: "1".into(),
            network: None,
            boot_from: BootFrom::Volume,
            volume_size_gb: 64,
            volume_type: Some("premium".into()),
            zone_format: "{zone}:{host}".into(),
            build_timeout: Duration::from_secs(15 * 60),
            timeout: Duration::from_secs(5 * 60),
            console_lines: 11,
            poll_interval: Duration::from_secs(10),
            retry_interval: Duration::from_secs(60),
        }
    }
}

/// The smoke test with the project it runs in. Cloned freely; all clones are the same.
///
/// ```no_run
/// use cobalt_core::nova::{NovaClient, TestBed};
/// use cobalt_core::operator::{OnboardingSettings, Settings, onboarding::{SmokeTest, SmokeTestSettings}};
/// use std::sync::Arc;
///
/// # fn example(nova: Arc<dyn NovaClient>, bed: Arc<dyn TestBed>) {
/// let test = SmokeTest::new(nova, bed, SmokeTestSettings { flavor: "m1.tiny".into(), ..Default::default() });
/// let mut settings = Settings::default();
/// settings.onboarding = OnboardingSettings::default().tested_by(Some(test));
/// # let _ = settings; }
/// ```
#[derive(Clone)]
pub struct SmokeTest {
    nova: Arc<dyn NovaClient>,
    bed: Arc<dyn TestBed>,
    pub(super) settings: SmokeTestSettings,
    /// When each host may be looked at again, and what was found last: a pass may come at any time, and often.
    paces: Arc<Mutex<BTreeMap<String, (Instant, String)>>>,
}

impl fmt::Debug for SmokeTest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SmokeTest").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl SmokeTest {
    /// With a login to the project of the tests. It may be one that is tried at the first call only.
    pub fn new(nova: Arc<dyn NovaClient>, bed: Arc<dyn TestBed>, settings: SmokeTestSettings) -> Self {
        Self { nova, bed, settings, paces: Arc::default() }
    }

    pub(super) fn key(&self, host: &Asked) -> String {
        format!("onboarding/test {}", self.server_name(host))
    }

    pub(super) fn action(&self, host: &Asked, zone: Option<&str>, now: Timestamp) -> Arc<dyn Action> {
        Arc::new(TestHost { test: self.clone(), host: host.clone(), zone: zone.map(str::to_owned), now })
    }

    /// Deletes all test servers of a host; `gone` waits until Nova has done so.
    pub(super) fn clean_up(&self, cloud: &Cloud, host: &Asked, gone: bool, now: Timestamp) -> CleanUp {
        CleanUp { test: self.clone(), cloud: cloud.clone(), host: host.clone(), gone, own_login: false, now }
    }

    fn server_name(&self, host: &Asked) -> String {
        format!("{}{}-{}", self.settings.prefix, host.name, host.uid)
    }

    /// Whether a server is a test of exactly this host, of this life or of an earlier one.
    pub(super) fn is_of(&self, host: &Asked, server: &str) -> bool {
        let rest = server.strip_prefix(&self.settings.prefix).and_then(|rest| rest.strip_prefix(&host.name));
        rest.and_then(|rest| rest.strip_prefix('-')).is_some_and(is_uuid)
    }

    async fn servers_of(&self, host: &Asked) -> Result<Vec<Server>> {
        let begin = ServerName::StartingWith(format!("{}{}-", self.settings.prefix, host.name));
        let mut servers = self.nova.servers_named(&begin).await?;
        servers.retain(|server| self.is_of(host, &server.name) && server.status != ServerStatus::Deleted);
        Ok(servers)
    }

    async fn delete(&self, id: &InstanceId) -> Result<()> {
        match self.nova.delete_server(id).await {
            Err(error) if error.is_not_found() => Ok(()),
            other => other,
        }
    }

    async fn new_server(&self, host: &Asked, zone: Option<&str>) -> Result<NewServer> {
        let SmokeTestSettings { image, flavor, network, boot_from, volume_size_gb, volume_type, .. } = &self.settings;
        let image = if is_uuid(image) { image.clone() } else { self.bed.image_named(image).await? };
        let network = match network.as_deref() {
            Some("none") => None,
            Some(id) if is_uuid(id) => Some(id.to_owned()),
            name => self.bed.network(name).await?,
        };
        let place = self.settings.zone_format.replace("{zone}", zone.unwrap_or_default());
        let volume = || NewVolume { size_gb: *volume_size_gb, kind: volume_type.clone() };
        Ok(NewServer {
            name: self.server_name(host),
            flavor: self.bed.flavor_called(flavor).await?,
            image,
            network,
            availability_zone: Some(place.replace("{host}", host.host.as_str())),
            volume: (*boot_from == BootFrom::Volume).then(volume),
        })
    }

    /// When a server was asked for that should have been gone by now: built, looked at and deleted.
    fn overstays(&self, server: &Server, now: Timestamp) -> Option<Timestamp> {
        overdue(server.created_at, self.settings.build_timeout.saturating_add(self.settings.timeout), now)
    }

    fn forget_pace(&self, host: &Asked) {
        lock(&self.paces).remove(&host.name);
    }
}

/// The host a test is for.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    /// The Hypervisor's name.
    name: String,
    /// Its UID.
    uid: String,
    /// Its name in Nova.
    host: HostName,
}

impl Asked {
    /// `None` for a Hypervisor that was not made yet.
    pub(super) fn of(seen: &Snapshot) -> Option<Self> {
        let uid = seen.hypervisor.as_ref()?.metadata.uid.clone()?;
        Some(Self { name: seen.name.clone(), uid, host: seen.host() })
    }
}

/// The moment since which more than this time has passed, if it has.
fn overdue(since: Option<Timestamp>, limit: Duration, now: Timestamp) -> Option<Timestamp> {
    let limit = SignedDuration::try_from(limit).unwrap_or(SignedDuration::MAX);
    since.filter(|since| now.duration_since(*since) > limit)
}

/// Whether a text is a UUID in its usual form.
fn is_uuid(text: &str) -> bool {
    let groups: Vec<&str> = text.split('-').collect();
    groups.iter().map(|group| group.len()).eq([8, 4, 4, 4, 12])
        && groups.iter().all(|group| group.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

#[cfg(test)]
mod tests {
    use super::is_uuid;

    #[test]
    fn a_uuid_is_told_from_a_name() {
        assert!(is_uuid("6f2c58a6-0000-4000-8000-00000000000A"));
        for name in ["", "cirros-kvm", "6f2c58a6-0000-4000-8000-00000000000", "6f2c58a6-0000-4000-8000-00000000000g"] {
            assert!(!is_uuid(name), "{name}");
        }
    }
}
