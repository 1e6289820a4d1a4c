//! Which kind of host this is.

use std::sync::Arc;

use cobalt_core::{Result, host::HostSystem};
use tracing::info;

use crate::{options::Options, plain::PlainHost, systemd::Systemd};

/// Finds out what the host has: [`Systemd`] where systemd is, or will be, on the system bus, else [`PlainHost`].
///
/// | Found | Chosen |
/// |---|---|
/// | an address was given | [`Systemd`], even if nobody listens there yet |
/// | a bus with systemd on it | [`Systemd`] |
/// | a bus without systemd | [`PlainHost`] |
/// | no bus, but `/run/systemd/system`: systemd is starting | [`Systemd`] |
/// | none of these | [`PlainHost`] |
pub async fn detect(options: &Options) -> Result<Arc<dyn HostSystem>> {
    let given = options.address.is_some();
    let booted = options.root.join("run/systemd/system").is_dir();
    if given || booted || options.sockets().iter().any(|socket| socket.exists()) {
        let systemd = Systemd::connect(options).await?;
        if given || systemd.is_present().await.unwrap_or(booted) {
            info!("the host has systemd");
            return Ok(Arc::new(systemd));
        }
    }
    info!("the host has no systemd that we can see: no units, no delayed shutdowns");
    Ok(Arc::new(PlainHost::new(options)))
}
