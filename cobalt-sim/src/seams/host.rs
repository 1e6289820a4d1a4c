//! The operating system of one simulated host.

use std::time::Duration;

use async_trait::async_trait;
use cobalt_core::{
    Error, Result,
    host::{ActiveState, HostEvent, HostFeatures, HostSystem, OsFacts, ShutdownInhibitor, Unit},
    ids::HostName,
};
use futures::{StreamExt, stream::BoxStream};

use crate::{
    faults::{CALL_TIMEOUT, Faults},
    topic::Delivery,
    world::{HostId, Os, State, World},
};

/// The operating system of one simulated host: Garden Linux with systemd. Clones share their faults; a new one from
/// [`Region::host_system`](crate::Region::host_system) has its own.
#[derive(Debug, Clone)]
pub struct SimHostSystem {
    world: World,
    host: HostId,
    name: HostName,
    faults: Faults,
}

/// Delays shutdowns of one host while it lives.
#[derive(Debug)]
struct Inhibitor {
    world: World,
    host: HostId,
    epoch: u32,
    delay: Duration,
}

impl ShutdownInhibitor for Inhibitor {
    fn max_delay(&self) -> Option<Duration> {
        Some(self.delay)
    }
}

impl Drop for Inhibitor {
    fn drop(&mut self) {
        self.world.with(|state| state.inhibitor_dropped(self.host, self.epoch));
    }
}

impl SimHostSystem {
    pub(crate) fn new(world: World, host: HostId) -> Self {
        let name = world.with(|state| state.host(host).name.clone());
        Self { world, host, name, faults: Faults::default() }
    }

    /// The faults of this handle.
    pub fn faults(&self) -> &Faults {
        &self.faults
    }

    async fn call<T>(
        &self,
        method: &'static str,
        what: impl FnOnce() -> String + Send,
        act: impl FnOnce(&mut State, &str) -> Result<T> + Send,
    ) -> Result<T> {
        let operation = format!("{} on {}", what(), self.name);
        let call = || async {
            match self.world.with(|state| state.host(self.host).os) {
                Os::Up => self.world.with(|state| act(state, &operation)),
                Os::Hung => {
                    tokio::time::sleep(CALL_TIMEOUT).await;
                    Err(Error::timeout(operation.clone(), CALL_TIMEOUT))
                }
                Os::Down | Os::Booting => {
                    Err(Error::unavailable(operation.clone(), std::io::Error::other("the host does not run")))
                }
            }
        };
        self.faults.run(method, || operation.clone(), call).await
    }
}

#[async_trait]
impl HostSystem for SimHostSystem {
    fn features(&self) -> HostFeatures {
        HostFeatures { units: true, start_units: true, shutdown_inhibitor: true }
    }

    async fn facts(&self) -> Result<OsFacts> {
        self.call(
            "facts",
            || "read facts".into(),
            |state, _| {
                let host = state.host(self.host);
                let version = &host.os_version;
                let text = |text: &str| Some(text.to_owned());
                Ok(OsFacts {
                    version: Some(version.clone()),
                    variant_id: text("kvm-gardener_prod-amd64"),
                    pretty_version: Some(format!("Garden Linux {version}")),
                    kernel_name: text("Linux"),
                    kernel_release: text("6.12.44-cloud-amd64"),
                    kernel_version: text("#1 SMP PREEMPT_DYNAMIC Debian 6.12.44-1gardenlinux0"),
                    kernel_command_line: text("intel_iommu=on hugepagesz=1G"),
                    hardware_vendor: text("Simulated Systems"),
                    hardware_model: text("Rack 2U"),
                    hardware_serial: Some(format!("SIM-{}", host.name)),
                    firmware_version: text("2.19.1"),
                    firmware_vendor: text("Simulated Systems"),
                    firmware_date: "2025-03-01T00:00:00Z".parse().ok(),
                    garden_linux_commit_id: text("5e6a3f0c"),
                    garden_linux_features: vec!["_prod".into(), "gardener".into(), "kvm".into()],
                    boot_id: Some(host.boot_id.to_string()),
                })
            },
        )
        .await
    }

    async fn units(&self, names: &[String]) -> Result<Vec<Unit>> {
        self.call(
            "units",
            || format!("read units {}", names.join(", ")),
            |state, _| {
                let host = state.host(self.host);
                let show = |name: &String| {
                    let (active, load_state) = match host.unit(name) {
                        Some(active) => (active, "loaded"),
                        None => (ActiveState::Inactive, "not-found"),
                    };
                    Unit { name: name.clone(), active, load_state: load_state.to_owned() }
                };
                Ok(names.iter().map(show).collect())
            },
        )
        .await
    }

    fn events(&self) -> BoxStream<'static, HostEvent> {
        let reader = self.world.with(|state| {
            let capacity = state.event_capacity;
            state.host_mut(self.host).os_events.subscribe(capacity, [])
        });
        reader
            .map(|delivery| match delivery {
                Delivery::Item(event) => event,
                Delivery::Lost(_) => HostEvent::Resync,
            })
            .boxed()
    }

    async fn start_unit(&self, name: &str) -> Result<()> {
        self.call(
            "start_unit",
            || format!("start unit {name}"),
            |state, operation| {
                if state.start_unit(self.host, name) { Ok(()) } else { Err(Error::not_found(operation)) }
            },
        )
        .await
    }

    async fn inhibit_shutdown(&self, why: &str) -> Result<Box<dyn ShutdownInhibitor>> {
        self.call(
            "inhibit_shutdown",
            || format!("delay shutdown ({why})"),
            |state, _| {
                let delay = state.timing.inhibit_delay;
                let host = state.host_mut(self.host);
                host.inhibitors += 1;
                let (epoch, world) = (host.epoch, self.world.clone());
                Ok(Box::new(Inhibitor { world, host: self.host, epoch, delay }) as Box<dyn ShutdownInhibitor>)
            },
        )
        .await
    }
}
