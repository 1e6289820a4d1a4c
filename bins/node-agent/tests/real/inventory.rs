//! What is on a host, and that nothing is written while nothing happens.

use std::time::Duration;

use cobalt_core::api::{Hypervisor, condition_types};
use cobalt_rig::{Guest, HostOptions, Sasl};
use serde_json::Value;

use crate::{
    PROGRAM,
    rig::{Region, eventually, lists, start},
    testing::{command, libvirt_is_up},
};

const DOMAINS: usize = 300;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_host_with_300_domains_is_told_as_virsh_tells_it_and_at_rest_nothing_is_written() {
    let test = "a_host_with_300_domains_is_told_as_virsh_tells_it_and_at_rest_nothing_is_written";
    let Some(region) = Region::up(test, 1).await else { return };
    let host = region.host(0);
    let guests: Vec<Guest> =
        (0..DOMAINS).map(|number| Guest::new(format!("instance-{number:08x}")).memory_mib(16)).collect();
    host.define_all(&guests).unwrap();
    host.virsh(["start", guests[7].name()]).unwrap();
    let mut agent = region.agent(0, &host.tcp(), &["--resync", "2s"]);
    let complete = |found: &Hypervisor| {
        let status = found.status.clone().unwrap_or_default();
        // Each part of the host is asked on its own, and a part that answers late is told later.
        lists(found, &guests[7], true) && status.capacity.is_some() && status.domain_capabilities.is_some()
    };
    let hypervisor = region.until(0, "lists every domain", complete).await;

    let status = hypervisor.status.clone().unwrap();
    assert_eq!((status.num_instances(), status.instances().len()), (300, DOMAINS));
    assert_eq!(status.instances().iter().filter(|instance| instance.active).count(), 1);
    assert!(hypervisor.is_true(condition_types::LIBVIRT_CONNECTION), "{:?}", hypervisor.conditions());
    assert!(hypervisor.is_true("InstancesHealthy"), "{:?}", hypervisor.conditions());
    let said = host.virsh(["version", "--daemon"]).unwrap();
    let (library, qemu) = (status.lib_virt_version.unwrap(), status.hypervisor_version.unwrap());
    assert!(said.contains(&format!("Running against daemon: {library}")), "{library} in {said}");
    assert!(said.contains(&format!("Running hypervisor: QEMU {qemu}")), "{qemu} in {said}");
    let facts = host.virsh(["nodeinfo"]).unwrap();
    let fact = |name: &str| {
        let line = facts.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().find_map(|word| word.parse::<u64>().ok()).unwrap()
    };
    let capacity = status.capacity.unwrap();
    assert_eq!(capacity["cpu"].to_string(), fact("CPU(s)").to_string());
    assert_eq!(bytes(&capacity["memory"].to_string()), fact("Memory size") * 1024);
    let allocation = status.allocation.unwrap();
    assert_eq!(allocation["cpu"].to_string(), DOMAINS.to_string());
    assert_eq!(bytes(&allocation["memory"].to_string()), (DOMAINS as u64) * (16 << 20));
    let kind = status.domain_capabilities.and_then(|capabilities| capabilities.hypervisor_type).unwrap();
    assert!(["kvm", "qemu"].contains(&kind.as_str()), "{kind}");

    // Resyncs go on, and have nothing to say.
    let admin = agent.admin_address();
    let quiet = async {
        loop {
            let before = region.writes();
            tokio::time::sleep(Duration::from_secs(8)).await;
            if region.writes() == before {
                return;
            }
        }
    };
    tokio::time::timeout(crate::rig::LIMIT, quiet).await.unwrap();
    // A host without logind is not asked again and again to delay a shutdown.
    let asked_again = |line: &str| line.contains("\"message\":\"trying again\"");
    assert!(!agent.err().lines().any(asked_again), "{}", agent.err());

    let page = libvirt_is_up(admin);
    let uuid = guests[7].uuid();
    assert_eq!(page.matches("\nlibvirt_domain_info_vcpus{").count(), 1, "{page}");
    assert!(
        page.contains(&format!(
            "libvirt_domain_info_memory_bytes{{domain=\"instance-00000007\",uuid=\"{uuid}\"}} 16777216"
        )),
        "{page}"
    );
    assert!(page.contains("cobalt_agent_domains{state=\"shut_off\"} 299"), "{page}");

    // One event, and its instance is told as it is.
    host.virsh(["destroy", guests[7].name()]).unwrap();
    region.until(0, "has nothing that runs", |found| lists(found, &guests[7], false)).await;
    agent.signal("TERM");
    assert_eq!(agent.wait().code(), Some(0), "{}", agent.err());
}

/// A quantity of memory as the status has it.
fn bytes(quantity: &str) -> u64 {
    let number = quantity.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let scale = match &quantity[number.len()..] {
        "" => 1,
        "Ki" => 1 << 10,
        "Mi" => 1 << 20,
        "Gi" => 1 << 30,
        "Ti" => 1 << 40,
        other => panic!("{other} in {quantity}"),
    };
    number.parse::<u64>().unwrap() * scale
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_agent_logs_in_where_the_daemon_asks_for_it() {
    let sasl = Sasl {
        user: "agent".to_owned(),
        password: "pencil, and paper".to_owned(),
        mechanisms: "scram-sha-256".to_owned(),
    };
    let options = [HostOptions { sasl: Some(sasl) }];
    let Some(region) = Region::up_with("an_agent_logs_in_where_the_daemon_asks_for_it", &options).await else {
        return;
    };
    let guest = Guest::new("behind-a-login");
    start(region.host(0), &guest);
    let scratch = crate::testing::Scratch::new();
    // A Secret's file often ends with a line, which is no part of the password.
    let file = scratch.file("password", "pencil, and paper\n");
    let uri = region.host(0).tls();
    let login = ["--libvirt-username", "agent", "--libvirt-password-file", &file];
    let mut agent = region.agent(0, &uri, &login);
    region.until(0, "lists the guest", |found| lists(found, &guest, true)).await;
    assert!(!agent.err().contains("pencil"), "{}", agent.err());
    agent.signal("TERM");
    assert_eq!(agent.wait().code(), Some(0), "{}", agent.err());

    // Without the password it is refused, and says so without an end of its own.
    let mut agent = region.agent(0, &uri, &["--log-level", "debug"]);
    let refused = |found: &Hypervisor| {
        let condition = found.condition(condition_types::LIBVIRT_CONNECTION);
        condition.is_some_and(|condition| condition.is_false() && condition.message.contains("password"))
    };
    region.until(0, "says that a password is missing", refused).await;
    agent.signal("TERM");
    assert_eq!(agent.wait().code(), Some(0), "{}", agent.err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn one_look_at_a_real_host_needs_no_cluster() {
    let Some(region) = Region::up("one_look_at_a_real_host_needs_no_cluster", 1).await else { return };
    let guest = Guest::new("seen").memory_mib(48).vcpus(2);
    start(region.host(0), &guest);
    let mut look = command(PROGRAM);
    look.args(["--once", "--output", "json", "--node-name", "node-1", "--libvirt-uri", &region.host(0).unix()]);
    look.args(["--once-timeout", "4m"]);
    look.arg("--host-root").arg(region.hosts.shared());
    let mut running = crate::testing::Running::start(&mut look);
    assert_eq!(running.wait().code(), Some(0), "{}", running.err());
    let seen: Value = serde_json::from_str(&running.out()).unwrap();
    assert_eq!(seen["status"]["instances"][0]["id"], guest.uuid());
    assert_eq!(seen["status"]["allocation"]["memory"], "48Mi");
    assert_eq!(seen["status"]["allocation"]["cpu"], "2");
    eventually("nobody of it stays", || region.host(0).virsh(["list", "--name"]).is_ok()).await;
}
