//! `cobaltctl plan`: what a drain would do, before anybody is harmed. It reads, and writes nothing.

use std::{fmt::Write as _, io::Write as _, process::ExitCode, time::Duration};

use clap::{Subcommand, ValueEnum};
use cobalt_core::{
    ids::HostName,
    operator::eviction::{self, BlockMigrationWord, EvictionPlan, PlanOptions, PlannedMove},
    runtime::{args::duration, program::finish, shutdown::TaskError},
};
use cobalt_openstack::{Cloud, OpenStack};
use comfy_table::{ContentArrangement, Table, TableStyle};

/// The answer is there, and it is bad news, as in the other verbs.
const WOULD_NOT: u8 = 3;

const HELP: &str = "The cloud is found as every OpenStack client finds it: OS_CLOUD and clouds.yaml, or OS_AUTH_URL, \
OS_USERNAME, OS_PASSWORD, … Reading services, hypervisors and Placement wants an administrator.

Exit codes:
  0  the host would be empty in the end
  1  there is no answer: no login, no such host, the cloud could not be reached
  2  the command line makes no sense
  3  the answer is there, and it is bad news: something would stay on the host";

/// Says what would happen, and does nothing.
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// What to plan.
    #[command(subcommand)]
    pub command: Command,
}

/// What can be planned.
#[derive(Subcommand, Clone, Debug)]
pub enum Command {
    /// Say which server of a host would go where, or why it would stay
    Evict(Evict),
}

/// Says which server of a host would go where, or why it would stay.
///
/// A forecast by Placement's candidates, the hosts' state, their aggregates and the server groups; the scheduler has the
/// last word on the day.
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = HELP)]
pub struct Evict {
    /// The host, by its name in Nova
    #[arg(value_name = "HOST")]
    pub host: String,

    /// How to print the answer
    #[arg(long, short, value_enum, default_value_t, value_name = "FORMAT")]
    pub output: Output,

    /// How many servers leave at a time, for the estimated time
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub concurrency: u16,

    /// How fast memory and disks are copied, per server, in MB per second
    #[arg(long, default_value_t = 500, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub mb_per_second: u64,

    /// What a move takes besides
    #[arg(long, default_value = "10s", value_parser = duration, value_name = "DURATION")]
    pub overhead: Duration,

    /// Whether live migrations copy local disks
    #[arg(long, value_enum, default_value_t, value_name = "WORD")]
    pub block_migration: BlockMigrationWord,
}

/// How to print.
#[derive(ValueEnum, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Output {
    /// For people
    #[default]
    Table,
    /// For programs
    Json,
}

/// Does what was asked for.
pub fn main(args: Args) -> ExitCode {
    let Command::Evict(args) = args.command;
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return finish(Err(error.into())),
    };
    match runtime.block_on(evict(&args)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(WOULD_NOT),
        Err(error) if super::is_closed_pipe(error.as_ref()) => ExitCode::SUCCESS,
        Err(error) => finish(Err(error)),
    }
}

async fn evict(args: &Evict) -> Result<bool, TaskError> {
    let openstack = OpenStack::connect(&Cloud::from_env()?).await?;
    let options = PlanOptions {
        block_migration: args.block_migration.into(),
        concurrency: args.concurrency.into(),
        mb_per_second: args.mb_per_second,
        overhead: args.overhead,
    };
    let host = HostName::from(args.host.as_str());
    let plan = eviction::plan(&openstack.nova(), &openstack.placement(), &host, &options).await?;
    let text = match args.output {
        Output::Table => table(&plan),
        Output::Json => format!("{}\n", serde_json::to_string_pretty(&plan)?),
    };
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush())?;
    Ok(plan.would_succeed)
}

/// Names come from people we do not know: they must not move anybody's cursor.
fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

fn table(plan: &EvictionPlan) -> String {
    let mut out = String::new();
    let (all, stay) = (plan.moves.len(), plan.stuck().count());
    let _ = match stay {
        0 => writeln!(out, "{}: all {all} servers would leave, in about {}", plan.host, length(plan.seconds)),
        _ => writeln!(out, "{}: {stay} of {all} servers would stay", plan.host),
    };
    for note in &plan.notes {
        let _ = writeln!(out, "{}", plain(note));
    }
    if plan.moves.is_empty() {
        return out;
    }
    let mut table = Table::new();
    table.load_style(TableStyle::new()).set_content_arrangement(ContentArrangement::Disabled).force_no_tty();
    table.set_header(["SERVER", "NAME", "HOW", "TO", "SECONDS", "KNOW BEFORE"]);
    for one in &plan.moves {
        table.add_row(row(one));
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 1));
    }
    let _ = writeln!(out, "\n{}", table.trim_fmt());
    out
}

fn row(one: &PlannedMove) -> [String; 6] {
    let dash = || "-".to_owned();
    let mut know: Vec<String> = one.why_not.iter().map(|why| format!("STAYS: {}", plain(why))).collect();
    know.extend(one.risks.iter().map(ToString::to_string));
    [
        one.id.to_string(),
        plain(&one.name),
        one.how.to_string(),
        one.target.as_ref().map_or_else(dash, ToString::to_string),
        if one.why_not.is_some() { dash() } else { one.seconds.to_string() },
        if know.is_empty() { dash() } else { know.join(", ") },
    ]
}

fn length(seconds: u64) -> String {
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, seconds) => format!("{seconds} s"),
        (0, minutes, seconds) => format!("{minutes} min {seconds} s"),
        (hours, minutes, _) => format!("{hours} h {minutes} min"),
    }
}
