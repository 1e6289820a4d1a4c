//! Migrate a domain to another host and watch how far it is; or watch a job that somebody else has started.
//!
//!     cargo run -p cobalt-examples --example migrate_watch -- web qemu+tcp://10.0.0.8/system
//!     cargo run -p cobalt-examples --example migrate_watch -- --connect qemu+tcp://10.0.0.7/system web
//!
//! The daemons do the work among themselves: this program waits and looks. Ctrl-C aborts the migration that it started,
//! and leaves those of others alone.

use std::{
    io::{IsTerminal, Write},
    time::Duration,
};

use anyhow::{Context, bail};
use clap::Parser;
use cobalt_libvirt::{
    JobQuery, Libvirt, MigrateOptions,
    error::code,
    rpc::{DomainRef, JobKind, JobStats},
};

/// Migrates a domain and draws its progress. Without a destination it watches the job that runs.
#[derive(Parser)]
struct Args {
    /// Name of the domain
    domain: String,
    /// Where to: a URI as the source's daemon reaches it, such as qemu+tcp://HOST/system
    destination: Option<String>,
    /// Where the domain is
    #[arg(long, default_value = "qemu:///system", value_name = "URI")]
    connect: String,
    /// The definition moves, too
    #[arg(long)]
    persist: bool,
    /// Copy the disks; they must exist over there
    #[arg(long)]
    copy_storage: bool,
    /// Even if libvirt fears for the disks
    #[arg(long = "unsafe")]
    risky: bool,
    /// At most so many MiB per second
    #[arg(long, value_name = "MIB")]
    bandwidth: Option<u64>,
    /// How often to look, in milliseconds
    #[arg(long, default_value_t = 250, value_name = "MS", value_parser = clap::value_parser!(u64).range(10..))]
    every: u64,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let screen = Screen { redraw: std::io::stdout().is_terminal(), out: std::io::stdout() };
    let interrupted = async {
        // Without a handler for the signal there is no interruption to wait for.
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    };
    run(&args, screen, interrupted).await
}

async fn run(args: &Args, mut screen: Screen<impl Write>, interrupted: impl Future<Output = ()>) -> anyhow::Result<()> {
    let libvirt = Libvirt::connect(&args.connect).await?;
    let domain = libvirt.domain_by_name(&args.domain).await?;
    let every = Duration::from_millis(args.every);
    let Some(destination) = &args.destination else {
        tokio::select! {
            ended = watch(&libvirt, &domain, every, &mut screen) => ended?,
            () = interrupted => return Ok(()),
        }
        return last_job(&libvirt, &domain, &mut screen).await;
    };
    let options = MigrateOptions {
        persist: args.persist,
        undefine_source: args.persist,
        copy_storage: args.copy_storage,
        unsafe_: args.risky,
        bandwidth: args.bandwidth,
        ..MigrateOptions::live(destination)
    };
    // A connection of its own: the call is unanswered until the end, and a daemon reads only a few calls ahead.
    let mover = Libvirt::connect(&args.connect).await?;
    let moving = mover.migrate_p2p(&domain, &options);
    let looking = async {
        loop {
            // The job begins a little after the call, and ends a little before its answer.
            watch(&libvirt, &domain, every, &mut screen).await?;
            tokio::time::sleep(every).await;
        }
    };
    let abort = async {
        interrupted.await;
        libvirt.abort_job(&domain).await?;
        std::future::pending().await
    };
    let ended = tokio::select! {
        ended = moving => ended,
        error = looking => return error,
        error = abort => return error,
    };
    match ended {
        Ok(()) => screen.end(&format!("{} is at {destination} now", domain.name)),
        Err(error) if error.code() == Some(code::OPERATION_ABORTED) => bail!("the migration was aborted"),
        Err(error) => Err(error.into()),
    }
}

/// Draws a job until there is none any more.
async fn watch(
    libvirt: &Libvirt,
    domain: &DomainRef,
    every: Duration,
    screen: &mut Screen<impl Write>,
) -> anyhow::Result<()> {
    loop {
        match libvirt.job_stats(domain, JobQuery::Running).await {
            Ok(stats) if stats.kind.is_running() => screen.draw(&progress(&stats))?,
            Ok(_) => return Ok(()),
            // It has left, or stands still here: either way nothing runs on it.
            Err(error) if error.is_no_domain() || error.code() == Some(code::OPERATION_INVALID) => return Ok(()),
            Err(error) if error.code() == Some(code::OPERATION_UNSUPPORTED) => {
                return Err(error).context("only the daemon that a domain comes from knows how far its migration is");
            }
            Err(error) => return Err(error.into()),
        }
        tokio::time::sleep(every).await;
    }
}

async fn last_job(libvirt: &Libvirt, domain: &DomainRef, screen: &mut Screen<impl Write>) -> anyhow::Result<()> {
    let said = match libvirt.job_stats(domain, JobQuery::CompletedKeep).await {
        Ok(JobStats { kind: JobKind::Completed, params }) => {
            let number = |name| params.get_u64(name).unwrap_or_default();
            format!(
                "the last job took {} ms, the guest stood still for {} ms",
                number("time_elapsed"),
                number("downtime")
            )
        }
        Ok(_) => format!("{} has no job", domain.name),
        Err(error) if error.is_no_domain() => format!("{} is not here any more", domain.name),
        Err(error) => return Err(error.into()),
    };
    screen.end(&said)
}

/// One line: a bar, the part that is done, the amounts, the speed, the time.
fn progress(stats: &JobStats) -> String {
    const WIDTH: u64 = 30;
    let number = |name| stats.params.get_u64(name).unwrap_or_default();
    let (total, left) = (number("data_total"), number("data_remaining"));
    // What the guest writes anew has to be copied again, so "left" may grow; it is never more than all.
    let done = total.saturating_sub(left);
    let part = |of: u64| (of * done).checked_div(total).unwrap_or(0);
    let bar: String = (0..WIDTH).map(|cell| if cell < part(WIDTH) { '#' } else { '.' }).collect();
    format!(
        "[{bar}] {:>3} %  {} of {} MiB  {} MiB/s  round {}  {}.{} s",
        part(100),
        done >> 20,
        total >> 20,
        number("memory_bps") >> 20,
        number("memory_iteration"),
        number("time_elapsed") / 1000,
        number("time_elapsed") / 100 % 10,
    )
}

/// On a terminal a line is drawn over; in a file each is kept.
struct Screen<W> {
    redraw: bool,
    out: W,
}

impl<W: Write> Screen<W> {
    fn draw(&mut self, line: &str) -> anyhow::Result<()> {
        if self.redraw {
            write!(self.out, "\r\x1b[K{line}")?;
        } else {
            writeln!(self.out, "{line}")?;
        }
        Ok(self.out.flush()?)
    }

    fn end(&mut self, line: &str) -> anyhow::Result<()> {
        self.draw(line)?;
        if self.redraw {
            writeln!(self.out)?;
        }
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use cobalt_libvirt::{
        testing::{Answer, Fault, Recording, Server},
        typed::TypedParams,
        xdr,
    };

    use super::*;

    const MIGRATE: u32 = 305;
    const JOB_STATS: u32 = 298;

    fn job(kind: JobKind, params: TypedParams) -> Answer {
        Answer::ok(xdr::to_bytes(&JobStats { kind, params }))
    }

    async fn server() -> (Server, String) {
        let recorded = concat!(env!("CARGO_MANIFEST_DIR"), "/../cobalt-libvirt/tests/recorded/qemu-9.0.jsonl");
        let server = Server::replay(Recording::parse(&std::fs::read_to_string(recorded).unwrap()).unwrap());
        server.start_domain("web", "55555555-bbbb-4000-8000-000000000001").unwrap();
        let uri = format!("qemu+tcp://{}/system", server.listen_tcp().await.unwrap());
        (server, uri)
    }

    async fn told(arguments: &[&str]) -> (anyhow::Result<()>, String) {
        let args = Args::parse_from(["migrate_watch", "--every", "10"].iter().chain(arguments));
        let mut out = Vec::new();
        let ended = run(&args, Screen { redraw: false, out: &mut out }, std::future::pending()).await;
        (ended, String::from_utf8(out).unwrap())
    }

    #[tokio::test]
    async fn a_running_job_is_drawn_until_it_is_over() {
        let (server, uri) = server().await;
        let half = TypedParams::builder().with("data_total", 64_u64 << 20).with("data_remaining", 32_u64 << 20).build();
        server.next(JOB_STATS, job(JobKind::Unbounded, half));
        server.next(JOB_STATS, job(JobKind::None, TypedParams::builder().build()));
        let end = TypedParams::builder().with("time_elapsed", 1200_u64).with("downtime", 17_u64).build();
        server.next(JOB_STATS, job(JobKind::Completed, end));
        let (ended, text) = told(&["--connect", &uri, "web"]).await;
        ended.unwrap();
        assert!(text.contains("[###############...............]  50 %  32 of 64 MiB"), "{text}");
        assert!(text.ends_with("took 1200 ms, the guest stood still for 17 ms\n"), "{text}");
    }

    #[tokio::test]
    async fn a_migration_that_succeeds_says_where_the_domain_is() {
        let (server, uri) = server().await;
        server.next(MIGRATE, Answer::ok(xdr::to_bytes(&0_u32)));
        let (ended, text) = told(&["--connect", &uri, "web", "qemu+tcp://other/system"]).await;
        ended.unwrap();
        assert_eq!(text.lines().last(), Some("web is at qemu+tcp://other/system now"));
    }

    #[tokio::test]
    async fn ctrl_c_aborts_the_migration_that_was_started_here() {
        const ABORT: u32 = 164;
        let (server, uri) = server().await;
        server.fault(MIGRATE, Fault::Silent);
        server.next(ABORT, Answer::error(38, 0, "no"));
        let args = Args::parse_from(["migrate_watch", "--connect", &uri, "web", "qemu+tcp://other/system"]);
        let ended = run(&args, Screen { redraw: false, out: Vec::new() }, std::future::ready(())).await;
        assert!(ended.is_err() && server.count(ABORT) == 1);
    }

    #[tokio::test]
    async fn a_domain_that_does_not_exist_is_an_error_that_names_it() {
        let (_server, uri) = server().await;
        let (ended, _) = told(&["--connect", &uri, "nobody"]).await;
        assert!(ended.unwrap_err().to_string().contains("nobody"));
    }
}
