#![allow(clippy::unwrap_used)]

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

use futures::FutureExt;
use tokio::{io::AsyncWriteExt, net::TcpListener, task::JoinHandle};

use super::*;

/// Only what is broken takes this long.
const LONG: Duration = Duration::from_secs(120);

/// Somebody who listens on a port, and does the same to everyone who connects.
struct Somebody {
    monitor: Monitor,
    serving: JoinHandle<()>,
}

impl Drop for Somebody {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl Somebody {
    async fn who<F: Future<Output = ()> + Send>(does: impl Fn(TcpStream) -> F + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let monitor = listener.local_addr().unwrap().to_string().parse().unwrap();
        let serving = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                does(stream).await;
            }
        });
        Self { monitor, serving }
    }

    /// Says these pieces, and then nothing.
    async fn who_says(pieces: &'static [&'static [u8]]) -> Self {
        Self::who(move |mut stream| async move {
            stream.set_nodelay(true).unwrap();
            for piece in pieces {
                stream.write_all(piece).await.unwrap();
                tokio::task::yield_now().await;
            }
            // Until the other end has had enough.
            let _ = stream.read(&mut [0]).await;
        })
        .await
    }

    async fn heard(&self) -> Heard {
        knock(&self.monitor, LONG).await
    }
}

fn monitors(text: &str) -> Result<Vec<String>, String> {
    text.parse::<Monitors>().map(|all| all.0.iter().map(ToString::to_string).collect())
}

#[test]
fn monitors_are_hosts_with_or_without_a_port() {
    assert_eq!(
        monitors("mon-1, mon-2.example:6789 ,192.0.2.7").unwrap(),
        ["mon-1:3300", "mon-2.example:6789", "192.0.2.7:3300"]
    );
    assert_eq!(
        monitors("2001:db8::7,[2001:db8::7],[2001:db8::7]:6789").unwrap(),
        ["[2001:db8::7]:3300", "[2001:db8::7]:3300", "[2001:db8::7]:6789"]
    );
    for nothing in ["", " ", ","] {
        assert_eq!(monitors(nothing).unwrap(), [""; 0], "{nothing:?}");
    }
    // The last is how Ceph itself writes it.
    for bad in ["mon:", ":3300", "mon:0", "mon:65536", "mon:x", "[mon]:1", "http://mon", "a b", "v2:192.0.2.7:3300/0"] {
        let error = monitors(&format!("mon-1,{bad}")).unwrap_err();
        assert!(error.contains(&format!("{bad:?}")), "{error}");
    }
}

#[test]
fn one_monitor_is_enough_and_those_that_do_not_answer_are_named() {
    let all: Monitors = "mon-1,mon-2".parse().unwrap();
    let silent = || Err("connection refused".to_owned());
    let judged = |heard: [Heard; 2]| {
        let condition = decide(&all.0, &heard);
        assert_eq!(condition.type_, "RBDReachable");
        (condition.status, condition.reason, condition.message)
    };
    let reachable = |message: &str| (ConditionStatus::True, "Reachable".to_owned(), message.to_owned());
    assert_eq!(judged([Ok(()), Ok(())]), reachable("2 of 2 monitors answer"));
    let one = "1 of 2 monitors answer; mon-1:3300: connection refused";
    assert_eq!(judged([silent(), Ok(())]), reachable(one));
    let none = "0 of 2 monitors answer; mon-1:3300: connection refused; mon-2:3300: connection refused";
    assert_eq!(judged([silent(), silent()]), (ConditionStatus::False, "Unreachable".to_owned(), none.to_owned()));
}

#[tokio::test]
async fn both_banners_are_heard_however_they_come() {
    let second: &[&[u8]] = &[b"ceph v2\n"];
    let first: &[&[u8]] = &[b"ceph v027\x01\x02"];
    let pieces: &[&[u8]] = &[b"c", b"eph", b" ", b"v", b"2", b"\n\x10\x00"];
    for said in [second, first, pieces] {
        assert_eq!(Somebody::who_says(said).await.heard().await, Ok(()), "{said:?}");
    }
}

#[tokio::test]
async fn who_says_something_else_is_no_monitor() {
    let ssh: &[&[u8]] = &[b"SSH-2.0-OpenSSH_9.6\r\n"];
    let almost: &[&[u8]] = &[b"ceph v", b"3\n"];
    let first_without_its_end: &[&[u8]] = &[b"ceph v026"];
    for said in [ssh, almost, first_without_its_end] {
        let heard = Somebody::who_says(said).await.heard().await;
        assert_eq!(heard, Err("what answers there is no monitor".to_owned()), "{said:?}");
    }
}

#[tokio::test]
async fn of_endless_words_only_the_first_are_read() {
    for said in [b"x", b"c"] {
        let endless =
            Somebody::who(move |mut stream| async move { while stream.write_all(said).await.is_ok() {} }).await;
        assert_eq!(endless.heard().await, Err("what answers there is no monitor".to_owned()));
    }
}

#[tokio::test]
async fn silence_is_waited_for_no_longer_than_told() {
    let nothing: &[&[u8]] = &[];
    let no_end: &[&[u8]] = &[b"ceph v"];
    for said in [nothing, no_end] {
        let silent = Somebody::who_says(said).await;
        let heard = knock(&silent.monitor, Duration::from_millis(100)).await;
        assert_eq!(heard, Err("no answer within 100ms".to_owned()), "{said:?}");
    }
}

#[tokio::test]
async fn a_connection_that_is_refused_or_ends_says_so() {
    let gone = Somebody::who(|stream| async move { drop(stream) }).await;
    assert_eq!(gone.heard().await, Err("the connection ended before a banner".to_owned()));
    gone.serving.abort();
    while !gone.serving.is_finished() {
        tokio::task::yield_now().await; // the listener goes with its task
    }
    assert_eq!(gone.heard().await, Err("connection refused".to_owned()));
}

#[tokio::test]
async fn a_name_that_nobody_knows_is_called_so() {
    let heard = knock(&"no-such-host.invalid".parse().unwrap(), LONG).await;
    assert_eq!(heard, Err("its name is not known".to_owned()));
}

#[tokio::test]
async fn the_board_changes_when_the_answer_does_and_not_with_every_look() {
    let (open, looks) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicUsize::new(0)));
    let (is_open, counted) = (Arc::clone(&open), Arc::clone(&looks));
    let somebody = Somebody::who(move |mut stream| {
        counted.fetch_add(1, Ordering::SeqCst);
        let banner: &[u8] = if is_open.load(Ordering::SeqCst) { b"ceph v2\n" } else { b"no" };
        async move { stream.write_all(banner).await.unwrap() }
    })
    .await;
    let ceph = Ceph::new(vec![somebody.monitor.clone()], Duration::from_millis(5));
    let board = Board::default();
    let story = async {
        board.changed().await;
        let seen = looks.load(Ordering::SeqCst);
        while looks.load(Ordering::SeqCst) < seen + 5 {
            tokio::task::yield_now().await;
        }
        assert!(board.changed().now_or_never().is_none(), "nothing is new: {:?}", board.said(NAME));
        assert!(board.all().conditions[0].is_true(), "{:?}", board.said(NAME));
        open.store(false, Ordering::SeqCst);
        board.changed().await;
        assert!(board.all().conditions[0].is_false(), "{:?}", board.said(NAME));
    };
    let told = async {
        tokio::select! {
            () = ceph.follow(&board) => {}
            () = story => {}
        }
    };
    timeout(LONG, told).await.unwrap();
}
