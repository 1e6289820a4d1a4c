//! Every event that can be provoked, provoked.

use cobalt_libvirt::{
    event::{
        AgentState, CrashedDetail, DefinedDetail, EventKind, IoErrorAction, Lifecycle, ResumedDetail, ShutdownDetail,
        StartedDetail, StoppedDetail, SuspendedDetail, UndefinedDetail, WatchdogAction,
    },
    rpc::{DefineFlags, DeviceFlags, DiskErrorKind, DomainState, MetadataKind, StartFlags, UndefineFlags},
};
use cobalt_rig::{Act, Guest};

use crate::rig::{Events, Rig, connect, remove, start, until};

fn life(lifecycle: Lifecycle) -> EventKind {
    EventKind::Lifecycle(lifecycle)
}

#[tokio::test]
async fn the_life_of_a_domain_is_told_step_by_step() {
    let Some(rig) = Rig::shared("the_life_of_a_domain_is_told_step_by_step") else { return };
    let libvirt = connect(&rig.host().tcp()).await;
    let guest = Guest::new("life");
    let mut events = Events::of(&libvirt, &guest).await;
    let domain = libvirt.define(&guest.xml(), DefineFlags::NONE).await.unwrap();
    libvirt.start(&domain, StartFlags::NONE).await.unwrap();
    libvirt.suspend(&domain).await.unwrap();
    libvirt.resume(&domain).await.unwrap();
    libvirt.destroy(&domain).await.unwrap();
    libvirt.undefine(&domain, UndefineFlags::NONE).await.unwrap();
    events.until("the end", |kind| *kind == life(Lifecycle::Undefined(UndefinedDetail::Removed))).await;
    assert_eq!(
        events.seen,
        [
            life(Lifecycle::Defined(DefinedDetail::Added)),
            life(Lifecycle::Resumed(ResumedDetail::Unpaused)),
            life(Lifecycle::Started(StartedDetail::Booted)),
            life(Lifecycle::Suspended(SuspendedDetail::Paused)),
            life(Lifecycle::Resumed(ResumedDetail::Unpaused)),
            life(Lifecycle::Shutdown(ShutdownDetail::Host)),
            life(Lifecycle::Stopped(StoppedDetail::Destroyed)),
            life(Lifecycle::Undefined(UndefinedDetail::Removed)),
        ]
    );
}

#[tokio::test]
async fn a_reset_is_told_as_a_reboot() {
    let Some(rig) = Rig::shared("a_reset_is_told_as_a_reboot") else { return };
    let libvirt = connect(&rig.host().tls()).await;
    let guest = Guest::new("reset");
    start(rig.host(), &guest);
    let mut events = Events::of(&libvirt, &guest).await;
    libvirt.reset(&libvirt.domain_by_name("reset").await.unwrap()).await.unwrap();
    events.until("a reboot", |kind| *kind == EventKind::Reboot).await;
    remove(rig.host(), &guest);
}

#[tokio::test]
async fn a_guest_that_reboots_is_told() {
    let Some(rig) = Rig::shared("a_guest_that_reboots_is_told") else { return };
    let Some(guest) = rig.guest("reboots", Act::Reboot) else { return };
    let libvirt = connect(&rig.host().unix()).await;
    let mut events = Events::of(&libvirt, &guest).await;
    start(rig.host(), &guest);
    events.sequence(&[life(Lifecycle::Started(StartedDetail::Booted)), EventKind::Reboot]).await;
    remove(rig.host(), &guest);
}

#[tokio::test]
async fn a_guest_that_switches_itself_off_is_told() {
    let Some(rig) = Rig::shared("a_guest_that_switches_itself_off_is_told") else { return };
    let Some(guest) = rig.guest("off", Act::PowerOff) else { return };
    let libvirt = connect(&rig.host().tcp()).await;
    let mut events = Events::of(&libvirt, &guest).await;
    start(rig.host(), &guest);
    let wanted = [Lifecycle::Shutdown(ShutdownDetail::Guest), Lifecycle::Stopped(StoppedDetail::Shutdown)].map(life);
    events.sequence(&wanted).await;
    remove(rig.host(), &guest);
}

#[tokio::test]
async fn a_watchdog_that_nobody_feeds_resets_the_guest() {
    let Some(rig) = Rig::shared("a_watchdog_that_nobody_feeds_resets_the_guest") else { return };
    let Some(guest) = rig.guest("watched", Act::Watchdog) else { return };
    let guest = guest.watchdog();
    let libvirt = connect(&rig.host().tcp()).await;
    let mut events = Events::of(&libvirt, &guest).await;
    start(rig.host(), &guest);
    events.sequence(&[EventKind::Watchdog { action: WatchdogAction::Reset }, EventKind::Reboot]).await;
    remove(rig.host(), &guest);
}

#[tokio::test]
async fn a_guest_whose_kernel_panics_has_crashed() {
    let Some(rig) = Rig::shared("a_guest_whose_kernel_panics_has_crashed") else { return };
    let Some(guest) = rig.guest("panics", Act::Panic) else { return };
    let guest = guest.panic_device();
    let libvirt = connect(&rig.host().tcp()).await;
    let mut events = Events::of(&libvirt, &guest).await;
    start(rig.host(), &guest);
    let wanted = [Lifecycle::Crashed(CrashedDetail::Panicked), Lifecycle::Stopped(StoppedDetail::Crashed)].map(life);
    events.sequence(&wanted).await;
    remove(rig.host(), &guest);
}

#[tokio::test]
async fn a_full_disk_stops_the_guest_until_there_is_space() {
    let Some(rig) = Rig::shared("a_full_disk_stops_the_guest_until_there_is_space") else { return };
    let Some(guest) = rig.guest("full", Act::FillDisk) else { return };
    let place = rig.host().small_disk("full", 1024).unwrap();
    let image = place.join("image").display().to_string();
    rig.host().run(["truncate", "--size=8M", &image]).unwrap();
    let guest = guest.stopping_disk(&image);
    let libvirt = connect(&rig.host().tcp()).await;
    let mut events = Events::of(&libvirt, &guest).await;
    start(rig.host(), &guest);
    let (path, device, action) = (image, "virtio-disk0".to_owned(), IoErrorAction::Pause);
    let plain = EventKind::IoError { path: path.clone(), device: device.clone(), action };
    let reason = EventKind::IoErrorReason { path, device, action, reason: "enospc".to_owned() };
    events.sequence(&[plain, reason, life(Lifecycle::Suspended(SuspendedDetail::IoError))]).await;
    let domain = libvirt.domain_by_name("full").await.unwrap();
    let status = libvirt.domain_status(&domain).await.unwrap();
    assert!(status.state == DomainState::Paused && status.is_paused_on_io_error(), "{status:?}");
    let errors = libvirt.disk_errors(&domain).await.unwrap();
    assert_eq!(errors.iter().map(|e| (e.disk.as_str(), e.kind)).collect::<Vec<_>>(), [("vda", DiskErrorKind::NoSpace)]);
    // More space, and it goes on as if nothing had been.
    rig.host().small_disk("full", 64 * 1024).unwrap();
    libvirt.resume(&domain).await.unwrap();
    events.until("it runs on", |kind| *kind == life(Lifecycle::Resumed(ResumedDetail::Unpaused))).await;
    until("the guest has written", || rig.host().console("full").contains("guest: disk written")).await;
    assert_eq!(libvirt.domain_status(&domain).await.unwrap().state, DomainState::Running);
    remove(rig.host(), &guest);
}

#[tokio::test]
async fn a_killed_qemu_is_told_as_failed() {
    let Some(rig) = Rig::shared("a_killed_qemu_is_told_as_failed") else { return };
    let libvirt = connect(&rig.host().tcp()).await;
    let guest = Guest::new("killed");
    start(rig.host(), &guest);
    let mut events = Events::of(&libvirt, &guest).await;
    rig.host().kill_guest("killed").unwrap();
    events.until("the failure", |kind| *kind == life(Lifecycle::Stopped(StoppedDetail::Failed))).await;
    remove(rig.host(), &guest);
}

#[tokio::test]
async fn devices_and_agents_that_come_and_go_are_told() {
    let Some(rig) = Rig::shared("devices_and_agents_that_come_and_go_are_told") else { return };
    let libvirt = connect(&rig.host().tcp()).await;
    let channel = "<channel type='unix'><target type='virtio' name='org.qemu.guest_agent.0'/></channel>";
    let guest = Guest::new("devices").device(channel);
    let mut events = Events::of(&libvirt, &guest).await;
    start(rig.host(), &guest);
    let gone = |kind: &EventKind| matches!(kind, EventKind::AgentLifecycle { state: AgentState::Disconnected, .. });
    events.until("the agent is not there", gone).await;
    let domain = libvirt.domain_by_name("devices").await.unwrap();
    // A USB device leaves without the guest's consent, which there is nobody to give.
    let tablet = "<input type='tablet' bus='usb'><alias name='ua-tablet'/></input>";
    libvirt.attach_device(&domain, tablet, DeviceFlags::LIVE).await.unwrap();
    let device = || "ua-tablet".to_owned();
    events.until("it came", |kind| *kind == EventKind::DeviceAdded { device: device() }).await;
    libvirt.detach_device(&domain, tablet, DeviceFlags::LIVE).await.unwrap();
    events.until("it left", |kind| *kind == EventKind::DeviceRemoved { device: device() }).await;
    remove(rig.host(), &guest);
}

#[tokio::test]
async fn changes_of_a_running_domain_are_told() {
    let Some(rig) = Rig::shared("changes_of_a_running_domain_are_told") else { return };
    let libvirt = connect(&rig.host().tcp()).await;
    let guest = Guest::new("changes");
    start(rig.host(), &guest);
    let mut events = Events::of(&libvirt, &guest).await;
    rig.host().virsh(["vcpupin", "changes", "0", "0", "--live"]).unwrap();
    let pinned = |kind: &EventKind| match kind {
        EventKind::Tunable { params } => params.get_str("cputune.vcpupin0").as_deref() == Some("0"),
        _ => false,
    };
    events.until("the pin", pinned).await;
    rig.host().virsh(["desc", "changes", "--title", "--live", "another"]).unwrap();
    let titled = EventKind::MetadataChange { kind: MetadataKind::Title, uri: None };
    events.until("the title", |kind| *kind == titled).await;
    remove(rig.host(), &guest);
}
