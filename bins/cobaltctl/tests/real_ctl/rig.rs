//! A node, and the program on it.

use std::{
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use cobalt_rig::ovs::{Node, NodeOptions};

use crate::testing::{LIMIT, Running, Said, Scratch, command};

/// A node of a test's own, and a place for its files.
pub(crate) struct Rig {
    pub(crate) node: Node,
    pub(crate) scratch: Scratch,
}

impl Rig {
    /// The usual node; `None` after telling why there is none.
    pub(crate) fn up(test: &str) -> Option<Self> {
        Self::up_with(test, &NodeOptions::default())
    }

    pub(crate) fn up_with(test: &str, options: &NodeOptions) -> Option<Self> {
        let node = cobalt_rig::ovs::available(test).then(|| Node::up_with(options).expect("a node"))?;
        Some(Self { node, scratch: Scratch::new() })
    }

    /// Starts `cobaltctl ovs` on the node, as somebody with a shell there would.
    pub(crate) fn start(&self, args: &[&str]) -> Running {
        let mut command = command("nsenter");
        command.args(self.node.enter().split(' '));
        // Tests that run under nohup hand on that SIGHUP is ignored, and the program heeds that.
        command.args(["--", "env", "--default-signal=HUP", env!("CARGO_BIN_EXE_cobaltctl")]);
        // What answers late on a loaded machine does not hang.
        command.arg("ovs").args(args).args(["--local", "--timeout", "10m"]);
        command.arg("--ovs-run-dir").arg(self.node.directory()).arg("--ovn-run-dir").arg(self.node.directory());
        Running::start(&mut command)
    }

    /// Runs it to its end.
    pub(crate) fn run(&self, args: &[&str]) -> Said {
        let mut running = self.start(args);
        let code = running.wait().code();
        Said { code, out: running.out(), err: running.err() }
    }

    /// The first guest asks for echoes until this is dropped.
    pub(crate) fn pinging(&self, to: &str) -> Pinging {
        let mut command = Command::new("nsenter");
        command.args(self.node.vm(0).enter().split(' ')).args(["ping", "-n", "-i", "0.2", to]);
        Pinging(command.stdout(Stdio::null()).spawn().unwrap())
    }

    /// The mirrors on the switch, and the ports that were made for some.
    pub(crate) fn left(&self) -> String {
        let mirrors = self.node.vsctl(["--bare", "--columns=name", "list", "Mirror"]).unwrap();
        let ports = self.node.vsctl(["list-ports", "br-int"]).unwrap();
        let made: Vec<&str> = ports.lines().filter(|name| name.starts_with("cobalt")).collect();
        format!("{}{}", mirrors.trim(), made.join(" "))
    }

    /// Waits for something that nobody announces.
    #[track_caller]
    pub(crate) fn until(&self, what: &str, condition: impl Fn(&Self) -> bool) {
        let since = Instant::now();
        while !condition(self) {
            assert!(since.elapsed() < LIMIT, "never {what}; left on the switch: {}", self.left());
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

pub(crate) struct Pinging(Child);

impl Drop for Pinging {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
