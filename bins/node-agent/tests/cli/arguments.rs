//! What it says about itself, and about input it cannot work with.

use std::net::TcpListener;

use crate::{
    PROGRAM,
    testing::{Running, Said, Scratch, command, help_is, run},
};

fn run_simulated(args: &[&str]) -> Said {
    let mut all = vec!["--backend", "simulated", "--node-name", "node-1"];
    all.extend(args);
    run(PROGRAM, &all)
}

#[test]
fn the_help_is_as_in_the_snapshot() {
    help_is(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/snapshots"), "help", PROGRAM, &["--help"]);
}

#[test]
fn the_version_names_the_program() {
    let said = run(PROGRAM, &["--version"]);
    assert_eq!(said.out, concat!("cobalt-node-agent ", env!("CARGO_PKG_VERSION"), "\n"));
}

#[test]
fn a_backend_that_does_not_exist_is_refused_with_those_that_do() {
    run(PROGRAM, &["--backend", "xen", "--node-name", "node-1"]).refused(2, &["xen", "libvirt", "simulated"]);
}

#[test]
fn the_environment_of_earlier_agents_chooses_the_simulated_host_and_its_name() {
    let mut command = command(PROGRAM);
    command.env("EMULATE", "yes").env("HOSTNAME", "node-7").arg("--once");
    let mut running = Running::start(&mut command);
    assert_eq!(running.wait().code(), Some(0), "{}", running.err());
    let seen: serde_json::Value = serde_json::from_str(&running.out()).unwrap();
    assert_eq!(seen["metadata"]["name"], "node-7");
    assert_eq!(seen["status"]["numInstances"], 3);
}

#[test]
fn the_flags_of_earlier_agents_are_taken() {
    let said = run_simulated(&[
        "--once",
        "--metrics-bind-address=0",
        "--health-probe-bind-address=:8081",
        "--leader-elect",
        "--metrics-secure=false",
        "--enable-http2",
        "--zap-devel=true",
        "--zap-encoder=console",
        "--zap-log-level=debug",
        "--zap-stacktrace-level=error",
        "--zap-time-encoding=iso8601",
    ]);
    assert_eq!(said.code, Some(0), "{said:?}");
}

/// Every variable of earlier agents, once with a value and once set to nothing, as a chart leaves what it does not know.
#[test]
fn the_environment_of_earlier_agents_is_taken_and_may_be_empty() {
    let variables = [
        ("HOSTNAME", "node-7"),
        ("NODE_LABEL", "node-7.example"),
        ("NAMESPACE", "monsoon3"),
        ("LIBVIRT_SOCKET", "/run/libvirt/libvirt-sock"),
        ("LIBVIRT_DEFAULT_URI", "ch:///system"),
        ("PKI_PATH", "/pki"),
        ("HOST_IP_ADDRESS", "192.0.2.7"),
        ("ISSUER_NAME", "kvm-node-agent-ca-issuer"),
        ("DISABLE_CREATE_CERT_MANAGER_CERTIFICATE", "true"),
    ];
    for empty in [false, true] {
        let mut command = command(PROGRAM);
        command.envs(variables.map(|(name, value)| (name, if empty { "" } else { value })));
        command.args(["--backend", "simulated", "--once"]);
        let mut running = Running::start(&mut command);
        assert_eq!(running.wait().code(), Some(0), "{}", running.err());
        let seen: serde_json::Value = serde_json::from_str(&running.out()).unwrap();
        assert_eq!(seen["metadata"]["name"] == "node-7", !empty, "{seen}");
    }
}

#[test]
fn an_address_that_is_none_is_named() {
    run(PROGRAM, &["--node-ip", "192.0.2.1/24", "--once"]).refused(2, &["--node-ip", "192.0.2.1/24"]);
}

#[test]
fn a_monitor_that_is_none_is_named_and_none_at_all_is_none() {
    run_simulated(&["--once", "--ceph-monitors", "mon-1,mon-2:0"]).refused(2, &["--ceph-monitors", "\"mon-2:0\""]);
    let mut command = command(PROGRAM);
    command.args(["--backend", "simulated", "--node-name", "node-1", "--once"]).env("CEPH_MONITORS", "");
    let mut running = Running::start(&mut command);
    assert_eq!(running.wait().code(), Some(0), "{}", running.err());
}

#[test]
fn an_unknown_flag_is_named() {
    run_simulated(&["--simulated-disks", "3"]).refused(2, &["--simulated-disks", "--help"]);
}

#[test]
fn a_missing_kubeconfig_is_named() {
    let said = run_simulated(&["--admin-bind-address", "0", "--kubeconfig", "/nowhere/kubeconfig"]);
    said.refused(1, &["error: ", "/nowhere/kubeconfig", "No such file"]);
}

#[test]
fn a_kubeconfig_that_is_no_yaml_is_named() {
    let scratch = Scratch::new();
    let path = scratch.file("kubeconfig", "clusters: [unclosed\n");
    run_simulated(&["--admin-bind-address", "0", "--kubeconfig", &path]).refused(1, &["error: ", &path]);
}

#[test]
fn an_admin_port_in_use_is_named_with_the_flag_to_change_it() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let said = run_simulated(&["--admin-bind-address", &address, "--kubeconfig", "/nowhere"]);
    said.refused(1, &["error: ", &address, "--admin-bind-address", "in use"]);
}
