//! A private system bus in a directory of its own, and the services on it.

use std::{
    collections::HashMap,
    io::{BufRead, BufReader},
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::Duration,
};

use cobalt_core::host::HostEvent;
use cobalt_host::{Options, Systemd};
use futures::{StreamExt, stream::BoxStream};
use serde::{Serialize, de::DeserializeOwned};
use tempfile::TempDir;
use zbus::{Connection, DynamicType, Type, Variant, connection::Builder};

pub(crate) const SYSTEMD: (&str, &str, &str) =
    ("org.freedesktop.systemd1", "/org/freedesktop/systemd1", "org.freedesktop.systemd1.Manager");
pub(crate) const LOGIND: (&str, &str, &str) =
    ("org.freedesktop.login1", "/org/freedesktop/login1", "org.freedesktop.login1.Manager");
pub(crate) const HOSTNAMED: (&str, &str, &str) =
    ("org.freedesktop.hostname1", "/org/freedesktop/hostname1", "org.freedesktop.hostname1");
const MOCK: &str = "org.freedesktop.DBus.Mock";
/// Generous: a loaded machine is slow, a broken program is not waited for much longer.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// Python of the distribution, which has the mock; another one may stand before it in the path.
const PYTHON: &str = "/usr/bin/python3";

/// Ends with its owner.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Which clients the bus lets in.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Auth {
    External,
    Anonymous,
    /// A mechanism that we do not speak.
    Foreign,
}

/// A bus and its services; all of it ends with this value.
pub(crate) struct Rig {
    /// By their names on the bus.
    services: HashMap<String, Process>,
    daemon: Option<Process>,
    control: Option<Connection>,
    auth: Auth,
    directory: TempDir,
}

impl Rig {
    /// A bus without services, or the word that the test named so is skipped.
    pub(crate) async fn bus(test: &str, auth: Auth) -> Option<Self> {
        let runs = |program: &str, arguments: &[&str]| {
            let mut command = Command::new(program);
            let command = command.args(arguments).stdout(Stdio::null()).stderr(Stdio::null());
            command.status().is_ok_and(|status| status.success())
        };
        if !runs("dbus-daemon", &["--version"]) {
            eprintln!("SKIPPED {test}: no dbus-daemon (package dbus-daemon)");
            return None;
        }
        if !runs(PYTHON, &["-c", "import dbusmock"]) {
            eprintln!("SKIPPED {test}: {PYTHON} has no dbusmock (package python3-dbusmock)");
            return None;
        }
        let directory = tempfile::tempdir().unwrap();
        let mut rig = Self { services: HashMap::new(), daemon: None, control: None, auth, directory };
        rig.start_bus().await;
        Some(rig)
    }

    /// A host with systemd, logind and hostnamed.
    pub(crate) async fn host(test: &str) -> Option<Self> {
        let mut rig = Self::bus(test, Auth::External).await?;
        rig.start_services().await;
        Some(rig)
    }

    pub(crate) async fn start_services(&mut self) {
        self.start_systemd().await;
        self.start_logind().await;
        self.start_hostnamed().await;
    }

    fn socket(&self) -> PathBuf {
        self.directory.path().join("bus")
    }

    pub(crate) fn options(&self) -> Options {
        let address = format!("unix:path={}", self.socket().display());
        // Slow machines need longer than hosts; what must time out sets its own limit.
        Options::default().address(address).root(self.root()).timeout(LIMIT)
    }

    /// Where the files of the host are.
    pub(crate) fn root(&self) -> PathBuf {
        self.directory.path().join("root")
    }

    pub(crate) fn write(&self, path: &str, content: &str) {
        let path = self.root().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }

    pub(crate) async fn systemd(&self) -> Systemd {
        Systemd::connect(&self.options()).await.unwrap()
    }

    pub(crate) async fn start_bus(&mut self) {
        let socket = self.socket();
        let auth = match self.auth {
            Auth::External => "<auth>EXTERNAL</auth>",
            Auth::Anonymous => "<auth>ANONYMOUS</auth><allow_anonymous/>",
            Auth::Foreign => "<auth>DBUS_COOKIE_SHA1</auth>",
        };
        let config = format!(
            "<!DOCTYPE busconfig PUBLIC \"-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN\"
             \"http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd\">
             <busconfig><listen>unix:path={}</listen>{auth}
             <policy context=\"default\"><allow user=\"*\"/><allow own=\"*\"/><allow send_type=\"method_call\"/>
             <allow send_type=\"signal\"/><allow send_destination=\"*\" eavesdrop=\"true\"/>
             <allow receive_sender=\"*\"/></policy></busconfig>",
            socket.display()
        );
        let file = self.directory.path().join("bus.conf");
        std::fs::write(&file, config).unwrap();
        let _ = std::fs::remove_file(&socket);
        let log = self.directory.path().join("bus.log");
        let mut child = Command::new("dbus-daemon")
            .arg(format!("--config-file={}", file.display()))
            .args(["--nofork", "--nopidfile", "--nosyslog", "--print-address"])
            .stdout(Stdio::piped())
            .stderr(std::fs::File::create(&log).unwrap())
            .spawn()
            .unwrap();
        // It prints its address once it listens.
        let mut address = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut address).unwrap();
        assert!(address.starts_with("unix:path="), "no bus: {}", std::fs::read_to_string(&log).unwrap());
        self.daemon = Some(Process(child));
        if !matches!(self.auth, Auth::Foreign) {
            self.control = Some(self.client().await);
        }
    }

    /// The bus dies, and its services with it.
    pub(crate) fn stop_bus(&mut self) {
        self.control = None;
        self.daemon = None;
        self.services.clear();
    }

    /// Another client of the bus.
    pub(crate) async fn client(&self) -> Connection {
        let mechanism = match self.auth {
            Auth::External | Auth::Foreign => zbus::connection::AuthMechanism::External,
            Auth::Anonymous => zbus::connection::AuthMechanism::Anonymous,
        };
        let address = format!("unix:path={}", self.socket().display());
        Builder::address(address.as_str()).auth_mechanism(mechanism).build().await.unwrap()
    }

    pub(crate) async fn start_systemd(&mut self) {
        let template = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/host/mock/systemd1.py");
        self.start(&["--template", template], SYSTEMD.0).await;
        self.set_unit("libvirtd.service", "loaded", "active").await;
    }

    pub(crate) async fn start_logind(&mut self) {
        self.start_logind_with("{}").await;
    }

    /// A logind whose properties are these from the beginning.
    pub(crate) async fn start_logind_with(&mut self, properties: &str) {
        self.start(&["--template", "logind", "--parameters", properties], LOGIND.0).await;
        self.add_property(LOGIND, "InhibitDelayMaxUSec", 1_800_000_000_u64).await;
    }

    /// A hostnamed of the time before it could describe itself.
    pub(crate) async fn start_bare_hostnamed(&mut self) {
        self.start(&[HOSTNAMED.0, HOSTNAMED.1, HOSTNAMED.2], HOSTNAMED.0).await;
    }

    pub(crate) async fn start_hostnamed(&mut self) {
        self.start_bare_hostnamed().await;
        self.describe(include_str!("mock/describe.json")).await;
    }

    /// One service ends, the bus and the others stay.
    pub(crate) async fn stop(&mut self, name: &str) {
        assert!(self.services.remove(name).is_some(), "{name} was not started");
        eventually("the name is free", async || !self.is_on_the_bus(name).await).await;
    }

    async fn is_on_the_bus(&self, name: &str) -> bool {
        let bus = ("org.freedesktop.DBus", "/org/freedesktop/DBus", "org.freedesktop.DBus");
        self.call(bus, "NameHasOwner", &(name,)).await
    }

    async fn start(&mut self, arguments: &[&str], name: &str) {
        let child = Command::new(PYTHON)
            .args(["-m", "dbusmock", "--system"])
            .args(arguments)
            .env("DBUS_SYSTEM_BUS_ADDRESS", format!("unix:path={}", self.socket().display()))
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        self.services.insert(name.to_owned(), Process(child));
        eventually(name, async || self.is_on_the_bus(name).await).await;
    }

    /// Calls a method as any client would.
    pub(crate) async fn call<B, R>(&self, service: (&str, &str, &str), method: &str, body: &B) -> R
    where
        B: Serialize + DynamicType,
        R: DeserializeOwned + Type,
    {
        let control = self.control.as_ref().unwrap();
        let call = control.call_method(Some(service.0), service.1, Some(service.2), method, body);
        let reply = tokio::time::timeout(LIMIT, call).await.unwrap();
        reply.unwrap_or_else(|error| panic!("{method}: {error}")).body().deserialize().unwrap()
    }

    pub(crate) async fn set_unit(&self, name: &str, load_state: &str, active: &str) {
        self.call::<_, ()>((SYSTEMD.0, SYSTEMD.1, MOCK), "SetUnit", &(name, load_state, active)).await;
    }

    pub(crate) async fn set_alias(&self, alias: &str, name: &str) {
        self.call::<_, ()>((SYSTEMD.0, SYSTEMD.1, MOCK), "SetAlias", &(alias, name)).await;
    }

    pub(crate) async fn emit(&self, service: (&str, &str, &str), signal: &str, types: &str, values: &[Variant<'_>]) {
        let body = (service.2, signal, types, values);
        self.call::<_, ()>((service.0, service.1, MOCK), "EmitSignal", &body).await;
    }

    pub(crate) async fn announce_shutdown(&self, announced: bool) {
        self.emit(LOGIND, "PrepareForShutdown", "b", &[Variant::from(announced)]).await;
    }

    pub(crate) async fn add_property<'v>(
        &self,
        service: (&str, &str, &str),
        name: &str,
        value: impl Into<Variant<'v>>,
    ) {
        self.call::<_, ()>((service.0, service.1, MOCK), "AddProperty", &(service.2, name, value.into())).await;
    }

    pub(crate) async fn set_property<'v>(
        &self,
        service: (&str, &str, &str),
        name: &str,
        value: impl Into<Variant<'v>>,
    ) {
        let changed = HashMap::from([(name, value.into())]);
        self.call::<_, ()>((service.0, service.1, MOCK), "UpdateProperties", &(service.2, changed)).await;
    }

    /// What hostnamed answers from now on.
    pub(crate) async fn describe(&self, description: &str) {
        let code = format!("ret = {}", serde_json::Value::from(description));
        let body = (HOSTNAMED.2, "Describe", "", "s", code);
        self.call::<_, ()>((HOSTNAMED.0, HOSTNAMED.1, MOCK), "AddMethod", &body).await;
    }

    /// Who delays shutdowns: what, who, why, how.
    pub(crate) async fn inhibitors(&self) -> Vec<[String; 4]> {
        type Listed = Vec<(String, String, String, String, u32, u32)>;
        let listed: Listed = self.call(LOGIND, "ListInhibitors", &()).await;
        listed.into_iter().map(|(what, who, why, how, ..)| [what, who, why, how]).collect()
    }
}

/// Asks until the answer is yes.
pub(crate) async fn eventually(what: &str, mut ask: impl AsyncFnMut() -> bool) {
    let asking = async {
        while !ask().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(LIMIT, asking).await.unwrap_or_else(|_| panic!("not in time: {what}"));
}

/// The next event, which must come.
pub(crate) async fn next(events: &mut BoxStream<'static, HostEvent>) -> HostEvent {
    tokio::time::timeout(LIMIT, events.next()).await.expect("an event in time").expect("the stream goes on")
}

/// Waits for an event, past others.
pub(crate) async fn until(events: &mut BoxStream<'static, HostEvent>, wanted: &HostEvent) {
    while next(events).await != *wanted {}
}
