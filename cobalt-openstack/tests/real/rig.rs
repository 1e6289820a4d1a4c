//! The control plane that the tests share, one after the other.

use std::{path::Path, sync::Arc, time::Duration};

use cobalt_openstack::{Cloud, OpenStack, Options};
use cobalt_rig::ControlPlane;

/// The hosts of the region. Some begin with each other's names, as hosts do.
pub(crate) const HOSTS: [&str; 5] = ["hv-1", "hv-10", "hv-2", "hv-3", "hv-1.a"];

/// Whatever is to happen has happened by then, also on a loaded machine.
pub(crate) const LIMIT: Duration = Duration::from_secs(240);

/// The turn of a test, and how to log in.
pub(crate) struct Turn(cobalt_rig::Turn);

impl Turn {
    /// `None` after telling why there is no plane.
    pub(crate) fn wait(test: &str) -> Option<Turn> {
        // Cargo's directory for integration tests lies directly below the target directory.
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
        cobalt_rig::Turn::wait(test, target, &HOSTS).map(Turn)
    }

    pub(crate) fn plane(&self) -> &Arc<ControlPlane> {
        &self.0.plane
    }

    pub(crate) fn cloud(&self) -> Cloud {
        Cloud::from_vars(self.plane().environment()).unwrap()
    }

    pub(crate) async fn connect(&self) -> OpenStack {
        // The machine may be slow; the cloud may not be asked too often for a test.
        let options = Options { rate: 100.0, attempt_timeout: Duration::from_secs(60), ..Options::default() };
        OpenStack::connect_with(&self.cloud(), options, None).await.unwrap()
    }
}

/// Does something that blocks, beside the runtime; a failure comes with what the logs complain of.
pub(crate) async fn tried<T: Send + 'static>(
    plane: &Arc<ControlPlane>,
    act: impl FnOnce(&ControlPlane) -> cobalt_rig::Result<T> + Send + 'static,
) -> Result<T, String> {
    let plane = plane.clone();
    let trying = tokio::task::spawn_blocking(move || act(&plane).map_err(|error| format!("{error}{}", plane.tail())));
    trying.await.unwrap()
}

/// The same where a failure is the end.
pub(crate) async fn aside<T: Send + 'static>(
    plane: &Arc<ControlPlane>,
    act: impl FnOnce(&ControlPlane) -> cobalt_rig::Result<T> + Send + 'static,
) -> T {
    tried(plane, act).await.unwrap_or_else(|error| panic!("{error}"))
}

/// Waits for a condition that nobody announces.
pub(crate) async fn until<F: Future<Output = bool>>(what: &str, mut condition: impl FnMut() -> F) {
    let waiting = async {
        while !condition().await {
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    tokio::time::timeout(LIMIT, waiting).await.unwrap_or_else(|_| panic!("{what}: not within {LIMIT:?}"));
}
