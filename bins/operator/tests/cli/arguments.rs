//! What it says about itself, and about input it cannot work with.

use std::net::TcpListener;

use crate::{
    PROGRAM,
    testing::{Running, Said, Scratch, command, help_is, run},
};

/// Runs it to its end with these variables besides.
fn run_with(variables: &[(&str, &str)], args: &[&str]) -> Said {
    let mut running = Running::start(command(PROGRAM).envs(variables.iter().copied()).args(args));
    let code = running.wait().code();
    Said { code, out: running.out(), err: running.err() }
}

const OPENSTACK: [(&str, &str); 6] = [
    ("OS_AUTH_URL", "http://127.0.0.1:1/v3"),
    ("OS_USERNAME", "nova"),
    ("OS_USER_DOMAIN_NAME", "Default"),
    ("OS_PASSWORD", "hush"),
    ("OS_PROJECT_NAME", "service"),
    ("OS_PROJECT_DOMAIN_NAME", "Default"),
];

#[test]
fn the_help_is_as_in_the_snapshot() {
    help_is(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/snapshots"), "help", PROGRAM, &["--help"]);
}

#[test]
fn the_version_names_the_program() {
    let said = run(PROGRAM, &["--version"]);
    assert_eq!(said.out, concat!("cobalt-operator ", env!("CARGO_PKG_VERSION"), "\n"));
}

#[test]
fn an_unknown_flag_is_named() {
    run(PROGRAM, &["--leader-elected"]).refused(2, &["--leader-elected", "--leader-elect", "--help"]);
}

#[test]
fn a_malformed_value_is_named_with_what_was_expected() {
    run(PROGRAM, &["--workers", "many"]).refused(2, &["many", "--workers"]);
    run(PROGRAM, &["--admin-bind-address", "8081"]).refused(2, &["8081", "--admin-bind-address", "IP:PORT"]);
    run(PROGRAM, &["--shutdown-grace-period", "soon"]).refused(2, &["soon", "15s"]);
}

#[test]
fn a_log_filter_that_is_none_is_named() {
    run(PROGRAM, &["--no-openstack", "--log-level", "cobalt=loud", "--admin-bind-address", "0"])
        .refused(1, &["error: ", "cobalt=loud", "--log-level"]);
}

#[test]
fn a_missing_kubeconfig_is_named() {
    let said = run(PROGRAM, &["--no-openstack", "--admin-bind-address", "0", "--kubeconfig", "/nowhere/kubeconfig"]);
    said.refused(1, &["error: ", "/nowhere/kubeconfig", "No such file"]);
}

#[test]
fn a_kubeconfig_that_is_no_yaml_is_named() {
    let scratch = Scratch::new();
    let path = scratch.file("kubeconfig", "clusters: [unclosed\n");
    run(PROGRAM, &["--no-openstack", "--admin-bind-address", "0", "--kubeconfig", &path])
        .refused(1, &["error: ", &path]);
}

#[test]
fn an_empty_kubeconfig_is_named() {
    let scratch = Scratch::new();
    let path = scratch.file("kubeconfig", "\n");
    run(PROGRAM, &["--no-openstack", "--admin-bind-address", "0", "--kubeconfig", &path])
        .refused(1, &["error: ", &path, "empty"]);
}

#[test]
fn an_unknown_context_is_named() {
    let scratch = Scratch::new();
    let path = scratch.file(
        "kubeconfig",
        "apiVersion: v1\nkind: Config\ncurrent-context: here\nclusters:\n- name: here\n  cluster: {server: 'http://127.0.0.1:1'}\n\
         contexts:\n- name: here\n  context: {cluster: here, user: me}\nusers:\n- name: me\n  user: {}\n",
    );
    let said =
        run(PROGRAM, &["--no-openstack", "--admin-bind-address", "0", "--kubeconfig", &path, "--context", "there"]);
    said.refused(1, &["error: ", &path, "\"there\"", "no such context"]);
}

#[test]
fn no_way_to_the_api_at_all_says_where_it_was_looked_for() {
    let said = run(PROGRAM, &["--no-openstack", "--admin-bind-address", "0"]);
    said.refused(1, &["error: ", "--kubeconfig", "$KUBECONFIG", "service account"]);
}

#[test]
fn an_admin_port_in_use_is_named_with_the_flag_to_change_it() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let said = run(PROGRAM, &["--no-openstack", "--admin-bind-address", &address, "--kubeconfig", "/nowhere"]);
    said.refused(1, &["error: ", &address, "--admin-bind-address", "in use"]);
}

#[test]
fn what_is_missing_to_reach_openstack_is_named_before_anything_is_touched() {
    let agents = ["--agent-namespaces", "monsoon3", "--kubeconfig", "/nowhere"];
    run(PROGRAM, &agents).refused(1, &["error: ", "OS_AUTH_URL"]);
    for absent in ["OS_AUTH_URL", "OS_USERNAME", "OS_PASSWORD", "OS_USER_DOMAIN_NAME"] {
        let given: Vec<_> = OPENSTACK.into_iter().filter(|(name, _)| *name != absent).collect();
        let said = run_with(&given, &agents);
        said.refused(1, &["error: ", absent]);
        assert!(!said.err.contains("hush") && !said.err.contains("/nowhere"), "{said:?}");
    }
    let mut wrong = OPENSTACK.to_vec();
    wrong[0].1 = "keystone";
    run_with(&wrong, &agents).refused(1, &["error: ", "keystone", "http"]);
    // With all of it, the next thing that is wrong is the kubeconfig.
    let said = run_with(&OPENSTACK, &[&agents[..], &["--admin-bind-address", "0"]].concat());
    said.refused(1, &["error: ", "/nowhere"]);
}

#[test]
fn a_login_of_the_smoke_test_that_cannot_be_is_refused_with_what_to_do() {
    let agents = ["--agent-namespaces", "monsoon3", "--kubeconfig", "/nowhere"];
    let tester = ("SMOKE_TEST_OS_USERNAME", "tester");
    let credential = ("SMOKE_TEST_OS_APPLICATION_CREDENTIAL_ID", "17");
    let secret = ("SMOKE_TEST_OS_APPLICATION_CREDENTIAL_SECRET", "hush");
    for (meant, flags, wanted) in [
        // The operator's password is not the tester's.
        (&[tester][..], &[][..], "OS_PASSWORD"),
        (&[credential, secret], &["--smoke-test-project=smoke"], "leave --smoke-test-project"),
        (&[secret], &[], "OS_APPLICATION_CREDENTIAL_ID"),
    ] {
        let said = run_with(&[&OPENSTACK[..], meant].concat(), &[&agents[..], flags].concat());
        said.refused(1, &["error: ", wanted]);
        assert!(!said.err.contains("hush") && !said.err.contains("/nowhere"), "{said:?}");
    }
}

#[test]
fn no_namespace_of_agents_is_refused_as_it_always_was() {
    for none in [&[][..], &["--agent-namespaces="], &["--agent-namespaces", " , "]] {
        run_with(&OPENSTACK, none).refused(1, &["error: ", "--agent-namespaces"]);
    }
}

#[test]
fn settings_that_cannot_be_are_refused_with_their_flag() {
    run(PROGRAM, &["--label-selector", "zone in (a"]).refused(2, &["--label-selector", "zone in (a"]);
    run(PROGRAM, &["--transfer-labels", "example.com/rack,a b"]).refused(2, &["--transfer-labels", "a b"]);
    run(PROGRAM, &["--certificate-issuer-name="]).refused(2, &["--certificate-issuer-name"]);
    run(PROGRAM, &["--no-openstack", "--certificate-renew-before=2000h"])
        .refused(1, &["error: ", "--certificate-renew-before"]);
}

#[test]
fn a_command_line_of_earlier_operators_is_understood() {
    let said = run_with(
        &OPENSTACK,
        &[
            "--metrics-bind-address=:0",
            "--health-probe-bind-address=127.0.0.1:0",
            "--leader-elect=1",
            "--metrics-secure=f",
            "--enable-http2",
            "--label-selector=topology.kubernetes.io/zone=a",
            "--agent-namespaces=monsoon3,kube-system,monsoon3",
            "--certificate-namespace=monsoon3",
            "--certificate-issuer-name=ca",
            "--zap-devel=true",
            "--zap-encoder=json",
            "--zap-log-level=info",
            "--zap-stacktrace-level=panic",
            "--zap-time-encoding=iso8601",
            "--kubeconfig=/nowhere",
        ],
    );
    said.refused(1, &["/nowhere"]);
}
