//! What is done: a step of the test, and the end of all of its servers.

use async_trait::async_trait;
use jiff::Timestamp;
use tokio::time::Instant;

use super::{Asked, SmokeTest, overdue};
use crate::{
    Result,
    nova::{NovaClient, Server, ServerStatus, ServiceState, TaskState, guest_hostname},
    operator::{Action, Cloud, Progress, acting, onboarding::RUNNING},
    runtime::{lock, shutdown::Chain},
};

/// What is waited for while Nova deletes.
pub(in super::super) const DELETING: &str = "Waiting for Nova to delete test servers";

/// One step of the test of a host.
#[derive(Debug)]
pub(super) struct TestHost {
    pub(super) test: SmokeTest,
    pub(super) host: Asked,
    pub(super) zone: Option<String>,
    pub(super) now: Timestamp,
}

/// What a step has come to.
enum Step {
    Passed,
    Waiting,
    Failed(String),
}

#[async_trait]
impl Action for TestHost {
    fn key(&self) -> String {
        self.test.key(&self.host)
    }

    fn describe(&self) -> String {
        format!("test {} with a server of its own", self.host.name)
    }

    async fn run(&self) -> Result<Progress> {
        let settings = &self.test.settings;
        let known = lock(&self.test.paces).get(&self.host.name).cloned();
        if let Some((at, said)) = known
            && Instant::now() < at
        {
            return Ok(Progress::Underway(said));
        }
        let (pause, said) = match self.step().await {
            Ok(Step::Passed) => {
                self.test.forget_pace(&self.host);
                return Ok(Progress::Done);
            }
            Ok(Step::Waiting) => (settings.poll_interval, RUNNING.to_owned()),
            Ok(Step::Failed(why)) => (settings.retry_interval, why),
            Err(error) => {
                tracing::warn!(hypervisor = self.host.name, error = %Chain(&error), "the smoke test failed");
                (settings.retry_interval, acting::words(&Chain(&error).to_string()))
            }
        };
        lock(&self.test.paces).insert(self.host.name.clone(), (Instant::now() + pause, said.clone()));
        Ok(Progress::Underway(said))
    }
}

impl TestHost {
    async fn step(&self) -> Result<Step> {
        let test = &self.test;
        let name = test.server_name(&self.host);
        let mut own = None;
        for server in test.servers_of(&self.host).await? {
            let is_deleting = server.task == Some(TaskState::Deleting);
            if server.name == name && own.is_none() {
                own = Some(server);
            } else if !is_deleting {
                // Of an earlier life, or made twice because an answer was lost.
                test.delete(&server.id).await?;
            }
        }
        let Some(server) = own else {
            let server = test.new_server(&self.host, self.zone.as_deref()).await?;
            test.nova.create_server(&server).await?;
            return Ok(Step::Waiting);
        };
        if server.task == Some(TaskState::Deleting) {
            let late = self.test.overstays(&server, self.now);
            return Ok(late.map_or(Step::Waiting, |since| Step::Failed(still_deleting(&server, since))));
        }
        match &server.status {
            ServerStatus::Build => self.wait_for(&server, "being built").await,
            ServerStatus::Active => self.listen(&server).await,
            ServerStatus::Error => {
                let fault = match server.fault.clone() {
                    Some(fault) => fault,
                    None => {
                        test.nova.server(&server.id).await?.fault.unwrap_or_else(|| "(Nova does not say why)".into())
                    }
                };
                self.give_up(&server, format!("Server ended up in error state: {fault}")).await
            }
            other if server.task.is_none() => {
                self.give_up(&server, format!("Server is {other:?} instead of running")).await
            }
            other => self.wait_for(&server, &format!("{other:?}")).await,
        }
    }

    /// Waits for a server that is not running yet, and not for ever.
    async fn wait_for(&self, server: &Server, state: &str) -> Result<Step> {
        match overdue(server.created_at, self.test.settings.build_timeout, self.now) {
            Some(since) => self.give_up(server, format!("Server of {since} is still {state}")).await,
            None => Ok(Step::Waiting),
        }
    }

    /// Whether the server has said its name.
    async fn listen(&self, server: &Server) -> Result<Step> {
        let settings = &self.test.settings;
        if let Some(elsewhere) = server.host.as_ref().filter(|host| **host != self.host.host) {
            let why = format!("Server was put on {elsewhere} instead of {}", self.host.host);
            return self.give_up(server, why).await;
        }
        let console = self.test.nova.console_output(&server.id, settings.console_lines).await;
        if console.as_ref().is_ok_and(|text| shows_name(text, &server.name)) {
            self.test.delete(&server.id).await?;
            return Ok(Step::Passed);
        }
        let since = overdue(server.launched_at, settings.timeout, self.now);
        let since = since.or_else(|| self.test.overstays(server, self.now).filter(|_| server.launched_at.is_none()));
        match (since, console) {
            (Some(since), _) => self.give_up(server, format!("timeout waiting for console output since {since}")).await,
            (None, Ok(_)) => Ok(Step::Waiting),
            (None, Err(error)) => Err(error),
        }
    }

    async fn give_up(&self, server: &Server, why: String) -> Result<Step> {
        tracing::warn!(hypervisor = self.host.name, server = %server.id, why, "the smoke test failed");
        self.test.delete(&server.id).await?;
        Ok(Step::Failed(acting::words(&why)))
    }
}

/// Whether a console shows who runs there: by the name we gave, or by the one that Nova made of it for the guest.
fn shows_name(console: &str, server: &str) -> bool {
    let guest = guest_hostname(server);
    console.contains(server) || !guest.is_empty() && console.contains(&guest)
}

fn still_deleting(server: &Server, since: Timestamp) -> String {
    format!("Server {} of {since} is still being deleted", server.id)
}

/// Deletes all test servers of a host.
#[derive(Debug)]
pub(in super::super) struct CleanUp {
    pub(super) test: SmokeTest,
    pub(super) cloud: Cloud,
    pub(super) host: Asked,
    pub(super) gone: bool,
    /// Not with the login of the tests: those on the host only, which are all that ours sees.
    pub(super) own_login: bool,
    pub(super) now: Timestamp,
}

impl CleanUp {
    pub(in super::super) fn with_own_login(self) -> Self {
        Self { own_login: true, ..self }
    }

    pub(in super::super) fn identity(&self) -> String {
        let what = if self.gone { "remove" } else { "delete" };
        format!("onboarding/{what} test servers of {}", self.host.name)
    }

    /// Whether Nova has given the host's compute agent up.
    fn is_dead(&self) -> bool {
        let region = self.cloud.view.snapshot();
        region.service_on(&self.host.host).is_some_and(|service| service.state == ServiceState::Down)
    }

    /// The test servers on the host, by our own login. It sees all servers there, and the names of the tests are exact.
    async fn on_host(&self) -> Result<Vec<Server>> {
        let mut here = self.cloud.nova.servers_on(&self.host.host).await?;
        here.retain(|server| self.test.is_of(&self.host, &server.name) && server.status != ServerStatus::Deleted);
        Ok(here)
    }

    async fn in_project(&self) -> Result<Progress> {
        self.delete_all(self.test.nova.as_ref(), &self.test.servers_of(&self.host).await?).await
    }

    /// Deletes these, with a login that may do so.
    async fn delete_all(&self, login: &dyn NovaClient, servers: &[Server]) -> Result<Progress> {
        let is_deleting = |server: &&Server| server.task == Some(TaskState::Deleting);
        // A host that died before it heard of a deletion never does it. Nova does once it knows, and is told again.
        let again = self.is_dead();
        for server in servers.iter().filter(|server| again || !is_deleting(server)) {
            match login.delete_server(&server.id).await {
                Err(error) if error.is_not_found() => {}
                answer => answer?,
            }
        }
        if servers.is_empty() || !self.gone {
            return Ok(Progress::Done);
        }
        let late = |server| Some(still_deleting(server, self.test.overstays(server, self.now)?));
        let late = servers.iter().filter(is_deleting).find_map(late);
        Ok(Progress::Underway(late.unwrap_or_else(|| DELETING.to_owned())))
    }
}

#[async_trait]
impl Action for CleanUp {
    fn key(&self) -> String {
        self.identity()
    }

    fn describe(&self) -> String {
        format!("delete the test servers of {}", self.host.name)
    }

    async fn run(&self) -> Result<Progress> {
        self.test.forget_pace(&self.host);
        if self.own_login {
            return self.delete_all(self.cloud.nova.as_ref(), &self.on_host().await?).await;
        }
        let error = match self.in_project().await {
            Ok(progress) => return Ok(progress),
            Err(error) => error,
        };
        // A login that does not work must not keep a host from leaving.
        let here = self.on_host().await?;
        if !here.is_empty() && error.is_transient() {
            return Err(error);
        }
        tracing::warn!(
            hypervisor = self.host.name, servers = here.len(), error = %Chain(&error),
            "cannot delete test servers with the login of the tests: those on the host are deleted with our own"
        );
        self.delete_all(self.cloud.nova.as_ref(), &here).await
    }
}
