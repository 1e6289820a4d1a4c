//! How many calls an inventory takes, counted on the wire between the backend and a real daemon.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use cobalt_core::backend::{HypervisorBackend, PowerAction};
use cobalt_libvirt::LibvirtBackend;
use cobalt_rig::Guest;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

use crate::{contract::options, rig::Rig};

const DOMAINS: usize = 300;

const XML: u32 = 14;
const LIST: u32 = 273;
const STATS: u32 = 344;

/// Procedures called, and how often.
type Counts = Arc<Mutex<BTreeMap<u32, usize>>>;

/// A port that leads to the daemon and counts the calls that pass.
async fn counting(target: String) -> (u16, Counts) {
    let counts = Counts::default();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let shared = Arc::clone(&counts);
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let server = TcpStream::connect(&target).await.unwrap();
            let (mut from_client, mut to_client) = client.into_split();
            let (mut from_server, mut to_server) = server.into_split();
            tokio::spawn(async move { tokio::io::copy(&mut from_server, &mut to_client).await });
            let counts = Arc::clone(&shared);
            tokio::spawn(async move {
                // Length, program, version, procedure, type: words of four bytes, the length with itself.
                let mut head = [0_u8; 20];
                while from_client.read_exact(&mut head).await.is_ok() {
                    let word = |index: usize| u32::from_be_bytes(head[index * 4..index * 4 + 4].try_into().unwrap());
                    if word(1) == 0x2000_8086 && word(4) == 0 {
                        *counts.lock().unwrap().entry(word(3)).or_default() += 1;
                    }
                    let mut rest = vec![0; word(0) as usize - head.len()];
                    from_client.read_exact(&mut rest).await.unwrap();
                    to_server.write_all(&head).await.unwrap();
                    to_server.write_all(&rest).await.unwrap();
                }
            });
        }
    });
    (port, counts)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_inventory_of_300_domains_reads_each_xml_once() {
    let Some(rig) = Rig::own("an_inventory_of_300_domains_reads_each_xml_once", 1) else { return };
    let guests: Vec<Guest> = (0..DOMAINS).map(|number| Guest::new(format!("instance-{number:08x}"))).collect();
    rig.host().define_all(&guests).unwrap();
    let (port, counts) = counting(format!("{}:16509", rig.host().address())).await;
    let backend = LibvirtBackend::connect(&format!("qemu+tcp://127.0.0.1:{port}/system"), options()).await.unwrap();
    let taken = || std::mem::take(&mut *counts.lock().unwrap());
    taken();

    assert_eq!(backend.inventory().await.unwrap().len(), DOMAINS);
    let first = taken();
    assert_eq!((first.get(&LIST), first.get(&XML)), (Some(&1), Some(&DOMAINS)), "{first:?}");
    assert!(first.values().sum::<usize>() <= DOMAINS + 4, "{first:?}");

    assert_eq!(backend.inventory().await.unwrap().len(), DOMAINS);
    let second = taken();
    assert_eq!((second.get(&LIST), second.get(&XML)), (Some(&1), None), "{second:?}");
    assert!(second.values().sum::<usize>() <= 2, "{second:?}");

    // One that changed is read again, and no other.
    backend.power(&guests[7].uuid().into(), PowerAction::Start).await.unwrap();
    taken();
    assert_eq!(backend.inventory().await.unwrap().iter().filter(|domain| domain.state.is_active()).count(), 1);
    let third = taken();
    assert_eq!(third.get(&XML), Some(&1), "{third:?}");

    assert_eq!(backend.stats().await.unwrap().len(), 1);
    assert_eq!(taken(), BTreeMap::from([(STATS, 1)]));
}
