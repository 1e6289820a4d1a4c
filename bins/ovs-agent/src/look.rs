//! One look at the switch, for people at a shell.

use std::{io::Write as _, time::Duration};

use clap::ValueEnum;
use cobalt_core::{
    agent::ovs::once as ask,
    runtime::{
        args::{LogArgs, duration},
        clock::Clock,
        shutdown::TaskError,
        telemetry,
    },
};

use super::{Args, table};

const HEADING: &str = "One look";

/// What to print instead of running.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct LookArgs {
    /// Print what would be published and end; no cluster is needed. Fails if the switch cannot be looked at
    #[arg(long, help_heading = HEADING)]
    pub(crate) once: bool,

    /// How to print it
    #[arg(long, value_enum, default_value_t, requires = "once", help_heading = HEADING)]
    output: Output,

    /// How long to wait for the switch's database
    #[arg(long, default_value = "10s", value_parser = duration, value_name = "DURATION", requires = "once", help_heading = HEADING)]
    once_timeout: Duration,
}

#[derive(ValueEnum, Clone, Copy, Debug, Default)]
enum Output {
    /// JSON.
    #[default]
    Json,
    /// Tables for people.
    Table,
}

/// Prints what an agent would publish.
pub(crate) async fn once(args: Args) -> Result<(), TaskError> {
    let Args { look, inspector, agent } = args;
    // One look is nobody's trace.
    drop(telemetry::init(&LogArgs { otlp_endpoint: None, ..agent.log.clone() }, "cobalt-ovs-agent")?);
    let machine = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let node = agent.node(machine.trim());
    let switch = inspector.open(&node).await?;
    let seen = ask(switch, &agent.config(&node), &Clock::system(), look.once_timeout).await;
    let mut text = match look.output {
        Output::Json => serde_json::to_string_pretty(&seen.node)?,
        Output::Table => table::of(&node, &seen.status),
    };
    if !text.ends_with('\n') {
        text.push('\n');
    }
    std::io::stdout().write_all(text.as_bytes())?;
    match seen.disconnected {
        None => Ok(()),
        Some(why) => Err(format!("look at the switch: {why}").into()),
    }
}
