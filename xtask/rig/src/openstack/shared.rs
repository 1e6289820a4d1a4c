//! One control plane for all tests of a process.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::ControlPlane;

/// The control plane, and the turn: tests that disable hosts or kill services are not for company.
///
/// It starts with the first test that wants it and ends with the process, since starting takes longer than most tests.
///
/// ```no_run
/// # use std::path::Path;
/// use cobalt_rig::Turn;
///
/// #[test]
/// fn a_server_runs() {
///     // Cargo's directory for integration tests lies directly below the target directory.
///     let target = Path::new(option_env!("CARGO_TARGET_TMPDIR").unwrap()).parent().unwrap();
///     let Some(turn) = Turn::wait("a_server_runs", target, &["hv-1"]) else { return };
///     turn.plane.boot("hv-1", "a-server").unwrap();
/// }
/// ```
#[derive(Debug)]
pub struct Turn {
    /// The plane. What one test leaves in it the next one finds.
    pub plane: Arc<ControlPlane>,
    _turn: MutexGuard<'static, Option<Arc<ControlPlane>>>,
}

impl Turn {
    /// Waits for the turn, with computes of these names running. `None` after telling why no plane can be had here.
    ///
    /// # Panics
    ///
    /// If one could be had and does not start.
    pub fn wait(test: &str, target: &Path, computes: &[&str]) -> Option<Turn> {
        static TURN: Mutex<Option<Arc<ControlPlane>>> = Mutex::new(None);
        let mut turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let plane = if let Some(plane) = &*turn {
            plane.clone()
        } else {
            let venv = crate::openstack_available(test, target)?;
            let plane = ControlPlane::up(&venv, computes).unwrap_or_else(|error| panic!("{error}"));
            // It is never dropped: the namespaces end with the process, and take their directory along.
            turn.insert(Arc::new(plane)).clone()
        };
        let turn = Turn { plane, _turn: turn };
        turn.ready(computes);
        Some(turn)
    }

    /// Another test may have wanted other computes, or have left one dead.
    fn ready(&self, computes: &[&str]) {
        let all = || -> crate::Result<()> {
            for name in computes {
                self.plane.start_compute(name)?;
            }
            for name in computes {
                self.plane.wait_for_compute(name)?;
            }
            Ok(())
        };
        all().unwrap_or_else(|error| panic!("{error}"));
    }
}
