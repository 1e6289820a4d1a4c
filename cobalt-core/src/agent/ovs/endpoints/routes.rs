//! The routes under `/v1`.

use std::sync::Arc;

use axum::{
    Json, Router,
    body::{Body, Bytes},
    extract::{
        DefaultBodyLimit, Path, Query, Request, State,
        rejection::{BytesRejection, PathRejection, QueryRejection},
    },
    http::{StatusCode, header},
    middleware::{self, Next},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use futures::{StreamExt, stream};
use serde::{Deserialize, de::DeserializeOwned};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, timeout, timeout_at},
};

use super::{
    Limits,
    answer::Failure,
    audit::{Auditor, Deed, Read},
    capture::{Captures, PacketStream},
    diagnose,
    guard::{Asker, Caller, Guard, Right},
    resolve,
    wire::{
        Bond, Bridge, CaptureQuestion, CaptureView, Diagnosis, FdbEntry, Flow, FlowLine, FlowsEnd, List, Port,
        PortAnswer, StaleFlows, TraceAnswer, TraceQuestion, Verdict,
    },
};
use crate::{
    agent::ovs::{Config, Demand, memory::Memory},
    ovs::{CaptureRequest, OvsInspector, OvsSnapshot, TraceRequest},
    runtime::{clock::Clock, events::Severity, shutdown::Chain},
};

/// The media type of a pcap file.
const PCAP: &str = "application/vnd.tcpdump.pcap";
const NDJSON: &str = "application/x-ndjson";

/// What the handlers work with.
pub(super) struct Parts {
    pub(super) switch: Arc<dyn OvsInspector>,
    pub(super) config: Config,
    pub(super) demand: Option<Demand>,
    pub(super) guard: Guard,
    pub(super) auditor: Auditor,
    pub(super) captures: Captures,
    pub(super) limits: Limits,
    pub(super) clock: Clock,
    pub(super) questions: Semaphore,
    pub(super) dumps: Arc<Semaphore>,
}

type Shared = State<Arc<Parts>>;
type Answer<T> = Result<T, Failure>;

pub(super) fn router(parts: Arc<Parts>) -> Router {
    let answer = parts.limits.connections.answer;
    let v1 = Router::new()
        .route("/trace", post(trace))
        .route("/capture", post(capture))
        .route("/captures", post(start_capture).get(list_captures))
        .route("/captures/{id}", get(fetch_capture).delete(delete_capture))
        .route("/flows", get(flows))
        .route("/bridges", get(bridges))
        .route("/ports/{name}", get(port))
        .route("/fdb", get(fdb))
        .route("/bonds", get(bonds))
        .route("/doctor", get(doctor))
        .route("/stale-flows", get(stale_flows).post(look_for_stale_flows));
    Router::new()
        .nest("/v1", v1)
        .fallback(async || Failure::not_found("there is no such path; see /v1/doctor, /v1/trace, /v1/capture"))
        .method_not_allowed_fallback(async || {
            Failure::new(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", "this path does not take this method")
        })
        .layer(DefaultBodyLimit::max(parts.limits.connections.body_bytes))
        .layer(middleware::from_fn(move |request: Request, next: Next| async move {
            match timeout(answer, next.run(request)).await {
                Ok(response) => response,
                Err(_) => Failure::timeout(format!("no answer within {} s", answer.as_secs_f64())).into_response(),
            }
        }))
        .with_state(parts)
}

impl Parts {
    /// Lets a caller with this right through.
    async fn admit(&self, asker: &Asker, right: Right) -> Answer<Caller> {
        let caller = self.guard.caller(asker).await?;
        let checked = self.guard.check(&caller, right).await;
        if let Err(failure) = &checked
            && failure.code == StatusCode::FORBIDDEN
        {
            let (action, reason) = match right {
                Right::Trace => ("Trace", "TraceForbidden"),
                Right::Capture => ("Capture", "CaptureForbidden"),
                Right::Diagnose => ("Diagnose", "DiagnoseForbidden"),
            };
            let deed = Deed { action, reason, severity: Severity::Warning };
            self.auditor.note(&caller, deed, "was refused: no role allows it").await;
        }
        checked.map(|()| caller)
    }

    /// Lets a caller read, and notes that.
    async fn admit_to_read(&self, asker: &Asker, what: &'static str) -> Answer<()> {
        let caller = self.admit(asker, Right::Diagnose).await?;
        self.auditor.read(&caller, Read::State, what).await;
        Ok(())
    }

    /// Lets a caller see to captures that are kept, and notes that.
    async fn admit_to_kept(&self, asker: &Asker, what: &'static str) -> Answer<Caller> {
        let caller = self.admit(asker, Right::Capture).await?;
        self.auditor.read(&caller, Read::Captures, what).await;
        Ok(caller)
    }

    /// What took a while to find out.
    fn memory(&self) -> Memory {
        Memory::of_stale_flows(self.demand.as_ref().map(|demand| demand.stands().found).unwrap_or_default())
    }

    async fn snapshot(&self) -> Answer<OvsSnapshot> {
        // Waiting for a turn is bounded by the time for an answer.
        let _turn = self.questions.acquire().await;
        Ok(self.switch.snapshot().await?)
    }
}

/// The body of a request, as JSON of this shape.
fn read<T: DeserializeOwned>(body: Result<Bytes, BytesRejection>) -> Answer<T> {
    let body = body.map_err(|rejection| Failure::new(rejection.status(), "BadRequest", rejection.body_text()))?;
    serde_json::from_slice(&body).map_err(|error| Failure::bad_request(format!("the body: {error}")))
}

fn asked<T>(query: Result<Query<T>, QueryRejection>) -> Answer<T> {
    query.map(|Query(query)| query).map_err(|rejection| Failure::bad_request(rejection.body_text()))
}

fn named(path: Result<Path<String>, PathRejection>) -> Answer<String> {
    path.map(|Path(name)| name).map_err(|rejection| Failure::bad_request(rejection.body_text()))
}

impl Parts {
    /// The packet a caller wants to follow, and the switch it was found in.
    async fn packet(&self, body: Result<Bytes, BytesRejection>) -> Answer<(OvsSnapshot, TraceRequest)> {
        let question: TraceQuestion = read(body)?;
        let snapshot = self.snapshot().await?;
        let request = resolve::packet(&snapshot, &question)?;
        Ok((snapshot, request))
    }

    /// The capture a caller asks for: of a port that exists, within the bounds.
    async fn wanted(&self, body: Result<Bytes, BytesRejection>, kept: bool) -> Answer<CaptureRequest> {
        let question: CaptureQuestion = read(body)?;
        let snapshot = self.snapshot().await?;
        let port = resolve::port(&snapshot, "port", &question.port)?;
        let request = self.captures.limits.request(&question, &port.name, kept)?;
        self.auditor.know().await;
        Ok(request)
    }

    /// Notes that something was not done for a caller who may. A question that made no sense is told without its words:
    /// they could be anything.
    async fn not_done<T>(&self, caller: &Caller, right: Right, what: &str, answer: Answer<T>) -> Answer<T> {
        if let Err(failure) = &answer {
            let (action, reason) = match right {
                Right::Trace => ("Trace", "TraceFailed"),
                Right::Capture => ("Capture", "CaptureFailed"),
                Right::Diagnose => ("Diagnose", "DiagnoseFailed"),
            };
            let deed = Deed { action, reason, severity: Severity::Warning };
            self.auditor.note(caller, deed, &format!("could not {what}: {}", failure.reason)).await;
        }
        answer
    }
}

async fn trace(State(parts): Shared, asker: Asker, body: Result<Bytes, BytesRejection>) -> Answer<Json<TraceAnswer>> {
    let caller = parts.admit(&asker, Right::Trace).await?;
    let asked = parts.packet(body).await;
    let (snapshot, request) = parts.not_done(&caller, Right::Trace, "trace a packet", asked).await?;
    let traced = {
        let _turn = parts.questions.acquire().await;
        parts.switch.trace(&request).await
    };
    let way = format!("a packet from {} to {}", request.in_port, request.ethernet.1);
    let traced = traced.map_err(Failure::from);
    let trace = parts.not_done(&caller, Right::Trace, &format!("trace {way}"), traced).await?;
    let answer = TraceAnswer::new(&request, trace, &snapshot);
    let outcome = match answer.verdict {
        Verdict::Forwarded => "forwarded",
        Verdict::Dropped => "dropped",
        Verdict::Controller => "sent to the controller",
        Verdict::Other => "answered",
    };
    let deed = Deed { action: "Trace", reason: "PacketTraced", severity: Severity::Normal };
    parts.auditor.note(&caller, deed, &format!("traced {way}: {outcome}")).await;
    Ok(Json(answer))
}

async fn capture(State(parts): Shared, asker: Asker, body: Result<Bytes, BytesRejection>) -> Answer<Response> {
    let caller = parts.admit(&asker, Right::Capture).await?;
    let wanted = parts.wanted(body, false).await;
    let request = parts.not_done(&caller, Right::Capture, "capture", wanted).await?;
    let packets = parts.captures.stream(&*parts.switch, &request, &caller.name).await;
    let what = format!("capture on port {}", request.port);
    parts.not_done(&caller, Right::Capture, &what, packets).await.map(pcap)
}

async fn start_capture(
    State(parts): Shared,
    asker: Asker,
    body: Result<Bytes, BytesRejection>,
) -> Answer<(StatusCode, Json<CaptureView>)> {
    let caller = parts.admit(&asker, Right::Capture).await?;
    let wanted = parts.wanted(body, true).await;
    let request = parts.not_done(&caller, Right::Capture, "capture", wanted).await?;
    let started = parts.captures.start(&*parts.switch, &request, &caller.name, parts.clock.now()).await;
    let what = format!("capture on port {}", request.port);
    let view = parts.not_done(&caller, Right::Capture, &what, started).await?;
    Ok((StatusCode::CREATED, Json(view)))
}

async fn list_captures(State(parts): Shared, asker: Asker) -> Answer<Json<List<CaptureView>>> {
    let caller = parts.admit_to_kept(&asker, "the list of captures").await?;
    Ok(Json(List { items: parts.captures.list(&caller.name) }))
}

async fn fetch_capture(
    State(parts): Shared,
    asker: Asker,
    id: Result<Path<String>, PathRejection>,
) -> Answer<Response> {
    let caller = parts.admit_to_kept(&asker, "a kept capture").await?;
    Ok(pcap(parts.captures.fetch(&named(id)?, &caller.name)?))
}

async fn delete_capture(
    State(parts): Shared,
    asker: Asker,
    id: Result<Path<String>, PathRejection>,
) -> Answer<Json<CaptureView>> {
    let caller = parts.admit_to_kept(&asker, "the end of a kept capture").await?;
    Ok(Json(parts.captures.delete(&named(id)?, &caller.name)?))
}

/// An error in the middle breaks the connection off: a file that is cut must not look complete.
fn pcap(packets: PacketStream) -> Response {
    ([(header::CONTENT_TYPE, PCAP)], Body::from_stream(packets)).into_response()
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FlowsQuery {
    bridge: String,
    table: Option<u8>,
    limit: Option<u64>,
}

async fn flows(
    State(parts): Shared,
    asker: Asker,
    query: Result<Query<FlowsQuery>, QueryRejection>,
) -> Answer<Response> {
    parts.admit_to_read(&asker, "flows").await?;
    let FlowsQuery { bridge, table, limit } = asked(query)?;
    let most = parts.limits.flows;
    let limit = limit.unwrap_or(most);
    if limit == 0 || limit > most {
        return Err(Failure::invalid(format!("limit: {limit} is not within 1 and {most}, the bounds of this agent")));
    }
    let snapshot = parts.snapshot().await?;
    let bridge = resolve::bridge(&snapshot, &bridge)?;
    let turn = parts.dumps.clone().try_acquire_owned();
    let turn = turn.map_err(|_| Failure::too_many("the flows of this host are being read by others; try again"))?;
    let flows = parts.switch.flows(bridge, table).await?;
    let deadline = Instant::now() + parts.limits.flows_time;
    Ok(([(header::CONTENT_TYPE, NDJSON)], Body::from_stream(lines(flows, limit, deadline, turn))).into_response())
}

/// Flows as lines of JSON, and a last line that says that it is the last.
fn lines(
    flows: stream::BoxStream<'static, crate::Result<crate::ovs::Flow>>,
    limit: u64,
    deadline: Instant,
    turn: OwnedSemaphorePermit,
) -> impl futures::Stream<Item = Result<Bytes, serde_json::Error>> + Send {
    /// Lines are sent some at a time.
    const TOGETHER: usize = 256;
    struct Reading {
        flows: stream::BoxStream<'static, crate::Result<crate::ovs::Flow>>,
        sent: u64,
        limit: u64,
        deadline: Instant,
        _turn: OwnedSemaphorePermit,
    }
    let reading = Reading { flows, sent: 0, limit, deadline, _turn: turn };
    stream::unfold(Some(reading), |reading| async {
        let mut reading = reading?;
        let mut text = Vec::new();
        let mut end = None;
        for _ in 0..TOGETHER {
            let Ok(next) = timeout_at(reading.deadline, reading.flows.next()).await else {
                end = Some((true, Some("the time for one answer is over".to_owned())));
                break;
            };
            let line = match next {
                Some(Ok(_)) if reading.sent == reading.limit => {
                    end = Some((true, None));
                    break;
                }
                Some(Ok(flow)) => FlowLine::Flow(Flow::from(flow)),
                Some(Err(error)) => {
                    end = Some((true, Some(Chain(&error).to_string())));
                    break;
                }
                None => {
                    end = Some((false, None));
                    break;
                }
            };
            reading.sent += 1;
            if let Err(error) = write_line(&mut text, &line) {
                return Some((Err(error), None));
            }
        }
        let Some((truncated, error)) = end else { return Some((Ok(Bytes::from(text)), Some(reading))) };
        let last = FlowLine::End { end: FlowsEnd { flows: reading.sent, truncated, error } };
        let written = write_line(&mut text, &last);
        Some((written.map(|()| Bytes::from(text)), None))
    })
}

fn write_line(text: &mut Vec<u8>, line: &FlowLine) -> Result<(), serde_json::Error> {
    serde_json::to_writer(&mut *text, line)?;
    text.push(b'\n');
    Ok(())
}

async fn bridges(State(parts): Shared, asker: Asker) -> Answer<Json<List<Bridge>>> {
    parts.admit_to_read(&asker, "bridges").await?;
    let snapshot = parts.snapshot().await?;
    Ok(Json(List { items: snapshot.bridges.into_iter().map(Bridge::from).collect() }))
}

async fn port(
    State(parts): Shared,
    asker: Asker,
    name: Result<Path<String>, PathRejection>,
) -> Answer<Json<PortAnswer>> {
    parts.admit_to_read(&asker, "ports").await?;
    let name = named(name)?;
    let snapshot = parts.snapshot().await?;
    let port = resolve::port(&snapshot, "port", &name)?;
    let diagnosis = diagnose::port(&snapshot, port, &parts.memory(), &parts.config);
    Ok(Json(PortAnswer { port: Port::from(port), diagnosis }))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FdbQuery {
    bridge: String,
}

async fn fdb(
    State(parts): Shared,
    asker: Asker,
    query: Result<Query<FdbQuery>, QueryRejection>,
) -> Answer<Json<List<FdbEntry>>> {
    parts.admit_to_read(&asker, "learned addresses").await?;
    let FdbQuery { bridge } = asked(query)?;
    let snapshot = parts.snapshot().await?;
    let learned = parts.switch.fdb(resolve::bridge(&snapshot, &bridge)?).await?;
    Ok(Json(List { items: learned.into_iter().map(FdbEntry::from).collect() }))
}

async fn bonds(State(parts): Shared, asker: Asker) -> Answer<Json<List<Bond>>> {
    parts.admit_to_read(&asker, "bonds").await?;
    let snapshot = parts.snapshot().await?;
    Ok(Json(List { items: snapshot.bonds.into_iter().map(Bond::from).collect() }))
}

async fn doctor(State(parts): Shared, asker: Asker) -> Answer<Json<Diagnosis>> {
    parts.admit_to_read(&asker, "doctor").await?;
    Ok(Json(diagnose::switch(&parts.snapshot().await?, &parts.memory(), &parts.config)))
}

async fn stale_flows(State(parts): Shared, asker: Asker) -> Answer<Json<StaleFlows>> {
    parts.admit_to_read(&asker, "stale flows").await?;
    Ok(Json(demand(&parts)?.stands().into()))
}

/// Asks for a look, which takes longer than an answer may: whoever asks comes back for what it found.
async fn look_for_stale_flows(State(parts): Shared, asker: Asker) -> Answer<(StatusCode, Json<StaleFlows>)> {
    let caller = parts.admit(&asker, Right::Diagnose).await?;
    let demand = demand(&parts)?;
    let before = demand.stands();
    demand.look();
    let deed = Deed { action: "Diagnose", reason: "StaleFlowsAsked", severity: Severity::Normal };
    parts.auditor.note(&caller, deed, "asked for a look for stale flows").await;
    Ok((StatusCode::ACCEPTED, Json(before.into())))
}

fn demand(parts: &Parts) -> Answer<&Demand> {
    parts.demand.as_ref().ok_or_else(|| Failure::unavailable("this agent does not look for stale flows"))
}
