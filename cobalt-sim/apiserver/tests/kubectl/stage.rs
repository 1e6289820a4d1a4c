//! A server with the recorded objects, and kubectl in front of it.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

use cobalt_apiserver::ApiServer;
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tower::ServiceExt;

use crate::recording::{arguments, record, stable, text};

/// No command takes as long as this, however slow the machine is.
const LIMIT: Duration = Duration::from_secs(60);

/// What a command did.
pub(crate) struct Outcome {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

pub(crate) struct Stage {
    runtime: Runtime,
    server: ApiServer,
    kubectl: PathBuf,
    directory: PathBuf,
}

impl Stage {
    /// Starts a server that holds what the recorded one held at first.
    pub(crate) fn new(name: &str, kubectl: PathBuf) -> Self {
        let runtime = Runtime::new().expect("a runtime");
        let (server, address) = runtime.block_on(async {
            let server = ApiServer::start();
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
            let address = listener.local_addr().expect("an address");
            let serving = server.clone();
            tokio::spawn(async move { serving.serve(listener, std::future::pending()).await });
            (server, address)
        });
        let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("a directory");
        std::fs::write(directory.join("kubeconfig"), server.kubeconfig(address)).expect("a kubeconfig");
        let stage = Self { runtime, server, kubectl, directory };
        stage.populate();
        stage
    }

    /// The server behind the socket.
    pub(crate) fn server(&self) -> &ApiServer {
        &self.server
    }

    /// Waits for something the server does, but not for ever.
    pub(crate) fn wait<F: Future>(&self, future: F) -> F::Output {
        self.runtime.block_on(async { tokio::time::timeout(LIMIT, future).await }).expect("the server is in time")
    }

    fn populate(&self) {
        for definition in [
            include_str!("../wire/crd-hypervisor.json"),
            include_str!("../wire/crd-eviction.json"),
            include_str!("../wire/crd-gadget.json"),
        ] {
            let definition = serde_json::from_str(definition).expect("a definition");
            self.send("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition);
        }
        self.wait(self.server.settle());
        let recorded = record("8.002-table-hv-includeobject");
        for row in recorded["response"]["body"]["rows"].as_array().expect("rows") {
            let mut object = row["object"].clone();
            let labels = object["metadata"]["labels"].take();
            object["metadata"] = json!({"name": object["metadata"]["name"], "labels": labels});
            let created = self.send("POST", "/apis/kvm.cloud.sap/v1/hypervisors", &object);
            if object["status"].is_object() {
                let path = format!("/apis/kvm.cloud.sap/v1/hypervisors/{}/status", text(&object["metadata"], "name"));
                self.send("PATCH", &path, &json!({"status": object["status"]}));
            }
            if created["metadata"]["name"] == "hv1" {
                let event = json!({
                    "metadata": {"name": "e1"},
                    "reason": "Onboarded",
                    "message": "hello",
                    "count": 3,
                    "firstTimestamp": "2026-01-01T00:00:00Z",
                    "lastTimestamp": "2026-01-01T00:00:00Z",
                    "source": {"component": "operator"},
                });
                self.report(&created, event);
            }
        }
        let node = json!({
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": "node1", "annotations": {"node.alpha.kubernetes.io/ttl": "0"}},
        });
        let node = self.send("POST", "/api/v1/nodes", &node);
        // A new node is tainted until it is ready; the controller that sees to it is not here.
        self.send("PATCH", "/api/v1/nodes/node1", &json!({"spec": {"taints": null}}));
        let event = json!({
            "metadata": {"name": "node1.18e900b2cf02af1d"},
            "reason": "RegisteredNode",
            "message": "Node node1 event: Registered Node node1 in Controller",
            "count": 1,
            "firstTimestamp": node["metadata"]["creationTimestamp"],
            "lastTimestamp": node["metadata"]["creationTimestamp"],
            "source": {"component": "node-controller"},
        });
        self.report(&node, event);
    }

    /// Stores an event about an object.
    fn report(&self, about: &Value, mut event: Value) {
        event["involvedObject"] = json!({
            "apiVersion": about["apiVersion"],
            "kind": about["kind"],
            "name": about["metadata"]["name"],
            "uid": about["metadata"]["uid"],
        });
        event["type"] = "Normal".into();
        self.send("POST", "/api/v1/namespaces/default/events", &event);
    }

    /// Changes the spec of a hypervisor behind the back of kubectl.
    pub(crate) fn change(&self, name: &str, spec: &Value) {
        self.send("PATCH", &format!("/apis/kvm.cloud.sap/v1/hypervisors/{name}"), &json!({"spec": spec}));
    }

    /// Creates a gadget, which can be scaled.
    pub(crate) fn gadget(&self, name: &str) {
        let gadget =
            json!({"apiVersion": "wire.test/v1", "kind": "Gadget", "metadata": {"name": name}, "spec": {"num": 5}});
        self.send("POST", "/apis/wire.test/v1/namespaces/default/gadgets", &gadget);
    }

    /// One request that must succeed; patches are merge patches.
    pub(crate) fn send(&self, method: &str, path: &str, body: &Value) -> Value {
        let media = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
        let request = http::Request::builder().method(method).uri(path).header("content-type", media);
        let request = request.header("user-agent", "other/1.0");
        let request = request.body(Full::new(bytes::Bytes::from(body.to_string()))).expect("a request");
        self.wait(async {
            let response = self.server.service("other").oneshot(request).await.expect("an answer");
            let status = response.status();
            let bytes = response.into_body().collect().await.expect("a body").to_bytes();
            let body = String::from_utf8_lossy(&bytes).into_owned();
            assert!(status.is_success(), "{method} {path}: {status} {body}");
            serde_json::from_str(&body).expect("JSON")
        })
    }

    /// Waits until an object of a collection is being deleted.
    pub(crate) fn deletion_of(&self, collection: &str, name: &str) {
        let path = format!("{collection}?watch=true&fieldSelector=metadata.name%3D{name}");
        let request = http::Request::get(path).body(Full::new(bytes::Bytes::new())).expect("a request");
        let deleting = async {
            let mut body = self.server.service("other").oneshot(request).await.expect("a watch").into_body();
            let mut seen = String::new();
            while let Some(frame) = body.frame().await {
                let frame = frame.expect("a frame").into_data().expect("data");
                seen.push_str(&String::from_utf8_lossy(&frame));
                if seen.contains("deletionTimestamp") {
                    return;
                }
            }
            panic!("the watch has ended: {seen}");
        };
        self.wait(deleting);
    }

    /// Writes a file into the directory kubectl runs in.
    pub(crate) fn file(&self, name: &str, content: &Value) {
        std::fs::write(self.directory.join(name), content.to_string()).expect("a file");
    }

    fn command<S: AsRef<std::ffi::OsStr>>(&self, arguments: &[S]) -> Command {
        let mut command = Command::new(&self.kubectl);
        command
            .args(arguments)
            .current_dir(&self.directory)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", &self.directory)
            .env("KUBECONFIG", self.directory.join("kubeconfig"))
            .env("KUBE_EDITOR", "sed -i 's/skipTests: false/skipTests: true/'")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// Runs kubectl to its end.
    pub(crate) fn run<S: AsRef<std::ffi::OsStr>>(&self, arguments: &[S]) -> Outcome {
        let mut child = Guard(self.command(arguments).spawn().expect("kubectl starts"));
        let stdout = whole(child.0.stdout.take().expect("a pipe"));
        let stderr = whole(child.0.stderr.take().expect("a pipe"));
        let wait = |pipe: Receiver<String>| pipe.recv_timeout(LIMIT).expect("kubectl ends in time");
        let (stdout, stderr) = (wait(stdout), wait(stderr));
        let code = child.0.wait().expect("kubectl has ended").code();
        Outcome { code, stdout, stderr }
    }

    /// Runs a recorded command; it must say and return what was recorded.
    pub(crate) fn session(&self, id: &str) {
        let recorded = record(id);
        let outcome = self.run(&arguments(&recorded));
        let recorded_code = recorded["exitCode"].as_i64().and_then(|code| i32::try_from(code).ok());
        let shown = format!("{}\n{}", outcome.stdout, outcome.stderr);
        assert_eq!(stable(&outcome.stdout), stable(text(&recorded, "stdout")), "stdout of {id}:\n{shown}");
        assert_eq!(stable(&outcome.stderr), stable(text(&recorded, "stderr")), "stderr of {id}:\n{shown}");
        assert_eq!(outcome.code, recorded_code, "exit code of {id}:\n{shown}");
    }

    /// Runs a recorded command that does not end by itself. `change` happens once the first `initial` lines are
    /// there; all recorded lines must come.
    pub(crate) fn watch(&self, id: &str, initial: usize, change: impl FnOnce()) {
        let recorded = record(id);
        let mut child = Guard(self.command(&arguments(&recorded)).spawn().expect("kubectl starts"));
        let lines = lines(child.0.stdout.take().expect("a pipe"));
        let mut change = Some(change);
        for (index, expected) in text(&recorded, "stdout").lines().enumerate() {
            if index == initial
                && let Some(change) = change.take()
            {
                change();
            }
            let line = lines.recv_timeout(LIMIT).unwrap_or_else(|_| panic!("{id}: line {index} did not come"));
            assert_eq!(stable(&line), stable(expected), "line {index} of {id}");
        }
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// Ends a child that its test has left behind.
struct Guard(Child);

impl Drop for Guard {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn whole(mut pipe: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = sync_channel(1);
    std::thread::spawn(move || {
        let mut text = Vec::new();
        let _ = pipe.read_to_end(&mut text);
        let _ = sender.send(String::from_utf8_lossy(&text).into_owned());
    });
    receiver
}

fn lines(pipe: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = sync_channel(64);
    std::thread::spawn(move || {
        for line in BufReader::new(pipe).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    receiver
}

/// A hypervisor as a manifest.
pub(crate) fn hypervisor(name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "kvm.cloud.sap/v1", "kind": "Hypervisor", "metadata": {"name": name}, "spec": spec})
}

/// A config map as a manifest.
pub(crate) fn config_map(name: &str, data: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}, "data": data})
}

/// Drains `node1` of a pod. The kubelet that ends the pod is played by the test.
pub(crate) fn drain(stage: &Stage) {
    let pods = "/api/v1/namespaces/default/pods";
    let pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "guest"},
        "spec": {"nodeName": "node1", "containers": [{"name": "c", "image": "i"}]},
    });
    stage.send("POST", pods, &pod);
    std::thread::scope(|scope| {
        let drained = scope.spawn(|| stage.run(&["drain", "node1", "--force", "--ignore-daemonsets"]));
        stage.deletion_of(pods, "guest");
        stage.send("DELETE", &format!("{pods}/guest"), &json!({"gracePeriodSeconds": 0}));
        let outcome = drained.join().expect("a run");
        assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
        assert!(outcome.stdout.contains("evicting pod default/guest"), "{}", outcome.stdout);
        assert!(outcome.stdout.contains("pod/guest evicted"), "{}", outcome.stdout);
    });
}
