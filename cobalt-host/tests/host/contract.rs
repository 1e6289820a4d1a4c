//! The contract of the seam, on both implementations.

use std::sync::Arc;

use async_trait::async_trait;
use cobalt_core::{
    contract::{self, Provoked, host::HostFixture},
    host::HostSystem,
};
use cobalt_host::{Options, PlainHost, Systemd};

use crate::rig::Rig;

struct MockedHost {
    rig: Rig,
    host: Arc<Systemd>,
    shutdown: bool,
}

#[async_trait]
impl HostFixture for MockedHost {
    fn host(&self) -> Arc<dyn HostSystem> {
        self.host.clone()
    }

    fn unit(&self) -> Provoked<String> {
        Ok("libvirtd.service".into())
    }

    async fn change_unit(&mut self) -> Provoked<()> {
        self.rig.set_unit("libvirtd.service", "loaded", "failed").await;
        Ok(())
    }

    async fn startable_unit(&mut self) -> Provoked<String> {
        self.rig.set_unit("systemd-sysupdate@1877.3.service", "loaded", "inactive").await;
        Ok("systemd-sysupdate@1877.3.service".into())
    }

    async fn announce_shutdown(&mut self) -> Provoked<()> {
        self.shutdown = true;
        self.rig.announce_shutdown(true).await;
        Ok(())
    }

    async fn cancel_shutdown(&mut self) -> Provoked<()> {
        self.shutdown = false;
        self.rig.announce_shutdown(false).await;
        Ok(())
    }

    async fn still_runs(&mut self) -> Provoked<bool> {
        Ok(!self.shutdown || !self.rig.inhibitors().await.is_empty())
    }
}

#[tokio::test]
async fn systemd_keeps_the_contract() {
    let Some(rig) = Rig::host("systemd_keeps_the_contract").await else { return };
    let host = Arc::new(rig.systemd().await);
    let report = contract::host::run(&mut MockedHost { rig, host, shutdown: false }).await;
    report.assert_complete();
    assert_eq!(report.passed(), 5, "{report}");
}

struct Plain(Arc<PlainHost>);

impl HostFixture for Plain {
    fn host(&self) -> Arc<dyn HostSystem> {
        self.0.clone()
    }
}

#[tokio::test]
async fn a_plain_host_keeps_the_contract() {
    let host = Arc::new(PlainHost::new(&Options::default()));
    let report = contract::host::run(&mut Plain(host)).await;
    report.assert_complete();
    assert_eq!(report.passed(), 4, "{report}");
}
