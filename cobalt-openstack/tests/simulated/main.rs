//! The clients on a simulated region, over a socket: as in production, except for the cloud.
#![allow(clippy::unwrap_used)]

mod contract;
mod faults;
mod login;
mod pages;
mod shapes;

use std::time::Duration;

use cobalt_openstack::{Cloud, OpenStack, Options};
use cobalt_sim::{OpenStackApi, Region, Timing};
use tokio::{net::TcpListener, task::JoinHandle};

/// A region on a socket, until dropped.
pub(crate) struct Served {
    pub(crate) region: Region,
    pub(crate) api: OpenStackApi,
    pub(crate) address: std::net::SocketAddr,
    serving: JoinHandle<()>,
}

impl Drop for Served {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl Served {
    pub(crate) async fn start(region: Region) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let served = region.clone();
        let serving = tokio::spawn(async move {
            served.serve_openstack(listener, std::future::pending()).await.unwrap();
        });
        Self { api: region.openstack(), region, address, serving }
    }

    pub(crate) fn cloud(&self) -> Cloud {
        Cloud::from_vars(self.api.environment(self.address)).unwrap()
    }

    pub(crate) async fn connect(&self) -> OpenStack {
        self.connect_with(quick()).await
    }

    pub(crate) async fn connect_with(&self, options: Options) -> OpenStack {
        OpenStack::connect_with(&self.cloud(), options, None).await.unwrap()
    }
}

/// Limits that make trouble short.
pub(crate) fn quick() -> Options {
    Options { backoff: Duration::from_millis(5), rate: 10_000.0, burst: 1000, ..Options::default() }
}

/// A region whose life is quick, since its time is real here. A migration takes long enough to be seen and stopped.
pub(crate) fn brisk() -> Timing {
    let short = Duration::from_millis(20);
    Timing {
        power_off: short,
        boot: short,
        compute_start: short,
        daemon_restart: short,
        build: short,
        delete: short,
        guest_boot: short,
        prepare: short,
        finish: short,
        evacuate: Duration::from_millis(500),
        copy_per_gib: Duration::from_millis(800),
        ..Timing::default()
    }
}

/// Waits for a condition that nobody announces.
pub(crate) async fn until<F: Future<Output = bool>>(what: &str, mut condition: impl FnMut() -> F) {
    let waiting = async {
        while !condition().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(120), waiting).await.unwrap_or_else(|_| panic!("{what}: not in time"));
}
