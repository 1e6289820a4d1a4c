//! Arguments as a user types them.

use std::time::Duration;

use clap::Parser;
use cobalt_core::runtime::{
    args::{AdminArgs, BindAddress, KubeArgs, LeaderArgs, LogArgs, LogFormat},
    lease::{LeaseConfig, names},
};

#[derive(Parser, Debug)]
struct Args {
    #[command(flatten)]
    log: LogArgs,
    #[command(flatten)]
    admin: AdminArgs,
    #[command(flatten)]
    leader: LeaderArgs,
    #[command(flatten)]
    kube: KubeArgs,
}

fn parse(args: &[&str]) -> Args {
    Args::try_parse_from([&["cobalt-operator"], args].concat()).unwrap()
}

fn refuse(args: &[&str]) -> String {
    Args::try_parse_from([&["cobalt-operator"], args].concat()).unwrap_err().to_string()
}

#[test]
fn the_defaults_are_those_of_the_existing_programs() {
    let args = parse(&[]);
    assert_eq!(args.admin.admin_bind_address.to_string(), "0.0.0.0:8081");
    assert_eq!(args.admin.metrics_bind_address, BindAddress::Off);
    assert!(!args.leader.leader_elect);
    assert_eq!(args.leader.leader_elect_lease_duration, Duration::from_secs(15));
    assert_eq!(args.leader.leader_elect_renew_deadline, Duration::from_secs(10));
    assert_eq!(args.leader.leader_elect_retry_period, Duration::from_secs(2));
    assert_eq!(args.kube.kube_request_timeout, Duration::from_secs(20));
    assert_eq!(args.log.log_format, LogFormat::Json);
}

#[test]
fn the_flags_of_the_existing_programs_are_understood() {
    let args = parse(&["--leader-elect", "--health-probe-bind-address=:9081", "--metrics-bind-address=:9443"]);
    assert!(args.leader.leader_elect);
    assert_eq!(args.admin.admin_bind_address.to_string(), "0.0.0.0:9081");
    assert_eq!(args.admin.metrics_bind_address.to_string(), "0.0.0.0:9443");
    // Go's flag package writes booleans like this.
    assert!(!parse(&["--leader-elect=false"]).leader.leader_elect);
    assert!(parse(&["--leader-elect=true"]).leader.leader_elect);
}

#[test]
fn mistakes_are_explained() {
    assert!(refuse(&["--no-such-flag"]).contains("unexpected argument '--no-such-flag'"));
    assert!(refuse(&["--admin-bind-address=8081"]).contains("expected IP:PORT, :PORT"));
    assert!(refuse(&["--leader-elect-retry-period=soon"]).contains("expected a duration such as"));
    assert!(refuse(&["--log-format=xml"]).contains("possible values: json, human"));
}

#[test]
fn durations_that_contradict_each_other_are_refused() {
    for (flags, reason) in [
        (&["--leader-elect-renew-deadline=15s"][..], "renew deadline must be shorter"),
        (&["--leader-elect-retry-period=6s"][..], "retry period must fit"),
        (&["--leader-elect-lease-duration=900ms", "--leader-elect-renew-deadline=100ms"][..], "at least one second"),
    ] {
        let error = LeaseConfig::new(&parse(flags).leader, names::OPERATOR, "default", "host").unwrap_err();
        assert!(error.to_string().contains(reason), "{error}");
        assert_eq!(error.category(), "configuration");
    }
}

#[test]
fn two_processes_of_one_pod_have_different_identities() {
    let args = parse(&["--leader-elect-identity=pod-0", "--leader-elect-namespace=monsoon3"]).leader;
    let make = || LeaseConfig::new(&args, names::operator("zone=a"), "default", "host").unwrap();
    let (a, b) = (make(), make());
    assert!(a.identity.starts_with("pod-0_"));
    assert_ne!(a.identity, b.identity);
    assert_eq!(a.namespace, "monsoon3");
}
