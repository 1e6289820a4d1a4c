//! The steps of a drain, done. Each looks again right before it acts, because what was decided on is seconds old.

use async_trait::async_trait;

use super::{
    decide::Step,
    movability::{self, Movability},
};
use crate::{
    Error, Result,
    api::MoveKind,
    ids::HostName,
    nova::{BlockMigration, ServerStatus},
    operator::{Action, Cloud, Progress},
};

/// One step on one host.
#[derive(Debug)]
pub(super) struct Act {
    pub(super) cloud: Cloud,
    pub(super) host: HostName,
    pub(super) block: BlockMigration,
    pub(super) step: Step,
}

fn changed() -> Progress {
    Progress::Underway("it has changed meanwhile".into())
}

#[async_trait]
impl Action for Act {
    fn key(&self) -> String {
        self.step.key()
    }

    fn describe(&self) -> String {
        let host = &self.host;
        match &self.step {
            Step::Start { server, how: MoveKind::Cold, target } => {
                let to = target.as_ref().map(|target| format!(" to {target}")).unwrap_or_default();
                format!("move server {server}, which is shut off, away from {host}{to}")
            }
            Step::Start { server, target: Some(target), .. } => {
                format!("live-migrate server {server} from {host} to {target}")
            }
            Step::Start { server, .. } => format!("live-migrate server {server} away from {host}"),
            Step::Confirm { server } => format!("confirm the move of server {server}"),
            Step::Abort { server, incoming: true, .. } => format!("stop the migration of server {server} to {host}"),
            Step::Abort { server, .. } => format!("stop the migration of server {server} away from {host}"),
        }
    }

    async fn run(&self) -> Result<Progress> {
        let nova = &self.cloud.nova;
        match &self.step {
            Step::Start { server: id, how, target } => {
                let server = nova.server(id).await?;
                let here = server.host.as_ref() == Some(&self.host);
                if !here || movability::of(&server, self.block) != Movability::Ready(how.clone()) {
                    return Ok(changed());
                }
                match how {
                    MoveKind::Cold => nova.cold_migrate(id, target.as_ref()).await?,
                    _ => nova.live_migrate(id, target.as_ref(), self.block).await?,
                }
                Ok(Progress::Done)
            }
            Step::Confirm { server: id } => {
                let server = nova.server(id).await?;
                if server.status != ServerStatus::VerifyResize || server.task.is_some() {
                    return Ok(changed());
                }
                nova.confirm_migration(id).await?;
                Ok(Progress::Done)
            }
            Step::Abort { server, migration, .. } => match nova.abort_migration(server, migration).await {
                Ok(()) => Ok(Progress::Done),
                // Over, or past the point of return: the next look tells which.
                Err(Error::NotFound { .. }) => Ok(changed()),
                Err(Error::Conflict { reason, .. }) => Ok(Progress::Underway(reason)),
                Err(error) => Err(error),
            },
        }
    }
}
