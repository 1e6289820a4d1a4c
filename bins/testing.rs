//! What the tests of all three programs need: to run one, to look at what it said, to end it.
//!
//! A file and not a crate, because cargo tells only a package's own tests where its program is.

#![allow(dead_code, reason = "each program's tests use their part")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::{Arc, Mutex},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// Generous: only a broken program takes this long.
pub(crate) const LIMIT: Duration = Duration::from_secs(600);

/// What a program that has ended said.
#[derive(Debug)]
pub(crate) struct Said {
    /// How it ended.
    pub(crate) code: Option<i32>,
    /// Its standard output.
    pub(crate) out: String,
    /// Its standard error.
    pub(crate) err: String,
}

impl Said {
    /// The program ended with this code, said these words on standard error, and did not panic.
    #[track_caller]
    pub(crate) fn refused(&self, code: i32, words: &[&str]) {
        assert_eq!(self.code, Some(code), "{self:?}");
        assert!(!self.err.contains("panicked"), "{self:?}");
        for word in words {
            assert!(self.err.contains(word), "{word:?} is not in: {}", self.err);
        }
    }
}

/// A command whose behaviour does not depend on who runs the tests.
pub(crate) fn command(program: &str) -> Command {
    let mut command = Command::new(program);
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default()).stdin(Stdio::null());
    command
}

/// Runs a program to its end.
pub(crate) fn run(program: &str, args: &[&str]) -> Said {
    let mut running = Running::start(command(program).args(args));
    let code = running.wait().code();
    Said { code, out: running.out(), err: running.err() }
}

/// Compares a program's help with the snapshot of that name, literally.
#[track_caller]
pub(crate) fn help_is(snapshots: &str, name: &str, program: &str, args: &[&str]) {
    let said = run(program, args);
    assert_eq!(said.code, Some(0), "{said:?}");
    is_kept("help", snapshots, name, &said.out);
}

/// Compares the families with one of these beginnings on a page of metrics with the snapshot `metrics`. What all programs
/// have is held by the library; some of it is there only after something went wrong.
#[track_caller]
pub(crate) fn metrics_are(snapshots: &str, page: &str, beginnings: &[&str]) {
    let ours = |family: &&str| beginnings.iter().any(|beginning| family.starts_with(beginning));
    let mut families: Vec<&str> = page.lines().filter_map(|line| line.strip_prefix("# TYPE ")).filter(ours).collect();
    families.sort_unstable();
    is_kept("metrics", snapshots, "metrics", &(families.join("\n") + "\n"));
}

#[track_caller]
fn is_kept(what: &str, snapshots: &str, name: &str, now: &str) {
    let path = Path::new(snapshots).join(format!("{name}.txt"));
    if std::env::var_os("COBALT_UPDATE_SNAPSHOTS").is_some_and(|value| value == "1") {
        fs::create_dir_all(snapshots).unwrap();
        fs::write(&path, now).unwrap();
    }
    let kept = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        kept == now,
        "the {what} changed; if that is wanted, run the test again with COBALT_UPDATE_SNAPSHOTS=1.\n{}:\n{kept}\nnow:\n{now}",
        path.display(),
    );
}

/// A program that runs; it is killed when this is dropped.
pub(crate) struct Running {
    child: Child,
    out: Arc<Mutex<String>>,
    err: Arc<Mutex<String>>,
    readers: Vec<JoinHandle<()>>,
}

impl Running {
    /// Starts it.
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (out, err) = (Arc::default(), Arc::default());
        let readers = vec![
            follow(child.stdout.take().unwrap(), Arc::clone(&out)),
            follow(child.stderr.take().unwrap(), Arc::clone(&err)),
        ];
        Self { child, out, err, readers }
    }

    /// Its standard output so far.
    pub(crate) fn out(&self) -> String {
        self.out.lock().unwrap().clone()
    }

    /// Its standard error so far.
    pub(crate) fn err(&self) -> String {
        self.err.lock().unwrap().clone()
    }

    /// Waits until `look` finds something in its standard output and error.
    #[track_caller]
    pub(crate) fn until<T>(&mut self, what: &str, look: impl Fn(&str, &str) -> Option<T>) -> T {
        let since = Instant::now();
        loop {
            if let Some(found) = look(&self.out(), &self.err()) {
                return found;
            }
            if let Some(status) = self.child.try_wait().unwrap() {
                panic!("ended with {status} before {what}: {}", self.err());
            }
            assert!(since.elapsed() < LIMIT, "no {what} in: {} {}", self.out(), self.err());
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// The address its admin server says it listens on.
    #[track_caller]
    pub(crate) fn admin_address(&mut self) -> SocketAddr {
        self.until("address of the admin server", |_, err| {
            let line = err.lines().find(|line| line.contains("admin server listens"))?;
            let line: serde_json::Value = serde_json::from_str(line).ok()?;
            line["address"].as_str()?.parse().ok()
        })
    }

    /// Sends it a signal, as `kill` names it.
    pub(crate) fn signal(&self, name: &str) {
        // The standard library cannot, and a shell has it built in.
        let kill = format!("kill -{name} {}", self.child.id());
        assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success());
    }

    /// How it has ended, if it has.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().unwrap()
    }

    /// Waits for its end.
    #[track_caller]
    pub(crate) fn wait(&mut self) -> ExitStatus {
        let since = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(since.elapsed() < LIMIT, "still running: {} {}", self.out(), self.err());
            thread::sleep(Duration::from_millis(20));
        };
        for reader in self.readers.drain(..) {
            reader.join().unwrap();
        }
        status
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn follow(from: impl Read + Send + 'static, into: Arc<Mutex<String>>) -> JoinHandle<()> {
    thread::spawn(move || {
        let mut from = BufReader::new(from);
        let mut line = Vec::new();
        while from.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
            into.lock().unwrap().push_str(&String::from_utf8_lossy(&line));
            line.clear();
        }
    })
}

/// The body of an answer of a program's admin server.
pub(crate) fn get(address: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default()
}

/// The node agent's first page of metrics that says that libvirt is up: a scrape does not wait for long for an answer.
pub(crate) fn libvirt_is_up(admin: SocketAddr) -> String {
    let since = Instant::now();
    loop {
        let page = get(admin, "/metrics");
        if page.contains("\nlibvirt_up 1\n") {
            return page;
        }
        assert!(since.elapsed() < LIMIT, "libvirt is never up: {page}");
        thread::sleep(Duration::from_millis(100));
    }
}

/// A directory of a test's own; it goes with this.
pub(crate) struct Scratch(tempfile::TempDir);

impl Scratch {
    /// A new one.
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// The path of a file in it.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Writes a file and answers with its path.
    pub(crate) fn file(&self, name: &str, text: &str) -> String {
        let path = self.path(name);
        fs::write(&path, text).unwrap();
        path.display().to_string()
    }
}
