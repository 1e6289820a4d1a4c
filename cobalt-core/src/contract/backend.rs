//! The contract of [`HypervisorBackend`].

use std::{collections::BTreeSet, sync::Arc};

use async_trait::async_trait;

use super::{Provoked, Report, Stop, Suite, ascending, backend_events, ensure, eventually, rejects, same, soon};
use crate::{
    backend::{DomainState, EventKind, HypervisorBackend, MigrateRequest, PowerAction},
    ids::InstanceId,
};

/// An id that no domain has.
pub(super) const NOBODY: &str = "00000000-dead-4000-8000-000000000000";

/// A backend to be checked, and how to make things happen below it.
#[async_trait]
pub trait BackendFixture: Send + Sync {
    /// The backend. Every call returns a handle to the same hypervisor.
    fn backend(&self) -> Arc<dyn HypervisorBackend>;

    /// Makes a domain and starts it.
    async fn start_domain(&mut self) -> Provoked<InstanceId> {
        Stop::cannot("start a domain")
    }

    /// Ends a domain that runs and removes its definition.
    async fn remove_domain(&mut self, _id: &InstanceId) -> Provoked<()> {
        Stop::cannot("remove a domain")
    }

    /// Makes an event of this kind happen to a running domain.
    async fn provoke(&mut self, _id: &InstanceId, kind: EventKind) -> Provoked<()> {
        Stop::cannot(format!("provoke a {kind:?} event"))
    }

    /// Makes more events happen than any reader's queue should hold, at once, and tells how many.
    async fn flood(&mut self) -> Provoked<u64> {
        Stop::cannot("flood a reader with events")
    }

    /// Cuts the connection between the backend and its hypervisor.
    async fn cut_connection(&mut self) -> Provoked<()> {
        Stop::cannot("cut the connection")
    }

    /// Lets the connection come back.
    async fn restore_connection(&mut self) -> Provoked<()> {
        Stop::cannot("restore the connection")
    }

    /// Another host to migrate to: its address as [`MigrateRequest::destination`], and its backend.
    async fn other_host(&mut self) -> Provoked<(String, Arc<dyn HypervisorBackend>)> {
        Stop::cannot("offer another host")
    }

    /// How many event streams the implementation holds open.
    fn open_streams(&self) -> Provoked<usize> {
        Stop::cannot("count open streams")
    }
}

/// Checks every law of the trait.
pub async fn run(fixture: &mut dyn BackendFixture) -> Report {
    let backend = fixture.backend();
    let features = backend.features();
    let mut suite = Suite::new(format!("HypervisorBackend ({})", backend.driver()));
    let nobody = InstanceId::from(NOBODY);

    suite
        .check("versions", "the backend tells its versions", async { Ok(backend.versions().await.map(|_| ())?) })
        .await;
    suite
        .check("cells", "a host has at least one NUMA cell, ordered by id, each with CPUs or memory", cells(fixture))
        .await;
    suite.check("inventory", "the inventory is ordered by id, complete and stable", inventory(fixture)).await;
    suite.check("domain", "a domain read alone is the same as in the inventory", domain(fixture)).await;
    suite.check("shares", "what is bound to cells is bound to cells of the host, and adds up", shares(fixture)).await;
    suite
        .check("unknown", "an unknown domain is not found", async {
            rejects("domain", "not_found", backend.domain(&nobody).await)
        })
        .await;

    if features.domain_capabilities {
        suite
            .check("domain-capabilities", "lists are sorted and free of duplicates", domain_capabilities(fixture))
            .await;
    } else {
        suite
            .check("domain-capabilities-lacking", "a driver without them says so", async {
                rejects("domain_capabilities", "unsupported", backend.domain_capabilities().await)
            })
            .await;
    }
    if features.stats {
        suite
            .check("stats", "counters are of running domains only, ordered by id, and do not go back", stats(fixture))
            .await;
    } else {
        suite
            .check("stats-lacking", "a driver without counters says so", async {
                rejects("stats", "unsupported", backend.stats().await)
            })
            .await;
    }
    if features.jobs {
        suite.check("jobs", "a domain without a job has none, and none to abort", jobs(fixture)).await;
    } else {
        suite
            .check("jobs-lacking", "a driver without jobs says so", async {
                rejects("job", "unsupported", backend.job(&nobody).await)?;
                rejects("abort_job", "unsupported", backend.abort_job(&nobody).await)
            })
            .await;
    }
    if features.power {
        suite.check("power", "a domain can be ended, started, suspended and resumed, each once", power(fixture)).await;
    } else {
        suite
            .check("power-lacking", "a driver without power says so", async {
                rejects("power", "unsupported", backend.power(&nobody, PowerAction::Start).await)
            })
            .await;
    }
    if features.migration {
        suite.check("migrate", "a migrated domain is over there, and only there", migrate(fixture)).await;
        suite
            .check("migrate-nowhere", "a migration to nowhere fails and changes nothing", migrate_nowhere(fixture))
            .await;
        if features.jobs {
            suite
                .check("migrate-abort", "an aborted migration leaves the domain where it was", migrate_abort(fixture))
                .await;
        }
    } else {
        suite
            .check("migrate-lacking", "a driver without migration says so", async {
                rejects("migrate", "unsupported", backend.migrate(&nobody, &request("nowhere")).await)
            })
            .await;
    }
    backend_events::run(&mut suite, fixture).await;
    suite.0
}

fn request(destination: &str) -> MigrateRequest {
    MigrateRequest { destination: destination.to_owned(), live: true, copy_storage: false, persist: true }
}

async fn cells(fixture: &mut dyn BackendFixture) -> Provoked<()> {
    let host = fixture.backend().capabilities().await?;
    ensure(!host.cells.is_empty(), || "there is no cell".into())?;
    let ids: Vec<u32> = host.cells.iter().map(|cell| cell.id).collect();
    ascending("cells", &ids)?;
    ensure(host.cpus() > 0 && host.memory_bytes() > 0, || "the host has no CPU or no memory".into())
}

async fn inventory(fixture: &mut dyn BackendFixture) -> Provoked<()> {
    let started = [fixture.start_domain().await?, fixture.start_domain().await?];
    let backend = fixture.backend();
    let domains = backend.inventory().await?;
    let ids: Vec<InstanceId> = domains.iter().map(|domain| domain.id.clone()).collect();
    ascending("inventory", &ids)?;
    for id in &started {
        ensure(ids.contains(id), || format!("domain {id} is missing"))?;
    }
    let names: BTreeSet<&str> = domains.iter().map(|domain| domain.name.as_str()).collect();
    same("distinct names", names.len(), domains.len())?;
    same("a second inventory", backend.inventory().await?, domains)?;
    for id in &started {
        fixture.remove_domain(id).await?;
    }
    let left = backend.inventory().await?;
    ensure(!left.iter().any(|domain| started.contains(&domain.id)), || "a removed domain is still listed".into())
}

async fn domain(fixture: &mut dyn BackendFixture) -> Provoked<()> {
    let id = fixture.start_domain().await?;
    let backend = fixture.backend();
    for listed in backend.inventory().await? {
        let alone = backend.domain(&listed.id).await?;
        same("domain", alone, listed)?;
    }
    same("a started domain", backend.domain(&id).await?.state, DomainState::Running)?;
    fixture.remove_domain(&id).await?;
    rejects("a removed domain", "not_found", backend.domain(&id).await)
}

async fn shares(fixture: &mut dyn BackendFixture) -> Provoked<()> {
    let id = fixture.start_domain().await?;
    let backend = fixture.backend();
    let known: BTreeSet<u32> = backend.capabilities().await?.cells.iter().map(|cell| cell.id).collect();
    for domain in backend.inventory().await?.iter().filter(|domain| !domain.cells.is_empty()) {
        let cells: Vec<u32> = domain.cells.iter().map(|share| share.cell).collect();
        ascending("shares", &cells)?;
        ensure(cells.iter().all(|cell| known.contains(cell)), || format!("{} has a cell the host has not", domain.id))?;
        let memory: u64 = domain.cells.iter().map(|share| share.memory_bytes).sum();
        let cpu: u64 = domain.cells.iter().map(|share| share.cpu_millis).sum();
        ensure(memory <= domain.memory_bytes, || format!("{} binds more memory than it has", domain.id))?;
        ensure(cpu <= u64::from(domain.vcpus) * 1000, || format!("{} binds more CPU than it has", domain.id))?;
    }
    fixture.remove_domain(&id).await
}

async fn domain_capabilities(fixture: &mut dyn BackendFixture) -> Provoked<()> {
    let found = fixture.backend().domain_capabilities().await?;
    ascending("devices", &found.devices)?;
    ascending("CPU modes", &found.cpu_modes)?;
    ascending("features", &found.features)?;
    ensure(found.hypervisor_type.is_some(), || "the kind of domain is missing".into())
}

async fn stats(fixture: &mut dyn BackendFixture) -> Provoked<()> {
    let id = fixture.start_domain().await?;
    let backend = fixture.backend();
    let first = backend.stats().await?;
    let ids: Vec<InstanceId> = first.iter().map(|stats| stats.id.clone()).collect();
    ascending("counters", &ids)?;
    let active = backend.inventory().await?.into_iter().filter(|domain| domain.state.is_active());
    same("domains with counters", ids, active.map(|domain| domain.id).collect())?;
    let second = backend.stats().await?;
    for before in &first {
        let Some(after) = second.iter().find(|stats| stats.id == before.id) else { continue };
        ensure(after.cpu.time_ns >= before.cpu.time_ns, || format!("the CPU time of {} went back", before.id))?;
    }
    fixture.remove_domain(&id).await?;
    let gone = backend.stats().await?;
    ensure(!gone.iter().any(|stats| stats.id == id), || "a removed domain still has counters".into())
}

async fn jobs(fixture: &mut dyn BackendFixture) -> Provoked<()> {
    let id = fixture.start_domain().await?;
    let backend = fixture.backend();
    let nobody = InstanceId::from(NOBODY);
    if let Some(job) = backend.job(&id).await? {
        ensure(!job.outcome.is_running(), || format!("a fresh domain has a running job: {job:?}"))?;
    }
    rejects("abort_job without a job", "conflict", backend.abort_job(&id).await)?;
    rejects("job of nobody", "not_found", backend.job(&nobody).await)?;
    rejects("abort_job of nobody", "not_found", backend.abort_job(&nobody).await)?;
    fixture.remove_domain(&id).await
}

async fn power(fixture: &mut dyn BackendFixture) -> Provoked<()> {
    let id = fixture.start_domain().await?;
    let backend = fixture.backend();
    let state = || async { Ok::<_, Stop>(backend.domain(&id).await?.state) };
    rejects("start what runs", "conflict", backend.power(&id, PowerAction::Start).await)?;
    backend.power(&id, PowerAction::Suspend).await?;
    same("a suspended domain", state().await?, DomainState::Paused)?;
    backend.power(&id, PowerAction::Resume).await?;
    same("a resumed domain", state().await?, DomainState::Running)?;
    backend.power(&id, PowerAction::Reset).await?;
    same("a reset domain", state().await?, DomainState::Running)?;
    backend.power(&id, PowerAction::Destroy).await?;
    let after = backend.domain(&id).await;
    if let Ok(domain) = &after {
        ensure(!domain.state.is_active(), || "a destroyed domain is active".into())?;
        rejects("destroy what does not run", "conflict", backend.power(&id, PowerAction::Destroy).await)?;
        backend.power(&id, PowerAction::Start).await?;
        same("a started domain", state().await?, DomainState::Running)?;
        fixture.remove_domain(&id).await?;
    } else {
        rejects("a transient domain once destroyed", "not_found", after)?;
    }
    rejects("start nobody", "not_found", backend.power(&InstanceId::from(NOBODY), PowerAction::Start).await)
}

async fn migrate(fixture: &mut dyn BackendFixture) -> Provoked<()> {
    let (address, other) = fixture.other_host().await?;
    let id = fixture.start_domain().await?;
    let backend = fixture.backend();
    soon("the end of the migration", backend.migrate(&id, &request(&address))).await??;
    same("over there", other.domain(&id).await?.state, DomainState::Running)?;
    let here = backend.inventory().await?.into_iter().find(|domain| domain.id == id);
    ensure(here.is_none_or(|domain| !domain.state.is_active()), || "it runs here too".into())
}

async fn migrate_nowhere(fixture: &mut dyn BackendFixture) -> Provoked<()> {
    let id = fixture.start_domain().await?;
    let backend = fixture.backend();
    let answer = soon("an answer", backend.migrate(&id, &request("qemu+tcp://no-such-host/system"))).await?;
    ensure(answer.is_err(), || "a migration to nowhere succeeded".into())?;
    same("the domain", backend.domain(&id).await?.state, DomainState::Running)?;
    rejects(
        "migrate nobody",
        "not_found",
        backend.migrate(&InstanceId::from(NOBODY), &request("qemu+tcp://x/system")).await,
    )?;
    fixture.remove_domain(&id).await
}

async fn migrate_abort(fixture: &mut dyn BackendFixture) -> Provoked<()> {
    let (address, other) = fixture.other_host().await?;
    let id = fixture.start_domain().await?;
    let backend = fixture.backend();
    let wanted = request(&address);
    let (backend, id) = (&backend, &id);
    let migration = backend.migrate(id, &wanted);
    let abort = async {
        eventually("a running job", || async {
            Ok(backend.job(id).await?.is_some_and(|job| job.outcome.is_running()))
        })
        .await?;
        Ok::<_, Stop>(backend.abort_job(id).await?)
    };
    let (answer, aborted) = soon("the end of the migration", futures::future::join(migration, abort)).await?;
    aborted?;
    ensure(answer.is_err(), || "an aborted migration succeeded".into())?;
    same("the domain", backend.domain(id).await?.state, DomainState::Running)?;
    rejects("over there", "not_found", other.domain(id).await)?;
    fixture.remove_domain(id).await
}
