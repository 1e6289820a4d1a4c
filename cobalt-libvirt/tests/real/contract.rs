//! The contract of the seam on real drivers, over every way to a daemon.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use async_trait::async_trait;
use cobalt_core::{
    backend::{EventKind, HypervisorBackend, PowerAction},
    contract::{self, Outcome, Provoked, Report, Stop, backend::BackendFixture},
    ids::InstanceId,
};
use cobalt_libvirt::{
    BackendOptions, Libvirt, LibvirtBackend,
    rpc::{DefineFlags, StartFlags, UndefineFlags},
};
use cobalt_rig::{Act, Guest, Host};

use crate::rig::{Rig, connect};

/// Few enough that a flood of them is soon made.
const CAPACITY: usize = 64;

pub(crate) fn options() -> BackendOptions {
    let (first, most) = (Duration::from_millis(50), Duration::from_millis(500));
    BackendOptions::new().reconnect(first, most).event_capacity(CAPACITY).migrate_unsafe(true)
}

fn done<T>(answer: cobalt_rig::Result<T>) -> Provoked<T> {
    answer.or_else(|error| Stop::failed(error.to_string()))
}

/// A host of its own with a QEMU, and another one beside it.
struct Qemu {
    rig: Rig,
    backend: LibvirtBackend,
    other: LibvirtBackend,
    guests: BTreeMap<InstanceId, Guest>,
    started: usize,
    /// Whether guests boot far enough to make events themselves, which takes its time.
    thorough: bool,
}

impl Qemu {
    async fn new(rig: Rig, uri: &str, thorough: bool) -> Qemu {
        let backend = LibvirtBackend::connect(uri, options()).await.unwrap();
        let other = LibvirtBackend::connect(&rig.other().tcp(), options()).await.unwrap();
        Qemu { rig, backend, other, guests: BTreeMap::new(), started: 0, thorough }
    }

    fn host(&self) -> &Host {
        self.rig.host()
    }

    fn guest(&self, id: &InstanceId) -> &Guest {
        &self.guests[id]
    }

    /// Runs another guest under the name and id of one that is there.
    fn replace(&self, id: &InstanceId, act: Act, change: impl FnOnce(Guest) -> Guest) -> Provoked<()> {
        if !self.thorough && act != Act::Idle {
            return Stop::cannot("wait for a guest to boot");
        }
        let name = self.guest(id).name();
        let Some(guest) = self.rig.guest(name, act) else { return Stop::cannot("boot a guest without a kernel") };
        done(self.host().virsh(["destroy", name]))?;
        done(self.host().define(&change(guest)))?;
        done(self.host().virsh(["start", name])).map(drop)
    }

    fn plug_and_unplug(&self, name: &str) -> Provoked<()> {
        let path = self.rig.hosts.shared().join("tablet.xml");
        std::fs::write(&path, "<input type='tablet' bus='usb'><alias name='ua-tablet'/></input>").unwrap();
        let path = path.display().to_string();
        done(self.host().virsh(["attach-device", name, &path, "--live"]))?;
        done(self.host().virsh(["detach-device", name, &path, "--live"])).map(drop)
    }
}

#[async_trait]
impl BackendFixture for Qemu {
    fn backend(&self) -> Arc<dyn HypervisorBackend> {
        Arc::new(self.backend.clone())
    }

    async fn start_domain(&mut self) -> Provoked<InstanceId> {
        self.started += 1;
        let name = format!("instance-{:08x}", self.started);
        // One that has something in its memory, so that a migration takes longer than a look at it.
        let guest = self.rig.guest(&name, Act::Idle).unwrap_or_else(|| Guest::new(&name));
        done(self.host().define(&guest))?;
        done(self.host().virsh(["start", &name]))?;
        done(self.host().virsh(["migrate-setspeed", &name, "6"]))?;
        let id = InstanceId::from(guest.uuid());
        self.guests.insert(id.clone(), guest);
        Ok(id)
    }

    async fn remove_domain(&mut self, id: &InstanceId) -> Provoked<()> {
        let name = self.guest(id).name();
        done(self.host().virsh(["destroy", name]))?;
        done(self.host().virsh(["undefine", name])).map(drop)
    }

    async fn provoke(&mut self, id: &InstanceId, kind: EventKind) -> Provoked<()> {
        let name = self.guest(id).name();
        match kind {
            EventKind::Reboot => done(self.host().virsh(["reset", name])).map(drop),
            EventKind::Watchdog => self.replace(id, Act::Watchdog, Guest::watchdog),
            EventKind::IoError => {
                let image = done(self.host().small_disk(name, 1024))?.join("image").display().to_string();
                done(self.host().run(["truncate", "--size=8M", &image]))?;
                self.replace(id, Act::FillDisk, |guest| guest.stopping_disk(image))
            }
            EventKind::AgentLifecycle => {
                let channel = "<channel type='unix'><target type='virtio' name='org.qemu.guest_agent.0'/></channel>";
                self.replace(id, Act::Idle, |guest| guest.device(channel))
            }
            EventKind::JobCompleted | EventKind::MigrationIteration => {
                let to = self.rig.other().tcp();
                let words = ["migrate", "--live", "--p2p", "--persistent", "--undefinesource", name, &to];
                done(self.host().virsh(words)).map(drop)
            }
            EventKind::DeviceRemoved => self.plug_and_unplug(name),
            _ => Stop::cannot(format!("provoke a {kind:?} event")),
        }
    }

    async fn flood(&mut self) -> Provoked<u64> {
        let id = self.start_domain().await?;
        for _ in 0..CAPACITY {
            self.backend.power(&id, PowerAction::Suspend).await?;
            self.backend.power(&id, PowerAction::Resume).await?;
        }
        self.remove_domain(&id).await?;
        Ok(2 * CAPACITY as u64)
    }

    async fn cut_connection(&mut self) -> Provoked<()> {
        done(self.host().kill_daemon())
    }

    async fn restore_connection(&mut self) -> Provoked<()> {
        done(self.host().start_daemon())
    }

    async fn other_host(&mut self) -> Provoked<(String, Arc<dyn HypervisorBackend>)> {
        Ok((self.rig.other().tcp(), Arc::new(self.other.clone())))
    }

    fn open_streams(&self) -> Provoked<usize> {
        Ok(self.backend.listeners())
    }
}

fn skipped(report: &Report) -> Vec<&str> {
    let checks = report.checks.iter().filter(|checked| matches!(checked.outcome, Outcome::Skipped(_)));
    checks.map(|checked| checked.id.as_str()).collect()
}

async fn qemu(test: &str, way: fn(&Host) -> String, thorough: bool) {
    let Some(rig) = Rig::own(test, 2) else { return };
    let uri = way(rig.host());
    let report = contract::backend::run(&mut Qemu::new(rig, &uri, thorough).await).await;
    report.assert_passed();
    // Neither a broken memory module nor a broken monitor can be had at will.
    let never: &[&str] = &["event-controlerror", "event-memoryfailure"];
    let elsewhere: &[&str] = &["event-watchdog", "event-ioerror", "event-controlerror", "event-memoryfailure"];
    assert_eq!(skipped(&report), if thorough { never } else { elsewhere }, "{report}");
}

#[tokio::test(flavor = "multi_thread")]
async fn qemu_keeps_the_contract_over_tcp() {
    qemu("qemu_keeps_the_contract_over_tcp", Host::tcp, true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn qemu_keeps_the_contract_over_tls() {
    qemu("qemu_keeps_the_contract_over_tls", Host::tls, false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn qemu_keeps_the_contract_over_its_unix_socket() {
    qemu("qemu_keeps_the_contract_over_its_unix_socket", Host::unix, false).await;
}

/// libvirt's test driver in a real daemon. All connections to it share its domains.
struct TestDriver {
    rig: Rig,
    backend: LibvirtBackend,
    /// The other client, which makes things happen.
    libvirt: Libvirt,
    guests: BTreeMap<InstanceId, Guest>,
    started: usize,
}

impl TestDriver {
    async fn domain(&self, id: &InstanceId) -> Provoked<cobalt_libvirt::DomainRef> {
        let found = self.libvirt.domain_by_name(self.guests[id].name()).await;
        found.or_else(|error| Stop::failed(error.to_string()))
    }
}

#[async_trait]
impl BackendFixture for TestDriver {
    fn backend(&self) -> Arc<dyn HypervisorBackend> {
        Arc::new(self.backend.clone())
    }

    async fn start_domain(&mut self) -> Provoked<InstanceId> {
        self.started += 1;
        let guest = Guest::new(format!("instance-{:08x}", self.started));
        let xml = format!(
            "<domain type='test'><name>{}</name><uuid>{}</uuid><memory unit='MiB'>64</memory><vcpu>2</vcpu>\
             <os><type>hvm</type></os></domain>",
            guest.name(),
            guest.uuid()
        );
        let made = async {
            let domain = self.libvirt.define(&xml, DefineFlags::NONE).await?;
            self.libvirt.start(&domain, StartFlags::NONE).await
        };
        made.await.or_else(|error| Stop::failed(error.to_string()))?;
        let id = InstanceId::from(guest.uuid());
        self.guests.insert(id.clone(), guest);
        Ok(id)
    }

    async fn remove_domain(&mut self, id: &InstanceId) -> Provoked<()> {
        let domain = self.domain(id).await?;
        let removed = async {
            self.libvirt.destroy(&domain).await?;
            self.libvirt.undefine(&domain, UndefineFlags::NONE).await
        };
        removed.await.or_else(|error| Stop::failed(error.to_string()))
    }

    async fn flood(&mut self) -> Provoked<u64> {
        let id = self.start_domain().await?;
        for _ in 0..CAPACITY {
            self.backend.power(&id, PowerAction::Suspend).await?;
            self.backend.power(&id, PowerAction::Resume).await?;
        }
        self.remove_domain(&id).await?;
        Ok(2 * CAPACITY as u64)
    }

    async fn cut_connection(&mut self) -> Provoked<()> {
        done(self.rig.host().kill_daemon())
    }

    async fn restore_connection(&mut self) -> Provoked<()> {
        done(self.rig.host().start_daemon())?;
        self.libvirt = connect(&self.rig.host().test_driver()).await;
        Ok(())
    }

    fn open_streams(&self) -> Provoked<usize> {
        Ok(self.backend.listeners())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_test_driver_keeps_the_contract_over_tcp() {
    let Some(rig) = Rig::own("the_test_driver_keeps_the_contract_over_tcp", 1) else { return };
    let uri = rig.host().test_driver();
    let backend = LibvirtBackend::connect(&uri, options()).await.unwrap();
    let libvirt = connect(&uri).await;
    let mut fixture = TestDriver { rig, backend, libvirt, guests: BTreeMap::new(), started: 0 };
    let report = contract::backend::run(&mut fixture).await;
    report.assert_passed();
    // Nothing makes it send what it does not announce, so that cannot be checked.
    let expected = skipped(&report).iter().all(|id| id.starts_with("event-") && id.ends_with("-lacking"));
    assert!(expected, "{report}");
}
