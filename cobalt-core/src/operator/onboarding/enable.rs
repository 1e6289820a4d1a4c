//! The action that lets Nova's scheduler use a host.

use async_trait::async_trait;

use crate::{
    Error, Result,
    ids::{HostName, ServiceId},
    nova::ComputeService,
    operator::{Action, Cloud, Progress},
};

/// Enables the compute service of a host in its test aggregates, and takes back that it was declared down: it is a new
/// host, and what was declared of an old one of its name is over.
#[derive(Debug)]
pub(super) struct EnableService {
    cloud: Cloud,
    host: HostName,
    id: ServiceId,
}

impl EnableService {
    pub(super) fn new(cloud: &Cloud, service: &ComputeService) -> Self {
        Self { cloud: cloud.clone(), host: service.host.clone(), id: service.id.clone() }
    }

    pub(super) fn identity(&self) -> String {
        format!("onboarding/enable {}", self.id)
    }
}

#[async_trait]
impl Action for EnableService {
    fn key(&self) -> String {
        self.identity()
    }

    fn describe(&self) -> String {
        format!("enable the compute service of {} for its smoke test", self.host)
    }

    async fn run(&self) -> Result<Progress> {
        let nova = &self.cloud.nova;
        let found = nova.service_on(&self.host).await?;
        if found.id != self.id {
            let what = format!("enable service {} of {}", self.id, self.host);
            return Err(Error::conflict(what, format!("it is service {} by now", found.id)));
        }
        if found.enabled && !found.forced_down {
            self.cloud.view.learn_service(found);
            return Ok(Progress::Done);
        }
        if found.forced_down {
            nova.force_service_down(&self.id, false).await?;
        }
        if !found.enabled {
            nova.enable_service(&self.id).await?;
        }
        self.cloud.view.learn_service(nova.service_on(&self.host).await?);
        Ok(Progress::Done)
    }
}
