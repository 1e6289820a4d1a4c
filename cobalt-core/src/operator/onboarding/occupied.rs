//! Whether servers are on a host that is to be tested anew.

use async_trait::async_trait;

use super::smoke_test::{Asked, SmokeTest};
use crate::{
    Result,
    ids::HostName,
    operator::{Action, Cloud, Progress, Snapshot},
};

/// What is said of a host with servers. Not how many: it changes, and nothing follows from it.
const OCCUPIED: &str = "Not onboarded again while servers are on the host, because a test takes it out of its aggregates: \
                        drain it (spec.maintenance=manual), or skip the tests to have it in service as it is";

/// Looks for servers on a host that are no tests of it. What the view knows of them is their ids.
#[derive(Debug)]
pub(super) struct LookForOthers {
    cloud: Cloud,
    host: HostName,
    test: Option<(SmokeTest, Asked)>,
}

impl LookForOthers {
    /// On the host that Nova calls so.
    pub(super) fn new(cloud: &Cloud, host: HostName, seen: &Snapshot, test: Option<&SmokeTest>) -> Self {
        Self { cloud: cloud.clone(), host, test: test.cloned().zip(Asked::of(seen)) }
    }
}

#[async_trait]
impl Action for LookForOthers {
    fn key(&self) -> String {
        "onboarding/look for servers of others".to_owned()
    }

    fn describe(&self) -> String {
        format!("look for servers on {} before it is tested", self.host)
    }

    async fn run(&self) -> Result<Progress> {
        let servers = self.cloud.nova.servers_on(&self.host).await?;
        let is_test = |name: &str| self.test.as_ref().is_some_and(|(test, asked)| test.is_of(asked, name));
        Ok(if servers.iter().all(|server| is_test(&server.name)) {
            Progress::Done
        } else {
            Progress::Underway(OCCUPIED.to_owned())
        })
    }
}
