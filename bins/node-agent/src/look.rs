//! One look at the host, for people at a shell.

use std::{io::Write as _, time::Duration};

use clap::ValueEnum;
use cobalt_core::{
    agent::once as ask,
    runtime::{
        args::{LogArgs, duration},
        clock::Clock,
        shutdown::TaskError,
        telemetry,
    },
};

use super::{Args, backend::Kind};

const HEADING: &str = "One look";

/// What to print instead of running.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct LookArgs {
    /// Print what would be published and end; no cluster is needed. Fails if libvirt cannot be reached
    #[arg(long, help_heading = HEADING)]
    pub(crate) once: bool,

    /// How to print it
    #[arg(long, value_enum, default_value_t, requires = "once", help_heading = HEADING)]
    output: Output,

    /// How long to wait for libvirt
    #[arg(long, default_value = "10s", value_parser = duration, value_name = "DURATION", requires = "once", help_heading = HEADING)]
    once_timeout: Duration,
}

#[derive(ValueEnum, Clone, Copy, Debug, Default)]
enum Output {
    /// JSON.
    #[default]
    Json,
    /// YAML.
    Yaml,
}

/// Prints what an agent would publish.
pub(crate) async fn once(args: Args) -> Result<(), TaskError> {
    let Args { look, backend, agent } = args;
    // One look is nobody's trace.
    let log = LogArgs { otlp_endpoint: None, ..agent.earlier.log(&agent.log) };
    drop(telemetry::init(&log, "cobalt-node-agent")?);
    let machine = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let node = agent.node(machine.trim());
    let (opened, uri) = match backend.kind() {
        Kind::Simulated => (backend.simulated(&node)?, None),
        Kind::Libvirt => {
            let uri = agent.libvirt().uri(None);
            (backend.libvirt(&uri, &agent.libvirt, agent.call_timeout).await?, Some(uri))
        }
    };
    let config = agent.config(&node, uri.as_deref());
    let seen = ask(opened.0, opened.1, &config, &Clock::system(), look.once_timeout).await;
    let mut text = match look.output {
        Output::Json => serde_json::to_string_pretty(&seen.hypervisor)?,
        Output::Yaml => serde_saphyr::to_string(&seen.hypervisor)?,
    };
    if !text.ends_with('\n') {
        text.push('\n');
    }
    std::io::stdout().write_all(text.as_bytes())?;
    match seen.disconnected {
        None => Ok(()),
        Some(why) => Err(format!("reach the hypervisor: {why}").into()),
    }
}
