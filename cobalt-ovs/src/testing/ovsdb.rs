//! The database server.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};

use bytes::BytesMut;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{TcpListener, UnixListener},
    sync::{mpsc, watch},
    task::JoinHandle,
};
use uuid::Uuid;

use super::model::{Change, Model, Watch};
use crate::{
    jsonrpc::Framer,
    ovsdb::{Datum, Row},
    remote::Remote,
};

#[derive(Debug)]
struct Session {
    outbox: mpsc::UnboundedSender<Vec<u8>>,
    watches: Vec<Watch>,
}

#[derive(Debug)]
struct State {
    model: Model,
    sessions: BTreeMap<u64, Session>,
    next_session: u64,
    lacks: BTreeSet<String>,
    refuses: BTreeMap<String, Value>,
    answers: BTreeMap<String, Value>,
    requests: Vec<Value>,
    replies: Vec<Value>,
    hang: bool,
    chunk: usize,
}

impl State {
    fn tell(&mut self, change: &Change) {
        for session in self.sessions.values() {
            for watch in &session.watches {
                if let Some(update) = self.model.update(watch, change) {
                    let (method, params) = match watch.generation {
                        1 => ("update", json!([watch.id, update])),
                        2 => ("update2", json!([watch.id, update])),
                        _ => ("update3", json!([watch.id, self.model.last().to_string(), update])),
                    };
                    if !self.hang {
                        let message = json!({ "id": null, "method": method, "params": params });
                        let _ = session.outbox.send(message.to_string().into_bytes());
                    }
                }
            }
        }
    }
}

/// A database server that does as it is told. Clones are handles to the same one.
#[derive(Debug, Clone)]
pub struct OvsdbServer {
    state: Arc<Mutex<State>>,
    tasks: Arc<Tasks>,
    /// How many messages have been received, for waiting.
    heard: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Tasks(Mutex<Vec<JoinHandle<()>>>);

impl Tasks {
    fn keep(&self, task: JoinHandle<()>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(task);
    }

    fn end(&self) {
        for task in self.0.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            task.abort();
        }
    }
}

impl Drop for Tasks {
    fn drop(&mut self) {
        self.end();
    }
}

impl OvsdbServer {
    /// A server with one database without rows. The schema is as `get_schema` gives it.
    pub fn new(database: &str, schema: Value) -> Self {
        let state = State {
            model: Model::new(database, schema),
            sessions: BTreeMap::new(),
            next_session: 0,
            lacks: BTreeSet::new(),
            refuses: BTreeMap::new(),
            answers: BTreeMap::new(),
            requests: Vec::new(),
            replies: Vec::new(),
            hang: false,
            chunk: usize::MAX,
        };
        Self { state: Arc::new(Mutex::new(state)), tasks: Arc::default(), heard: watch::Sender::new(0) }
    }

    /// A server with the database of a switch, as far as it matters here.
    pub fn switch() -> Self {
        Self::new(
            "Open_vSwitch",
            schema(
                "Open_vSwitch",
                "8.3.1",
                &[
                    (
                        "Open_vSwitch",
                        "cur_cfg next_cfg dpdk_initialized dpdk_version ovs_version",
                        "bridges external_ids",
                    ),
                    ("Bridge", "name datapath_type fail_mode", "ports external_ids controller mirrors"),
                    ("Port", "name bond_mode lacp", "interfaces external_ids"),
                    (
                        "Interface",
                        "name type admin_state link_state link_speed link_resets error ifindex ofport mac_in_use mtu duplex \
                         ingress_policing_rate ingress_policing_burst",
                        "external_ids status statistics options",
                    ),
                    ("Controller", "is_connected", ""),
                    ("Mirror", "name output_port select_all", "external_ids select_src_port select_dst_port"),
                ],
            ),
        )
    }

    /// A server with OVN's southbound database, as far as it matters here.
    pub fn southbound() -> Self {
        Self::new(
            "OVN_Southbound",
            schema(
                "OVN_Southbound",
                "20.27.0",
                &[
                    ("SB_Global", "nb_cfg", ""),
                    ("Chassis", "name hostname", ""),
                    ("Chassis_Private", "name nb_cfg", ""),
                    ("Port_Binding", "logical_port type chassis parent_port", "additional_chassis"),
                    ("Logical_Flow", "table_id", ""),
                    ("Multicast_Group", "name", ""),
                ],
            ),
        )
    }

    fn with<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        act(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Listens on a port of the loopback.
    pub async fn listen_tcp(&self) -> io::Result<Remote> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let port = listener.local_addr()?.port();
        let server = self.handle();
        self.tasks.keep(tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                server.spawn(stream);
            }
        }));
        Ok(Remote::Tcp { host: "127.0.0.1".into(), port })
    }

    /// Listens on a socket, in place of what may be there.
    pub fn listen_unix(&self, path: impl AsRef<Path>) -> io::Result<Remote> {
        let path = path.as_ref().to_owned();
        let _ = std::fs::remove_file(&path);
        let listener = UnixListener::bind(&path)?;
        let server = self.handle();
        self.tasks.keep(tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                server.spawn(stream);
            }
        }));
        Ok(Remote::Unix(path))
    }

    /// Serves a stream that is already there, such as one of TLS.
    pub fn serve(&self, stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static) {
        self.handle().spawn(stream);
    }

    fn handle(&self) -> Handle {
        Handle { state: Arc::clone(&self.state), tasks: Arc::downgrade(&self.tasks), heard: self.heard.clone() }
    }

    /// Nobody listens any more, and all connections end.
    pub fn stop(&self) {
        self.tasks.end();
        self.with(|state| state.sessions.clear());
    }

    /// All connections end; new ones are welcome.
    pub fn cut(&self) {
        self.with(|state| state.sessions.clear());
    }

    /// Forgets the history, as a server that was restarted.
    pub fn forget(&self) {
        self.with(|state| state.model.history.clear());
    }

    /// Does not know this method.
    pub fn lacks(&self, method: &str) {
        self.with(|state| state.lacks.insert(method.to_owned()));
    }

    /// Answers this method with this error.
    pub fn refuse(&self, method: &str, error: Value) {
        self.with(|state| state.refuses.insert(method.to_owned(), error));
    }

    /// Answers this method with this result.
    pub fn answer(&self, method: &str, result: Value) {
        self.with(|state| state.answers.insert(method.to_owned(), result));
    }

    /// Says nothing any more, or speaks again.
    pub fn hang(&self, hang: bool) {
        self.with(|state| state.hang = hang);
    }

    /// Writes in pieces of this many bytes, each on its own.
    pub fn chunk(&self, bytes: usize) {
        self.with(|state| state.chunk = bytes.max(1));
    }

    /// Sends these bytes to all clients, in one piece.
    pub fn send(&self, bytes: impl Into<Vec<u8>>) {
        let bytes = bytes.into();
        self.with(|state| {
            for session in state.sessions.values() {
                let _ = session.outbox.send(bytes.clone());
            }
        });
    }

    /// How many clients there are.
    pub fn clients(&self) -> usize {
        self.with(|state| state.sessions.len())
    }

    /// All requests of clients with this method so far.
    pub fn requests(&self, method: &str) -> Vec<Value> {
        self.with(|state| state.requests.iter().filter(|request| request["method"] == method).cloned().collect())
    }

    /// All answers of clients so far.
    pub fn replies(&self) -> Vec<Value> {
        self.with(|state| state.replies.clone())
    }

    /// Waits until what clients said makes this true.
    pub async fn until(&self, mut holds: impl FnMut(&Self) -> bool) {
        let mut heard = self.heard.subscribe();
        while !holds(self) {
            if heard.changed().await.is_err() {
                return;
            }
        }
    }

    /// A new row.
    pub fn insert(&self, table: &str, row: Row) -> Uuid {
        self.with(|state| {
            let uuid = state.model.fresh();
            let change = state.model.put(table, uuid, Some(row));
            state.tell(&change);
            uuid
        })
    }

    /// Another value of a column.
    pub fn set(&self, table: &str, uuid: Uuid, column: &str, value: impl Into<Datum>) {
        self.with(|state| {
            let row = state.model.tables.get(table).and_then(|rows| rows.get(&uuid));
            let row = row.map(|row| row.as_ref().clone()).unwrap_or_default().with(column, value);
            let change = state.model.put(table, uuid, Some(row));
            state.tell(&change);
        });
    }

    /// A row goes.
    pub fn delete(&self, table: &str, uuid: Uuid) {
        self.with(|state| {
            let change = state.model.put(table, uuid, None);
            state.tell(&change);
        });
    }
}

/// A schema of columns with one value and columns with several.
fn schema(name: &str, version: &str, tables: &[(&str, &str, &str)]) -> Value {
    let tables: BTreeMap<&str, Value> = tables
        .iter()
        .map(|(table, single, several)| {
            let single = single.split_whitespace().map(|column| (column, json!({ "type": "string" })));
            let several = several
                .split_whitespace()
                .map(|column| (column, json!({ "type": { "key": "string", "min": 0, "max": "unlimited" } })));
            (*table, json!({ "columns": single.chain(several).collect::<BTreeMap<_, _>>() }))
        })
        .collect();
    json!({ "name": name, "version": version, "tables": tables })
}

/// What the tasks hold: not the tasks themselves.
#[derive(Clone)]
struct Handle {
    state: Arc<Mutex<State>>,
    tasks: std::sync::Weak<Tasks>,
    heard: watch::Sender<u64>,
}

impl Handle {
    fn with<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        act(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn spawn(&self, stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static) {
        let Some(tasks) = self.tasks.upgrade() else { return };
        let (outbox, letters) = mpsc::unbounded_channel();
        let session = self.with(|state| {
            state.next_session += 1;
            state.sessions.insert(state.next_session, Session { outbox, watches: Vec::new() });
            state.next_session
        });
        let handle = self.clone();
        tasks.keep(tokio::spawn(async move {
            handle.serve(stream, session, letters).await;
            handle.with(|state| state.sessions.remove(&session));
        }));
    }

    async fn serve(
        &self,
        stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
        session: u64,
        mut letters: mpsc::UnboundedReceiver<Vec<u8>>,
    ) -> Option<()> {
        let (mut reader, mut writer) = tokio::io::split(stream);
        let (mut framer, mut buffer) = (Framer::new(16 << 20), BytesMut::new());
        loop {
            tokio::select! {
                read = reader.read_buf(&mut buffer) => {
                    if read.ok()? == 0 {
                        return None;
                    }
                    while let Some(message) = framer.next(&mut buffer).ok()? {
                        let message: Value = serde_json::from_slice(&message).ok()?;
                        self.take(session, message);
                        self.heard.send_modify(|count| *count += 1);
                    }
                }
                // Without its outbox a session has been cut.
                letter = letters.recv() => {
                    let letter = letter?;
                    let chunk = self.with(|state| state.chunk);
                    for piece in letter.chunks(chunk.min(letter.len().max(1))) {
                        writer.write_all(piece).await.ok()?;
                        writer.flush().await.ok()?;
                        tokio::task::yield_now().await;
                    }
                }
            }
        }
    }

    fn take(&self, session: u64, message: Value) {
        self.with(|state| {
            if message["method"].is_null() {
                state.replies.push(message);
                return;
            }
            state.requests.push(message.clone());
            let answer = answer(state, session, &message);
            if state.hang {
                return;
            }
            let reply = match answer {
                Ok(result) => json!({ "id": message["id"], "result": result, "error": null }),
                Err(error) => json!({ "id": message["id"], "result": null, "error": error }),
            };
            if let Some(session) = state.sessions.get(&session) {
                let _ = session.outbox.send(reply.to_string().into_bytes());
            }
        });
    }
}

fn answer(state: &mut State, session: u64, request: &Value) -> Result<Value, Value> {
    let method = request["method"].as_str().unwrap_or_default();
    let params = &request["params"];
    if state.lacks.contains(method) {
        return Err(json!({ "error": "unknown method", "details": method }));
    }
    if let Some(error) = state.refuses.get(method) {
        return Err(error.clone());
    }
    if let Some(result) = state.answers.get(method) {
        return Ok(result.clone());
    }
    let known = params[0] == json!(state.model.database);
    match method {
        "echo" => Ok(params.clone()),
        "list_dbs" => Ok(json!([state.model.database, "_Server"])),
        "monitor_cancel" => Ok(json!({})),
        "monitor_cond_change" => Ok(change_conditions(state, session, params)),
        _ if !known => Err(json!({ "error": "unknown database", "details": params[0] })),
        "get_schema" => Ok(state.model.schema.clone()),
        "monitor" => Ok(monitor(state, session, params, 1)),
        "monitor_cond" => Ok(monitor(state, session, params, 2)),
        "monitor_cond_since" => Ok(monitor(state, session, params, 3)),
        "transact" => {
            let operations = params.as_array().map(|params| &params[1..]).unwrap_or_default();
            Ok(operations.iter().map(|operation| state.model.select(operation).unwrap_or_else(|| json!({}))).collect())
        }
        other => Err(json!({ "error": "unknown method", "details": other })),
    }
}

fn monitor(state: &mut State, session: u64, params: &Value, generation: u8) -> Value {
    let tables = params[2].as_object().into_iter().flatten();
    let tables = tables
        .map(|(table, request)| {
            let request = if request.is_array() { &request[0] } else { request };
            let columns = request["columns"].as_array().into_iter().flatten();
            let columns = columns.filter_map(Value::as_str).map(ToOwned::to_owned).collect();
            (table.clone(), (columns, request["where"].as_array().cloned()))
        })
        .collect();
    let watch = Watch { id: params[1].clone(), generation, tables };
    let since = params[3].as_str().and_then(|since| Uuid::try_parse(since).ok());
    let missed = since.and_then(|since| state.model.since(&watch, since));
    let found = missed.is_some();
    let updates = missed.unwrap_or_else(|| state.model.initial(&watch));
    if let Some(session) = state.sessions.get_mut(&session) {
        session.watches.push(watch);
    }
    if generation == 3 { json!([found, state.model.last().to_string(), updates]) } else { updates }
}

/// Rows that come and go by new conditions are told before the answer, as the real server does.
fn change_conditions(state: &mut State, session: u64, params: &Value) -> Value {
    let Some(found) = state.sessions.get_mut(&session) else { return json!({}) };
    for watch in found.watches.iter_mut().filter(|watch| watch.id == params[0]) {
        let before = state.model.initial(watch);
        for (table, request) in params[2].as_object().into_iter().flatten() {
            if let Some((_, clauses)) = watch.tables.get_mut(table) {
                *clauses = request[0]["where"].as_array().cloned();
            }
        }
        let after = state.model.initial(watch);
        let mut updates = json!({});
        for (table, rows) in after.as_object().into_iter().flatten() {
            for (uuid, row) in rows.as_object().into_iter().flatten() {
                if before[table][uuid].is_null() {
                    updates[table][uuid] = json!({ "insert": row["initial"] });
                }
            }
        }
        for (table, rows) in before.as_object().into_iter().flatten() {
            for uuid in rows.as_object().into_iter().flatten().map(|(uuid, _)| uuid) {
                if after[table][uuid].is_null() {
                    updates[table][uuid] = json!({ "delete": null });
                }
            }
        }
        let (method, params) = match watch.generation {
            3 => ("update3", json!([watch.id, state.model.last().to_string(), updates])),
            _ => ("update2", json!([watch.id, updates])),
        };
        let message = json!({ "id": null, "method": method, "params": params });
        let _ = found.outbox.send(message.to_string().into_bytes());
    }
    json!({})
}
