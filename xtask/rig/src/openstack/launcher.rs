//! The Python process that runs the services, and how we talk to it.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Mutex, PoisonError, mpsc};
use std::time::Duration;

use serde_json::{Value, json};

use super::config::{self, Layout};
use super::venv::Venv;
use super::{Account, ControlService};
use crate::error::{Error, Result, write};
use crate::namespace::Namespace;
use crate::process;

const PROGRAM: &str = include_str!("python/launcher.py");
const NEUTRON: &str = include_str!("python/neutron.py");

/// The longest step is filling Nova's database on a loaded machine.
const LIMIT: Duration = Duration::from_secs(600);

/// A process within the namespaces, as the launcher knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Pid(i64);

#[derive(Debug)]
pub(super) struct Launcher {
    child: Mutex<Child>,
    talk: Mutex<(ChildStdin, mpsc::Receiver<String>)>,
}

impl Launcher {
    pub(super) fn start(namespace: &Namespace, venv: &Venv, layout: &Layout) -> Result<Launcher> {
        let program = layout.directory.join("launcher.py");
        write(&program, PROGRAM)?;
        write(&layout.directory.join("cobalt_neutron.py"), NEUTRON)?;
        let log = layout.logs().join("launcher.log");
        let errors = std::fs::File::create(&log).map_err(Error::io(format!("write {}", log.display())))?;
        let mut path = venv.directory().join("bin").into_os_string();
        path.push(":");
        path.push(process::path());
        let mut command = Command::new("nsenter");
        command.args(namespace.enter()).arg(venv.program("python")).arg(&program);
        command.env_clear().env("PATH", path).env("LC_ALL", "C.UTF-8").env("HOME", &layout.directory);
        // The installer compiles nothing. What is used is compiled once and kept, beside the packages.
        command.env("PYTHONPATH", &layout.directory);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(errors);
        let mut child = command.spawn().map_err(Error::io("run nsenter"))?;
        let gone = || lost("it has no pipes");
        let (input, output) = (child.stdin.take().ok_or_else(gone)?, child.stdout.take().ok_or_else(gone)?);
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(std::result::Result::ok) {
                // Nobody listens any more when the rig has ended.
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let launcher = Launcher { child: Mutex::new(child), talk: Mutex::new((input, lines)) };
        Launcher::receive(&launcher.talk.lock().unwrap_or_else(PoisonError::into_inner).1).map_err(|_| {
            let said = std::fs::read_to_string(&log).unwrap_or_default();
            lost(said.trim_end().lines().last().unwrap_or("it said nothing"))
        })?;
        Ok(launcher)
    }

    fn receive(lines: &mpsc::Receiver<String>) -> Result<Value> {
        let line = lines.recv_timeout(LIMIT).map_err(|_| lost("it does not answer"))?;
        let answer: Value = serde_json::from_str(&line).map_err(|_| lost(&format!("it said `{line}`")))?;
        match answer["error"].as_str() {
            Some(said) => Err(Error::Failed { command: "the launcher".to_owned(), said: said.to_owned() }),
            None => Ok(answer),
        }
    }

    fn ask(&self, command: &Value) -> Result<Value> {
        let mut talk = self.talk.lock().unwrap_or_else(PoisonError::into_inner);
        writeln!(talk.0, "{command}").map_err(Error::io("talk to the launcher"))?;
        Launcher::receive(&talk.1)
    }

    fn begin(&self, command: &Value) -> Result<Pid> {
        let answer = self.ask(command)?;
        answer["pid"].as_i64().map(Pid).ok_or_else(|| lost("it started nothing"))
    }

    /// Starts a program.
    pub(super) fn exec(&self, words: &[String], env: &Value, log: &Path) -> Result<Pid> {
        self.begin(&json!({"exec": words, "env": env, "log": log}))
    }

    /// Starts a Python function with a command line.
    pub(super) fn call(&self, function: &str, words: &[String], env: &Value, log: &Path) -> Result<Pid> {
        self.begin(&json!({"call": function, "argv": words, "env": env, "log": log}))
    }

    /// Waits for the success of what was started.
    pub(super) fn finish(&self, what: &str, pid: Pid, log: &Path) -> Result<()> {
        let answer = self.ask(&json!({"wait": pid.0}))?;
        if answer["status"] == 0 {
            return Ok(());
        }
        let text = std::fs::read_to_string(log).unwrap_or_default();
        let lines: Vec<&str> = text.trim_end().lines().collect();
        let said = lines[lines.len().saturating_sub(5)..].join("\n");
        Err(Error::Failed { command: what.to_owned(), said })
    }

    pub(super) fn kill(&self, pid: Pid) -> Result<()> {
        self.ask(&json!({"stop": pid.0})).map(drop)
    }

    /// Asks a process to end, and waits for it.
    pub(super) fn terminate(&self, pid: Pid) -> Result<()> {
        self.ask(&json!({"stop": pid.0, "signal": 15})).map(drop)
    }

    /// Sends a signal, and does not wait for what comes of it.
    pub(super) fn tell(&self, pid: Pid, signal: i32) -> Result<()> {
        self.ask(&json!({"tell": pid.0, "signal": signal})).map(drop)
    }

    pub(super) fn is_alive(&self, pid: Pid) -> bool {
        self.ask(&json!({"alive": pid.0})).is_ok_and(|answer| answer["alive"] == true)
    }

    /// Whether somebody listens on a port within.
    pub(super) fn listens(&self, port: u16) -> bool {
        self.ask(&json!({"listens": port})).is_ok_and(|answer| answer["listens"] == true)
    }

    pub(super) fn api_as(
        &self,
        account: Account,
        method: &str,
        service: &str,
        path: &str,
        body: Option<&Value>,
    ) -> Result<(u16, Value)> {
        let answer = self.ask(&json!({"api": [method, service, path, body], "as": account.names()}))?;
        let status = answer["status"].as_u64().and_then(|status| u16::try_from(status).ok()).unwrap_or(0);
        Ok((status, answer["body"].clone()))
    }

    /// A new token of an account.
    pub(super) fn log_in(&self, account: Account) -> Result<String> {
        let answer = self.ask(&json!({"login": account.names()}))?;
        answer["token"].as_str().map(str::to_owned).ok_or_else(|| lost("it got no token"))
    }

    /// What Nova answers to a token.
    pub(super) fn probe(&self, token: &str) -> Result<u16> {
        let answer = self.ask(&json!({"probe": token}))?;
        Ok(answer["status"].as_u64().and_then(|status| u16::try_from(status).ok()).unwrap_or(0))
    }

    /// Fills Keystone with users and endpoints.
    pub(super) fn populate(&self, public: &str) -> Result<()> {
        self.ask(&json!({"populate": public})).map(drop)
    }

    /// Makes flavors and an image, and answers the image's id.
    pub(super) fn furnish(&self) -> Result<String> {
        let answer = self.ask(&json!({"furnish": true}))?;
        answer["id"].as_str().map(str::to_owned).ok_or_else(|| lost("it made no image"))
    }

    /// Makes an image, and answers its id.
    pub(super) fn add_image(&self, name: &str) -> Result<String> {
        let answer = self.ask(&json!({"image": name}))?;
        answer["id"].as_str().map(str::to_owned).ok_or_else(|| lost("it made no image"))
    }

    /// Imports Nova, which its services are forked from.
    pub(super) fn preload(&self) -> Result<()> {
        self.ask(&json!({"preload": true})).map(drop)
    }

    pub(super) fn start_control(&self, service: ControlService, layout: &Layout) -> Result<Pid> {
        let log = layout.logs().join(format!("{}.log", service.name()));
        let wsgi = |module: &str, port: u16, threads: u32, variable: &str, directory: &Path| {
            self.begin(&json!({
                "wsgi": module, "port": port, "threads": threads, "argv": [service.name()],
                "env": {variable: directory}, "log": log,
            }))
        };
        let control = layout.config("control");
        let nova = |function: &str| {
            let words = config::words([service.name(), "--config-file", &layout.nova("control")]);
            self.call(function, &words, &json!({}), &log)
        };
        match service {
            ControlService::Keystone => {
                wsgi("keystone.wsgi.api", 5000, 4, "OS_KEYSTONE_CONFIG_DIR", &layout.config("keystone"))
            }
            ControlService::Placement => {
                wsgi("placement.wsgi.api", 8778, 4, "OS_PLACEMENT_CONFIG_DIR", &layout.config("placement"))
            }
            ControlService::Glance => {
                wsgi("glance.wsgi.api", 9292, 2, "OS_GLANCE_CONFIG_DIR", &layout.config("glance"))
            }
            ControlService::NovaApi => wsgi("nova.wsgi.osapi_compute", 8774, 8, "OS_NOVA_CONFIG_DIR", &control),
            ControlService::NovaConductor => nova("nova.cmd.conductor:main"),
            ControlService::NovaScheduler => nova("nova.cmd.scheduler:main"),
        }
    }

    pub(super) fn start_compute(&self, name: &str, layout: &Layout) -> Result<Pid> {
        let log = layout.logs().join(format!("nova-compute-{name}.log"));
        let words = config::words(["nova-compute", "--config-file", &layout.nova(name)]);
        self.call("nova.cmd.compute:main", &words, &json!({}), &log)
    }

    pub(super) fn start_neutron(&self, layout: &Layout) -> Result<Pid> {
        let log = layout.logs().join("neutron.log");
        self.call("cobalt_neutron:main", &config::words(["neutron"]), &json!({}), &log)
    }
}

fn lost(said: &str) -> Error {
    Error::Failed { command: "the launcher of the OpenStack services".to_owned(), said: said.to_owned() }
}

impl Drop for Launcher {
    fn drop(&mut self) {
        // `nsenter` ends with the launcher, and the launcher's own children with their namespace, which is next.
        let mut child = self.child.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = child.kill();
        let _ = child.wait();
    }
}
