//! Our side of the comparison, each a process of its own.

use std::{
    cell::RefCell,
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
    sync::Arc,
    time::Duration,
};

use anyhow::Context;
use cobalt_benches::steps;
use cobalt_core::{
    agent::exporter::{Exporter, Names},
    runtime::metrics::Metrics,
};
use cobalt_libvirt::{
    BackendOptions, HypervisorBackend, LibvirtBackend,
    testing::{Recording, Server},
};

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum What {
    /// All domains with state, size and placement, by a backend that has just connected.
    Inventory,
    /// The same by a backend that has seen them before.
    InventoryAgain,
    /// The counters of all running domains.
    Scrape,
    /// The counters of all running domains as a page for Prometheus.
    Page,
}

impl What {
    pub(crate) fn name(self) -> &'static str {
        match self {
            What::Inventory => "inventory",
            What::InventoryAgain => "inventory-again",
            What::Scrape => "scrape",
            What::Page => "page",
        }
    }
}

async fn connect(uri: &str) -> anyhow::Result<LibvirtBackend> {
    let backend = LibvirtBackend::connect(uri, BackendOptions::new()).await?;
    backend.versions().await.context("connect")?;
    Ok(backend)
}

/// The client: one thread, as in the agent.
pub(crate) async fn client(uri: &str, what: What) -> anyhow::Result<()> {
    match what {
        What::Inventory => {
            // The last backend is let go of while the next one is prepared, which nobody measures.
            let last = RefCell::new(None);
            steps::serve(
                async || {
                    last.replace(None);
                    connect(uri).await
                },
                async |backend: LibvirtBackend| {
                    let found = backend.inventory().await?.len();
                    last.replace(Some(backend));
                    Ok(found)
                },
            )
            .await
        }
        What::InventoryAgain => {
            let backend = connect(uri).await?;
            backend.inventory().await?;
            steps::serve(async || Ok(()), async |()| Ok(backend.inventory().await?.len())).await
        }
        What::Scrape => {
            let backend = connect(uri).await?;
            steps::serve(async || Ok(()), async |()| Ok(backend.stats().await?.len())).await
        }
        What::Page => {
            let metrics = Metrics::new();
            let exporter = Exporter::new(Arc::new(connect(uri).await?), &metrics);
            // The other exporter tells everything once, so that is what is asked of ours.
            let exporter = exporter.names(Names { documented: false, distributions: true });
            metrics.source("libvirt", Duration::from_secs(60), exporter);
            steps::serve(
                async || Ok(()),
                async |()| Ok(metrics.scrape().await.matches("\nlibvirt_domain_info_maximum_memory_bytes{").count()),
            )
            .await
        }
    }
}

/// A scripted daemon with so many running domains, each like one that was recorded.
pub(crate) fn scripted(domains: usize) -> anyhow::Result<Server> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../cobalt-libvirt/tests/recorded/qemu-9.0.jsonl");
    let text = std::fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
    let server = Server::replay(Recording::parse(&text)?);
    for n in 0..domains {
        let uuid = format!("55555555-bbbb-4000-8000-{n:012}");
        server.start_domain(&format!("instance-{n:08x}"), &uuid).context("a domain")?;
    }
    Ok(server)
}

/// The scripted daemon as a program: says where it listens and waits for its end.
#[expect(clippy::print_stdout, reason = "standard output is the interface of these programs")]
pub(crate) async fn serve(domains: usize) -> anyhow::Result<()> {
    let server = scripted(domains)?;
    println!("{}", server.listen_tcp().await?);
    tokio::task::spawn_blocking(|| std::io::stdin().lines().count()).await?;
    Ok(())
}

/// The scripted daemon in a process of its own.
pub(crate) struct Scripted {
    child: Child,
    pub(crate) uri: String,
}

impl Scripted {
    pub(crate) fn start(domains: usize) -> anyhow::Result<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["serve", &domains.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut address = String::new();
        BufReader::new(child.stdout.take().context("no way out")?).read_line(&mut address)?;
        Ok(Self { child, uri: format!("qemu+tcp://{}/system", address.trim_end()) })
    }
}

impl Drop for Scripted {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
