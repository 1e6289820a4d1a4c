//! A control socket.

use std::{
    collections::{BTreeMap, VecDeque},
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use bytes::BytesMut;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{UnixListener, UnixStream},
    task::AbortHandle,
};

use crate::jsonrpc::Framer;

#[derive(Debug)]
struct State {
    /// The next ones; the last of them stays.
    answers: BTreeMap<String, VecDeque<Result<String, String>>>,
    calls: Vec<String>,
    hang: bool,
    chunk: usize,
}

/// A daemon's control socket that answers as it is told. It ends when it is dropped, and leaves its file behind as a
/// killed daemon does.
#[derive(Debug)]
pub struct UnixctlServer {
    state: Arc<Mutex<State>>,
    path: PathBuf,
    task: AbortHandle,
}

impl UnixctlServer {
    /// Listens at this path. Must be called within a tokio runtime.
    pub fn listen(path: impl AsRef<Path>) -> io::Result<Self> {
        let path = path.as_ref().to_owned();
        let _ = std::fs::remove_file(&path);
        let listener = UnixListener::bind(&path)?;
        let state = State { answers: BTreeMap::new(), calls: Vec::new(), hang: false, chunk: 1 << 16 };
        let state = Arc::new(Mutex::new(state));
        let shared = Arc::clone(&state);
        let task = tokio::spawn(async move {
            let mut clients = tokio::task::JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                clients.spawn(serve(stream, Arc::clone(&shared)));
                while clients.try_join_next().is_some() {}
            }
        });
        Ok(Self { state, path, task: task.abort_handle() })
    }

    fn with<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        act(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Where it listens.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Answers this command with this text. A command with its arguments (`bond/show bond0`) goes before the command
    /// alone.
    pub fn answer(&self, command: &str, text: &str) {
        self.answer_in_turn(command, [text]);
    }

    /// Answers this command with each of these texts in turn, and with the last one from then on.
    pub fn answer_in_turn<'a>(&self, command: &str, texts: impl IntoIterator<Item = &'a str>) {
        let texts = texts.into_iter().map(|text| Ok(text.to_owned())).collect();
        self.with(|state| state.answers.insert(command.to_owned(), texts));
    }

    /// Answers this command with this error.
    pub fn refuse(&self, command: &str, text: &str) {
        self.with(|state| state.answers.insert(command.to_owned(), [Err(text.to_owned())].into()));
    }

    /// Takes calls and does not answer, or answers again.
    pub fn hang(&self, hang: bool) {
        self.with(|state| state.hang = hang);
    }

    /// Answers in pieces of this many bytes.
    pub fn chunk(&self, bytes: usize) {
        self.with(|state| state.chunk = bytes.max(1));
    }

    /// The calls so far, with their arguments.
    pub fn calls(&self) -> Vec<String> {
        self.with(|state| state.calls.clone())
    }
}

impl Drop for UnixctlServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(mut stream: UnixStream, state: Arc<Mutex<State>>) -> Option<()> {
    let (mut framer, mut buffer) = (Framer::new(1 << 20), BytesMut::new());
    loop {
        while let Some(message) = framer.next(&mut buffer).ok()? {
            let request: Value = serde_json::from_slice(&message).ok()?;
            let words = request["params"].as_array()?.iter().filter_map(Value::as_str);
            let call = [request["method"].as_str()?].into_iter().chain(words).collect::<Vec<_>>().join(" ");
            let (answer, chunk) = {
                let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
                state.calls.push(call.clone());
                let command = call.split(' ').next().unwrap_or_default();
                let unknown = || Err(format!("\"{command}\" is not a valid command"));
                let known = if state.answers.contains_key(&call) { call.as_str() } else { command };
                let found = state
                    .answers
                    .get_mut(known)
                    .and_then(|answers| if answers.len() > 1 { answers.pop_front() } else { answers.front().cloned() });
                ((!state.hang).then(|| found.unwrap_or_else(unknown)), state.chunk)
            };
            let Some(answer) = answer else { continue };
            let reply = match answer {
                Ok(text) => json!({ "id": request["id"], "result": text, "error": null }),
                Err(text) => json!({ "id": request["id"], "error": text }),
            };
            for piece in reply.to_string().as_bytes().chunks(chunk) {
                stream.write_all(piece).await.ok()?;
                stream.flush().await.ok()?;
                tokio::task::yield_now().await;
            }
        }
        if stream.read_buf(&mut buffer).await.ok()? == 0 {
            return None;
        }
    }
}
