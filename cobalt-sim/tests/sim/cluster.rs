//! The Kubernetes side: Nodes, and programs that share the fate of their hosts.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use cobalt_core::{
    api::{Hypervisor, labels},
    ids::HostName,
};
use cobalt_sim::{Cluster, Region};
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::{Node, NodeCondition};
use kube::{
    Api, ResourceExt,
    api::{ListParams, WatchParams},
};

async fn node(cluster: &Cluster, host: &HostName) -> Node {
    Api::all(cluster.client("test")).get(host.as_str()).await.unwrap()
}

fn condition(node: &Node, type_: &str) -> NodeCondition {
    let all = node.status.as_ref().and_then(|status| status.conditions.clone()).unwrap_or_default();
    all.into_iter().find(|condition| condition.type_ == type_).unwrap()
}

#[tokio::test(start_paused = true)]
async fn nodes_join_with_the_marks_of_a_compute_node_and_unmanaged() {
    let region = Region::builder().hosts(2).zones(["qa-1a", "qa-1b"]).build();
    let cluster = region.cluster().await.unwrap();
    cluster.join_all().await.unwrap();
    let host = region.hosts()[1].clone();
    let found = node(&cluster, &host).await;
    assert_eq!(found.labels().get(labels::VIRT_DRIVER).map(String::as_str), Some("kvm"));
    assert_eq!(found.labels().get(labels::ZONE).map(String::as_str), Some("qa-1b"));
    assert_eq!(found.labels().get(labels::LIFECYCLE), None);
    let addresses = found.status.as_ref().unwrap().addresses.clone().unwrap();
    assert_eq!((addresses[0].type_.as_str(), addresses[0].address.as_str()), ("InternalIP", "10.180.0.1"));
    assert_eq!(condition(&found, "Ready").status, "True");

    cluster.manage(&host, true).await.unwrap();
    cluster.annotate(&host, labels::AGGREGATES_ANNOTATION, Some("a, b")).await.unwrap();
    let found = node(&cluster, &host).await;
    assert_eq!(found.labels().get(labels::LIFECYCLE).map(String::as_str), Some("true"));
    cluster.manage(&host, false).await.unwrap();
    cluster.annotate(&host, labels::AGGREGATES_ANNOTATION, None).await.unwrap();
    cluster.terminate(&host).await.unwrap();
    let found = node(&cluster, &host).await;
    assert_eq!(found.labels().get(labels::LIFECYCLE), None);
    assert!(found.annotations().is_empty());
    assert_eq!(condition(&found, "Terminating").status, "True");
    assert_eq!(condition(&found, "Ready").status, "True", "the others stay");

    cluster.set_internal_ips(&host, &["fd00::1".parse().unwrap(), "10.0.0.9".parse().unwrap()]).await.unwrap();
    let addresses = node(&cluster, &host).await.status.unwrap().addresses.unwrap();
    assert_eq!(addresses[0].address, "fd00::1");
    cluster.remove(&host).await.unwrap();
    assert_eq!(Api::<Node>::all(cluster.client("test")).list(&ListParams::default()).await.unwrap().items.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn cobalts_kinds_are_installed() {
    let region = Region::builder().hosts(1).build();
    let hypervisors: Api<Hypervisor> = Api::all(region.client("test").await.unwrap());
    assert_eq!(hypervisors.list(&ListParams::default()).await.unwrap().items.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_nodes_readiness_follows_its_host_after_the_grace_time() {
    let region = Region::builder().hosts(2).build();
    let (cluster, host) = (region.cluster().await.unwrap(), region.hosts()[0].clone());
    cluster.join_all().await.unwrap();
    cluster.follow_hosts();
    let ready = || async { condition(&node(&cluster, &host).await, "Ready").status };
    region.world().power_cut(&host).unwrap();
    tokio::time::sleep(Duration::from_secs(39)).await;
    assert_eq!(ready().await, "True", "within the grace time");
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(ready().await, "Unknown");
    region.world().power_on(&host).unwrap();
    tokio::time::sleep(Duration::from_secs(61)).await;
    assert_eq!(ready().await, "True");
    region.world().partition(&host, true).unwrap();
    tokio::time::sleep(Duration::from_secs(20)).await;
    region.world().partition(&host, false).unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(ready().await, "True", "a short silence is forgiven");
}

#[tokio::test(start_paused = true)]
async fn a_program_lives_stands_still_and_dies_with_its_host() {
    let region = Region::builder().hosts(1).build();
    let (cluster, host) = (region.cluster().await.unwrap(), region.hosts()[0].clone());
    let (starts, beats) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let (started, beaten) = (starts.clone(), beats.clone());
    let running = cluster
        .run_on(&host, move || {
            started.fetch_add(1, Ordering::Relaxed);
            let beats = beaten.clone();
            async move {
                loop {
                    tokio::time::sleep(Duration::from_secs(1)).await;
                    beats.fetch_add(1, Ordering::Relaxed);
                }
            }
        })
        .unwrap();
    let counted = || (starts.load(Ordering::Relaxed), beats.load(Ordering::Relaxed));
    let wait = |millis| tokio::time::sleep(Duration::from_millis(millis));
    wait(5500).await;
    assert_eq!(counted(), (1, 5));
    region.world().hang(&host).unwrap();
    wait(10_000).await;
    assert_eq!(counted(), (1, 5), "it stands still");
    region.world().unhang(&host).unwrap();
    wait(2100).await;
    let (started, beaten) = counted();
    assert!(started == 1 && (7..=9).contains(&beaten), "{beaten}");
    region.world().power_cut(&host).unwrap();
    wait(10_000).await;
    assert_eq!(counted(), (1, beaten), "it is dead");
    region.world().power_on(&host).unwrap();
    wait(65_500).await;
    assert_eq!(counted(), (2, beaten + 5), "it started anew with the host");
    running.abort();
}

#[tokio::test(start_paused = true)]
async fn a_host_that_is_cut_off_reaches_nobody_and_its_watches_break() {
    let region = Region::builder().hosts(2).build();
    let (cluster, host) = (region.cluster().await.unwrap(), region.hosts()[0].clone());
    cluster.join_all().await.unwrap();
    let nodes: Api<Node> = Api::all(cluster.client_on(&host, "agent").unwrap());
    assert_eq!(nodes.list(&ListParams::default()).await.unwrap().items.len(), 2);
    let watch = nodes.watch(&WatchParams::default(), "0").await.unwrap();
    let mut watch = watch.boxed();
    assert!(watch.try_next().await.unwrap().is_some());
    assert!(watch.try_next().await.unwrap().is_some());
    region.world().partition(&host, true).unwrap();
    assert!(watch.try_next().await.is_err(), "the connection breaks");
    assert!(nodes.get(host.as_str()).await.is_err());
    region.world().partition(&host, false).unwrap();
    assert!(nodes.get(host.as_str()).await.is_ok());
    region.world().power_cut(&host).unwrap();
    assert!(nodes.get(host.as_str()).await.is_err());
}

#[tokio::test]
async fn the_region_serves_its_api_on_a_socket() {
    let region = Region::builder().hosts(1).build();
    let cluster = region.cluster().await.unwrap();
    cluster.join_all().await.unwrap();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let served = region.clone();
    let serving = tokio::spawn(async move { served.serve(listener, async { drop(stopped.await) }).await });
    let config = kube::Config::new(format!("http://{address}").parse().unwrap());
    let client = kube::Client::try_from(config).unwrap();
    assert_eq!(Api::<Node>::all(client).list(&ListParams::default()).await.unwrap().items.len(), 1);
    stop.send(()).unwrap();
    serving.await.unwrap().unwrap();
}
