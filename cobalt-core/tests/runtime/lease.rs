//! Elections under faults, in virtual time.

use std::{
    collections::VecDeque,
    future::{Future, pending},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use cobalt_core::runtime::{
    clock::Clock,
    lease::{Leadership, LeaseConfig, LeaseElector, LeaseError, LeaseStore, StoreError},
    metrics::Metrics,
    shutdown::Shutdown,
    state::Status,
};
use k8s_openapi::api::coordination::v1::Lease;
use proptest::prelude::*;
use tokio::time::{Instant, sleep};

/// One Lease with optimistic concurrency, as the API server has it.
#[derive(Default)]
struct Server {
    lease: Mutex<(u64, Option<Lease>)>,
    writes: AtomicU64,
}

impl Server {
    fn get(&self) -> Option<Lease> {
        self.lease.lock().unwrap().1.clone()
    }

    fn put(&self, lease: &Lease, create: bool) -> Result<Lease, StoreError> {
        let mut stored = self.lease.lock().unwrap();
        let fits = match &stored.1 {
            Some(current) => !create && current.metadata.resource_version == lease.metadata.resource_version,
            None => create,
        };
        if !fits {
            return Err(StoreError::Conflict);
        }
        stored.0 += 1;
        let mut lease = lease.clone();
        lease.metadata.resource_version = Some(stored.0.to_string());
        stored.1 = Some(lease.clone());
        self.writes.fetch_add(1, Ordering::Relaxed);
        Ok(lease)
    }

    fn holder(&self) -> Option<String> {
        self.get()?.spec?.holder_identity.filter(|holder| !holder.is_empty())
    }

    fn transitions(&self) -> Option<i32> {
        self.get()?.spec?.lease_transitions
    }
}

/// What happens to one request.
#[derive(Clone, Copy, Debug)]
enum Fault {
    None,
    /// It arrives late, whether or not anybody still waits.
    Late(u64),
    /// Its answer comes late.
    SlowAnswer(u64),
    /// It never arrives.
    Lost,
    /// It has its effect, and the answer is lost.
    AnswerLost,
    /// The server says 500.
    Failed,
}

/// A client's way to the server.
struct Line {
    server: Arc<Server>,
    faults: Mutex<VecDeque<Fault>>,
    cut: Arc<AtomicBool>,
}

impl Line {
    fn clear(server: &Arc<Server>) -> Arc<Self> {
        Self::with(server, Vec::new())
    }

    fn with(server: &Arc<Server>, faults: Vec<Fault>) -> Arc<Self> {
        Arc::new(Self { server: server.clone(), faults: Mutex::new(faults.into()), cut: Arc::default() })
    }

    async fn send<T: Send + 'static>(
        &self,
        effect: impl FnOnce(&Server) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let fault = self.faults.lock().unwrap().pop_front().unwrap_or(Fault::None);
        if self.cut.load(Ordering::Relaxed) {
            return pending().await;
        }
        let server = self.server.clone();
        match fault {
            Fault::None => effect(&server),
            Fault::Lost => pending().await,
            Fault::Failed => Err(StoreError::Failed("internal error".into())),
            Fault::AnswerLost => {
                let _ = effect(&server);
                pending().await
            }
            Fault::SlowAnswer(ms) => {
                let answer = effect(&server);
                sleep(Duration::from_millis(ms)).await;
                answer
            }
            // A task of its own: the request is on its way even when the sender has given up.
            Fault::Late(ms) => tokio::spawn(async move {
                sleep(Duration::from_millis(ms)).await;
                effect(&server)
            })
            .await
            .unwrap(),
        }
    }
}

#[async_trait]
impl LeaseStore for Line {
    async fn get(&self) -> Result<Option<Lease>, StoreError> {
        self.send(|server| Ok(server.get())).await
    }

    async fn create(&self, lease: &Lease) -> Result<Lease, StoreError> {
        let lease = lease.clone();
        self.send(move |server| server.put(&lease, true)).await
    }

    async fn update(&self, lease: &Lease) -> Result<Lease, StoreError> {
        let lease = lease.clone();
        self.send(move |server| server.put(&lease, false)).await
    }
}

fn config(identity: &str) -> LeaseConfig {
    LeaseConfig {
        name: "4c28796a.cloud.sap".into(),
        namespace: "default".into(),
        identity: identity.into(),
        lease_duration: Duration::from_secs(15),
        renew_deadline: Duration::from_secs(10),
        retry_period: Duration::from_secs(2),
    }
}

fn elector(identity: &str, line: &Arc<Line>) -> LeaseElector {
    elector_of(config(identity), line)
}

fn elector_of(config: LeaseConfig, line: &Arc<Line>) -> LeaseElector {
    let clock = Clock::starting_at("2026-01-01T00:00:00Z".parse().unwrap());
    LeaseElector::new(config, line.clone(), clock, Arc::new(Metrics::new()))
}

fn in_virtual_time<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap().block_on(future)
}

/// Who works, and whether ever two did.
#[derive(Default)]
struct Floor {
    working: Mutex<Vec<String>>,
    collision: Mutex<Option<String>>,
    turns: AtomicU64,
}

struct OnFloor(Arc<Floor>, String);

impl OnFloor {
    fn enter(floor: &Arc<Floor>, who: &str) -> Self {
        let mut working = floor.working.lock().unwrap();
        working.push(who.to_owned());
        if working.len() > 1 {
            *floor.collision.lock().unwrap() = Some(working.join(" and "));
        }
        floor.turns.fetch_add(1, Ordering::Relaxed);
        Self(floor.clone(), who.to_owned())
    }
}

impl Drop for OnFloor {
    fn drop(&mut self) {
        self.0.working.lock().unwrap().retain(|who| *who != self.1);
    }
}

async fn work(floor: Arc<Floor>, who: String, leadership: Leadership, stubborn: bool) -> Result<(), StoreError> {
    let _here = OnFloor::enter(&floor, &who);
    leadership.stopping().triggered().await;
    if stubborn {
        // Never ends by itself: only being aborted helps.
        pending::<()>().await;
    }
    Ok(())
}

async fn leads(server: &Server, who: &str) {
    tokio::time::timeout(Duration::from_secs(120), async {
        while server.holder().as_deref() != Some(who) {
            sleep(Duration::from_millis(100)).await;
        }
    })
    .await
    .unwrap_or_else(|_| panic!("{who} does not lead; holder is {:?}", server.holder()));
}

#[test]
fn the_first_one_leads_and_the_second_takes_over_at_once_when_it_is_released() {
    in_virtual_time(async {
        let (server, floor) = (Arc::new(Server::default()), Arc::new(Floor::default()));
        let (stop_a, stop_b) = (Shutdown::new(), Shutdown::new());
        let floor_a = floor.clone();
        let a = tokio::spawn(
            elector("a", &Line::clear(&server)).run(stop_a.clone(), move |l| work(floor_a, "a".into(), l, false)),
        );
        leads(&server, "a").await;
        let floor_b = floor.clone();
        let b = tokio::spawn(
            elector("b", &Line::clear(&server)).run(stop_b.clone(), move |l| work(floor_b, "b".into(), l, false)),
        );
        sleep(Duration::from_secs(60)).await;
        assert_eq!(server.holder().as_deref(), Some("a"));

        let released = Instant::now();
        stop_a.trigger();
        a.await.unwrap().unwrap();
        assert_eq!(server.holder(), None);
        leads(&server, "b").await;
        assert!(released.elapsed() <= Duration::from_secs(3), "one retry period, not a lease duration");
        assert_eq!(server.transitions(), Some(1));
        stop_b.trigger();
        b.await.unwrap().unwrap();
        assert_eq!(*floor.collision.lock().unwrap(), None);
        assert_eq!(floor.turns.load(Ordering::Relaxed), 2);
    });
}

#[test]
fn a_leader_cut_off_stops_before_another_begins() {
    in_virtual_time(async {
        let (server, floor) = (Arc::new(Server::default()), Arc::new(Floor::default()));
        let line = Line::clear(&server);
        let floor_a = floor.clone();
        // Stubborn on purpose: cancelling is not enough, it must be aborted.
        let a = tokio::spawn(elector("a", &line).run(Shutdown::new(), move |l| work(floor_a, "a".into(), l, true)));
        leads(&server, "a").await;
        let (stop, floor_b) = (Shutdown::new(), floor.clone());
        let b = tokio::spawn(
            elector("b", &Line::clear(&server)).run(stop.clone(), move |l| work(floor_b, "b".into(), l, false)),
        );
        sleep(Duration::from_secs(5)).await;

        line.cut.store(true, Ordering::Relaxed);
        let lost = a.await.unwrap().unwrap_err();
        assert!(matches!(&lost, LeaseError::Lost { .. }), "{lost}");
        assert_eq!(server.holder().as_deref(), Some("a"), "it could not be released, so b still waits");
        assert!(floor.working.lock().unwrap().is_empty());
        leads(&server, "b").await;
        stop.trigger();
        b.await.unwrap().unwrap();
        assert_eq!(*floor.collision.lock().unwrap(), None);
    });
}

#[test]
fn the_lease_is_kept_while_the_work_ends_and_released_after() {
    in_virtual_time(async {
        let server = Arc::new(Server::default());
        let stop = Shutdown::new();
        let seen = Arc::new(Mutex::new(None));
        let (seen_by_work, at_server) = (seen.clone(), server.clone());
        let a = tokio::spawn(elector("a", &Line::clear(&server)).run(stop.clone(), move |leadership| async move {
            leadership.stopping().triggered().await;
            // Longer than the lease: it has to be renewed meanwhile.
            sleep(Duration::from_secs(40)).await;
            *seen_by_work.lock().unwrap() = at_server.holder();
            Ok::<(), StoreError>(())
        }));
        leads(&server, "a").await;
        stop.trigger();
        a.await.unwrap().unwrap();
        assert_eq!(seen.lock().unwrap().as_deref(), Some("a"));
        assert_eq!(server.holder(), None);
    });
}

#[test]
fn failing_work_gives_the_lease_back() {
    in_virtual_time(async {
        let server = Arc::new(Server::default());
        let failed = elector("a", &Line::clear(&server))
            .run(Shutdown::new(), |_| async { Err::<(), _>(StoreError::Failed("broken".into())) })
            .await
            .unwrap_err();
        assert_eq!(failed.category(), "work");
        assert_eq!(server.holder(), None);
    });
}

#[test]
fn a_leader_writes_once_per_retry_period_and_reads_nothing() {
    in_virtual_time(async {
        let server = Arc::new(Server::default());
        let stop = Shutdown::new();
        let floor = Arc::new(Floor::default());
        let a = tokio::spawn(
            elector("a", &Line::clear(&server)).run(stop.clone(), move |l| work(floor, "a".into(), l, false)),
        );
        leads(&server, "a").await;
        let before = server.writes.load(Ordering::Relaxed);
        sleep(Duration::from_secs(60)).await;
        let writes = server.writes.load(Ordering::Relaxed) - before;
        assert!((29..=31).contains(&writes), "{writes}");
        stop.trigger();
        a.await.unwrap().unwrap();
    });
}

#[test]
fn a_frozen_leader_knows_that_it_does_not_lead() {
    in_virtual_time(async {
        let server = Arc::new(Server::default());
        let line = Line::clear(&server);
        let (send, receive) = tokio::sync::oneshot::channel();
        let a = tokio::spawn(elector("a", &line).run(Shutdown::new(), move |leadership| async move {
            let _ = send.send(leadership.clone());
            leadership.stopping().triggered().await;
            Ok::<(), StoreError>(())
        }));
        let leadership = receive.await.unwrap();
        assert!(leadership.is_current());
        // Time passes without any task being run, as when a process is stopped.
        tokio::time::advance(Duration::from_secs(30)).await;
        assert!(!leadership.is_current());
        line.cut.store(true, Ordering::Relaxed);
        assert!(a.await.unwrap().is_err());
    });
}

#[test]
fn the_lease_is_shown_on_the_state_page() {
    in_virtual_time(async {
        let server = Arc::new(Server::default());
        let status = Status::new(Clock::starting_at("2026-01-01T00:00:00Z".parse().unwrap()));
        let elector = elector("a", &Line::clear(&server));
        elector.show(&status);
        let (stop, floor) = (Shutdown::new(), Arc::new(Floor::default()));
        let a = tokio::spawn(elector.run(stop.clone(), move |l| work(floor, "a".into(), l, false)));
        leads(&server, "a").await;
        let lease = status.report().leases.remove(0);
        assert_eq!(lease.name, "default/4c28796a.cloud.sap");
        assert_eq!((lease.holder.as_deref(), lease.mine), (Some("a"), true));
        assert!(lease.renew_age_seconds.unwrap() < 3.0);
        stop.trigger();
        a.await.unwrap().unwrap();
    });
}

fn faults() -> impl Strategy<Value = Vec<Fault>> {
    let fault = prop_oneof![
        4 => Just(Fault::None),
        1 => (0_u64..20_000).prop_map(Fault::Late),
        1 => (0_u64..8_000).prop_map(Fault::SlowAnswer),
        1 => Just(Fault::Lost),
        1 => Just(Fault::AnswerLost),
        1 => Just(Fault::Failed),
    ];
    // Troubles come in runs: one lost request is nothing, five in a row are a lost lease.
    proptest::collection::vec((fault, 1_usize..8), 0..40)
        .prop_map(|runs| runs.into_iter().flat_map(|(fault, times)| vec![fault; times]).collect())
}

struct Replica {
    name: &'static str,
    floor: Arc<Floor>,
    line: Arc<Line>,
    stop: Shutdown,
    stubborn: bool,
    renew_deadline: Duration,
}

impl Replica {
    /// A replica that lost the lease ends and is restarted, with a new identity.
    async fn live(self) {
        let mut life = 0;
        while !self.stop.is_triggered() {
            life += 1;
            let who = format!("{}-{life}", self.name);
            let (floor, stubborn) = (self.floor.clone(), self.stubborn);
            let config = LeaseConfig { renew_deadline: self.renew_deadline, ..config(&who) };
            let run = elector_of(config, &self.line).run(self.stop.clone(), move |l| work(floor, who, l, stubborn));
            // Stubborn work under a shutdown would never end; that is for the program's grace period to cut.
            let grace = async {
                self.stop.triggered().await;
                sleep(Duration::from_secs(60)).await;
            };
            tokio::select! { _ = run => {}, () = grace => {} }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Three replicas, every request of each possibly lost, late, slow or failed: never two at work. And when the
    /// faults are over, one of them works.
    #[test]
    fn never_two_leaders_whatever_happens_to_their_requests(
        a in faults(), b in faults(), c in faults(), renew_deadline in 5_u64..15,
    ) {
        in_virtual_time(async {
            let renew_deadline = Duration::from_secs(renew_deadline);
            let (server, floor, stop) = (Arc::new(Server::default()), Arc::new(Floor::default()), Shutdown::new());
            let replicas: Vec<_> = [("a", a, true), ("b", b, false), ("c", c, false)]
                .into_iter()
                .map(|(name, faults, stubborn)| {
                    let (floor, stop, line) = (floor.clone(), stop.clone(), Line::with(&server, faults));
                    tokio::spawn(Replica { name, floor, line, stop, stubborn, renew_deadline }.live())
                })
                .collect();
            // A few hundred faulty requests each, seconds apart, are over by then.
            sleep(Duration::from_secs(7200)).await;
            let working = floor.working.lock().unwrap().len();
            stop.trigger();
            for replica in replicas {
                replica.await.unwrap();
            }
            prop_assert_eq!(floor.collision.lock().unwrap().clone(), None);
            prop_assert_eq!(working, 1, "somebody works in the end");
            Ok(())
        })?;
    }
}
