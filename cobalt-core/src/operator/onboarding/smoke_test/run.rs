//! What is done: a step of the test, and the end of all of its servers.

use async_trait::async_trait;
use jiff::Timestamp;
use tokio::time::Instant;

use super::{Asked, SmokeTest, SmokeTestSettings};
use crate::{
    Result,
    nova::{Server, ServerStatus, TaskState},
    operator::{Action, Cloud, Progress, acting, onboarding::RUNNING},
    runtime::{lock, shutdown::Chain},
};

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
            return Ok(Step::Waiting);
        }
        match &server.status {
            ServerStatus::Build => Ok(Step::Waiting),
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
            _ => Ok(Step::Waiting),
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
        if console.as_ref().is_ok_and(|text| text.contains(&server.name)) {
            self.test.delete(&server.id).await?;
            return Ok(Step::Passed);
        }
        let since = server.launched_at.filter(|launched| self.now.duration_since(*launched) > timeout(settings));
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

fn timeout(settings: &SmokeTestSettings) -> jiff::SignedDuration {
    jiff::SignedDuration::try_from(settings.timeout).unwrap_or(jiff::SignedDuration::MAX)
}

/// Deletes all test servers of a host.
#[derive(Debug)]
pub(in super::super) struct CleanUp {
    pub(super) test: SmokeTest,
    pub(super) cloud: Cloud,
    pub(super) host: Asked,
    pub(super) gone: bool,
}

impl CleanUp {
    pub(in super::super) fn identity(&self) -> String {
        let what = if self.gone { "remove" } else { "delete" };
        format!("onboarding/{what} test servers of {}", self.host.name)
    }

    async fn in_project(&self) -> Result<Progress> {
        let mut left = 0;
        for server in self.test.servers_of(&self.host).await? {
            if server.task != Some(TaskState::Deleting) {
                self.test.delete(&server.id).await?;
            }
            left += usize::from(self.gone);
        }
        if left == 0 {
            Ok(Progress::Done)
        } else {
            Ok(Progress::Underway("Waiting for Nova to delete test servers".into()))
        }
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
        let error = match self.in_project().await {
            Ok(progress) => return Ok(progress),
            Err(error) => error,
        };
        // A login that does not work must not keep a host from leaving. Our own sees all servers of the host.
        let here = self.cloud.nova.servers_on(&self.host.host).await?;
        if here.iter().any(|server| self.test.is_of(&self.host, &server.name)) {
            return Err(error);
        }
        tracing::warn!(
            hypervisor = self.host.name, error = %Chain(&error),
            "cannot look for test servers in their project; there is none on the host"
        );
        Ok(Progress::Done)
    }
}
