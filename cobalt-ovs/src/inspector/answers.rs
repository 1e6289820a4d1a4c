//! What the daemons say on their control sockets.

use cobalt_core::ovs::Daemon;

use super::options::OvsOptions;
use crate::{show, unixctl::Unixctl};

/// The ways to the three daemons of a host.
#[derive(Debug)]
pub(super) struct Daemons {
    pub(super) database: Unixctl,
    pub(super) switch: Unixctl,
    pub(super) controller: Unixctl,
}

/// What `ovs-vswitchd` said. What it did not say is `None`.
#[derive(Debug)]
pub(super) struct SwitchAnswers {
    pub(super) daemon: Daemon,
    pub(super) bonds: Option<String>,
    pub(super) lacp: Option<String>,
    pub(super) memory: Option<String>,
}

/// What `ovn-controller` said.
#[derive(Debug)]
pub(super) struct ControllerAnswers {
    pub(super) daemon: Daemon,
    pub(super) connected: bool,
    pub(super) bindings: Option<String>,
}

impl Daemons {
    pub(super) fn new(options: &OvsOptions) -> Self {
        let daemon = |run_dir, name| Unixctl::new(run_dir, name).timeout(options.control_timeout);
        Self {
            database: daemon(&options.run_dir, "ovsdb-server"),
            switch: daemon(&options.run_dir, "ovs-vswitchd"),
            controller: daemon(&options.ovn_run_dir, "ovn-controller"),
        }
    }

    pub(super) fn all(&self) -> [&Unixctl; 3] {
        [&self.switch, &self.database, &self.controller]
    }

    /// A switch that does not say its version is asked nothing else: each question would cost a timeout.
    pub(super) async fn ask_switch(&self) -> SwitchAnswers {
        let daemon = self.switch.daemon().await;
        if !daemon.is_responsive() {
            return SwitchAnswers { daemon, bonds: None, lacp: None, memory: None };
        }
        let (bonds, lacp, memory) = tokio::join!(
            told(&self.switch, "bond/show"),
            told(&self.switch, "lacp/show"),
            told(&self.switch, "memory/show")
        );
        SwitchAnswers { daemon, bonds, lacp, memory }
    }

    pub(super) async fn ask_controller(&self) -> ControllerAnswers {
        let daemon = self.controller.daemon().await;
        if !daemon.is_responsive() {
            return ControllerAnswers { daemon, connected: false, bindings: None };
        }
        let (connected, bindings) = tokio::join!(
            told(&self.controller, "connection-status"),
            told(&self.controller, "debug/dump-local-bindings")
        );
        let connected = connected.is_some_and(|text| show::connected(&text));
        ControllerAnswers { daemon, connected, bindings }
    }
}

/// The text, or nothing: an older daemon may not know the command, and one may begin to hang at any time.
pub(super) async fn told(daemon: &Unixctl, command: &str) -> Option<String> {
    match daemon.call(command, &[]).await {
        Ok(text) => Some(text),
        Err(error) => {
            tracing::debug!(error = crate::error::chain(&error), "no answer");
            None
        }
    }
}
