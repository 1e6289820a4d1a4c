use std::num::NonZeroU32;

use base64::{Engine, engine::general_purpose::STANDARD as BASE64};
use ring::{digest, hmac, pbkdf2};

use super::*;
use crate::{
    connection::peer::{AUTH_LIST, Peer, words},
    error::code,
    frame::Frame,
};

const PASSWORD: &str = "correct horse";

/// How the scripted daemon behaves once the client has proven itself (or not).
#[derive(Clone, Copy, PartialEq)]
enum Manner {
    /// The proof comes together with success.
    Together,
    /// The proof comes first, success after an empty answer.
    Apart,
    /// It does not know the password and pretends.
    Lying,
    /// It lets us in without a proof.
    Careless,
}

fn step_payload(complete: bool, data: Option<&[u8]>) -> Vec<u8> {
    let mut out = Writer::new();
    out.bool(complete);
    put_data(&mut out, data);
    out.into_bytes()
}

fn sent(frame: &Frame, with_mechanism: bool) -> (String, Option<Vec<u8>>) {
    let mut reader = Reader::new(&frame.payload);
    let mechanism = if with_mechanism { reader.string().unwrap() } else { String::new() };
    let absent = reader.bool().unwrap();
    let count = reader.count(MAX_DATA, 4).unwrap();
    let data = (0..count).map(|_| reader.u32().unwrap().to_be_bytes()[3]).collect();
    (mechanism, (!absent).then_some(data))
}

fn text_payload(text: &str) -> Vec<u8> {
    let mut out = Writer::new();
    out.string(text);
    out.into_bytes()
}

struct Server {
    mechanisms: &'static str,
    manner: Manner,
}

impl Server {
    /// Ends early where the client should have hung up.
    async fn serve(self, mut peer: Peer) {
        let call = peer.expect(AUTH_LIST).await;
        peer.reply(&call, words(&[1, 1])).await;
        let call = peer.expect(SASL_INIT).await;
        peer.reply(&call, text_payload(self.mechanisms)).await;
        let Some(call) = peer.next().await.filter(|call| call.header.procedure == SASL_START) else { return };
        let (mechanism, data) = sent(&call, true);
        let data = String::from_utf8(data.unwrap()).unwrap();
        let accepted = if mechanism == "PLAIN" {
            if data == format!("\0anna\0{PASSWORD}") {
                peer.reply(&call, step_payload(true, None)).await;
                true
            } else {
                peer.refuse(&call, code::AUTH_FAILED, "authentication failed").await;
                false
            }
        } else {
            self.scram(&mut peer, &call, &mechanism, &data).await
        };
        if accepted {
            peer.welcome_authenticated(false).await;
            // Until the client goes.
            while peer.next().await.is_some() {}
        }
    }

    async fn scram(&self, peer: &mut Peer, call: &Frame, mechanism: &str, first: &str) -> bool {
        let bare = first.strip_prefix("n,,").unwrap();
        let nonce = bare.split_once(",r=").unwrap().1;
        let challenge = format!("r={nonce}SERVER,s={},i=4096", BASE64.encode("salt"));
        peer.reply(call, step_payload(self.manner == Manner::Careless, Some(challenge.as_bytes()))).await;
        if self.manner == Manner::Careless {
            return false;
        }
        let call = peer.expect(SASL_STEP).await;
        let answer = String::from_utf8(sent(&call, false).1.unwrap()).unwrap();
        let (without_proof, proof) = answer.split_once(",p=").unwrap();
        let message = format!("{bare},{challenge},{without_proof}");

        let (hash, hmac_kind, kdf) = match mechanism {
            "SCRAM-SHA-1" => {
                (&digest::SHA1_FOR_LEGACY_USE_ONLY, hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, pbkdf2::PBKDF2_HMAC_SHA1)
            }
            _ => (&digest::SHA256, hmac::HMAC_SHA256, pbkdf2::PBKDF2_HMAC_SHA256),
        };
        let mut salted = vec![0; hash.output_len()];
        pbkdf2::derive(kdf, NonZeroU32::new(4096).unwrap(), b"salt", PASSWORD.as_bytes(), &mut salted);
        let sign = |key: &[u8], text: &[u8]| hmac::sign(&hmac::Key::new(hmac_kind, key), text).as_ref().to_vec();
        let client_key = sign(&salted, b"Client Key");
        let stored = digest::digest(hash, &client_key);
        let signature = sign(stored.as_ref(), message.as_bytes());
        let expected: Vec<u8> = client_key.iter().zip(&signature).map(|(a, b)| a ^ b).collect();
        if self.manner != Manner::Lying && proof != BASE64.encode(expected) {
            peer.refuse(&call, code::AUTH_FAILED, "authentication failed").await;
            return false;
        }
        let server_key = sign(&salted, if self.manner == Manner::Lying { b"Guessed" } else { b"Server Key" });
        let verdict = format!("v={}", BASE64.encode(sign(&server_key, message.as_bytes())));
        let together = self.manner != Manner::Apart;
        peer.reply(&call, step_payload(together, Some(verdict.as_bytes()))).await;
        if !together {
            let call = peer.expect(SASL_STEP).await;
            assert_eq!(sent(&call, false).1, None);
            peer.reply(&call, step_payload(true, None)).await;
        }
        self.manner != Manner::Lying
    }
}

async fn login_to(
    mechanisms: &'static str,
    manner: Manner,
    confidential: bool,
    credentials: impl Into<Option<Credentials>>,
) -> Result<Connection> {
    let (ours, theirs) = tokio::io::duplex(1 << 16);
    let server = tokio::spawn(Server { mechanisms, manner }.serve(Peer::new(theirs)));
    let uri: LibvirtUri = "qemu+tls://berta@node-1/system".parse().unwrap();
    let mut options = ConnectOptions::new();
    options.credentials = credentials.into();
    let result = Connection::open(Box::new(ours), uri.peer(), confidential, &uri, &options).await;
    if result.is_err() {
        server.await.unwrap();
    }
    result
}

fn anna(password: &str) -> Credentials {
    Credentials::new("anna", password)
}

#[tokio::test]
async fn every_mechanism_lets_the_right_password_in() {
    for (mechanisms, manner) in [
        ("PLAIN", Manner::Together),
        ("GSSAPI,SCRAM-SHA-1", Manner::Together),
        ("SCRAM-SHA-256,PLAIN", Manner::Together),
        ("SCRAM-SHA-256", Manner::Apart),
        ("DIGEST-MD5 SCRAM-SHA-1", Manner::Apart),
    ] {
        let connection = login_to(mechanisms, manner, true, anna(PASSWORD)).await;
        assert!(connection.is_ok(), "{mechanisms}: {connection:?}");
    }
}

#[tokio::test]
async fn a_wrong_password_is_refused_and_never_shown() {
    for mechanisms in ["PLAIN", "SCRAM-SHA-1", "SCRAM-SHA-256"] {
        let error = login_to(mechanisms, Manner::Together, true, anna("hunter2")).await.unwrap_err();
        assert_eq!(error.category(), "authentication", "{mechanisms}");
        assert!(!error.is_transient());
        let shown = format!("{error} {error:?} {:?}", anna("hunter2"));
        assert!(!shown.contains("hunter2") && shown.contains("anna"), "{shown}");
    }
}

#[tokio::test]
async fn a_daemon_that_does_not_know_the_password_is_found_out() {
    let error = login_to("SCRAM-SHA-256", Manner::Lying, true, anna(PASSWORD)).await.unwrap_err();
    assert!(error.to_string().contains("cannot prove that it knows the password"), "{error}");
    let error = login_to("SCRAM-SHA-1", Manner::Careless, true, anna(PASSWORD)).await.unwrap_err();
    assert!(error.to_string().contains("without asking for the password"), "{error}");
}

#[tokio::test]
async fn a_password_is_not_sent_in_the_clear() {
    let error = login_to("PLAIN", Manner::Together, false, anna(PASSWORD)).await.unwrap_err();
    assert!(error.to_string().contains("use +tls with a verified certificate"), "{error}");
    assert!(login_to("SCRAM-SHA-256", Manner::Together, false, anna(PASSWORD)).await.is_ok());
}

#[tokio::test]
async fn what_is_missing_is_said() {
    let error = login_to("DIGEST-MD5", Manner::Together, true, anna(PASSWORD)).await.unwrap_err();
    assert!(error.to_string().contains("the daemon offers DIGEST-MD5; this client has SCRAM-SHA-256"), "{error}");
    let error = login_to("", Manner::Together, true, anna(PASSWORD)).await.unwrap_err();
    assert!(error.to_string().contains("offers no mechanism"), "{error}");
    let error = login_to("PLAIN", Manner::Together, true, None).await.unwrap_err();
    assert!(error.to_string().contains("none are configured"), "{error}");
}

#[test]
fn the_user_of_the_uri_fills_in_for_a_missing_name() {
    let uri: LibvirtUri = "qemu+tls://berta@node-1/system".parse().unwrap();
    let options = ConnectOptions::new().credentials(Credentials::new("", "x"));
    assert_eq!(credentials(&uri, &options).unwrap().username, "berta");
    let nobody: LibvirtUri = "qemu+tls://node-1/system".parse().unwrap();
    assert!(credentials(&nobody, &options).is_err());
}

#[test]
fn no_step_of_a_daemon_panics() {
    use proptest::prelude::*;
    proptest!(|(bytes in proptest::collection::vec(any::<u8>(), 0..64))| {
        if let Ok(step) = get_step(&mut Reader::new(&bytes)) {
            prop_assert!(step.data.len() * 4 <= bytes.len());
        }
    });
}

/// As libvirt 9.0 took it off the wire: a word for the flag, a word for the length, a word per character.
#[test]
fn words_go_out_as_a_real_daemon_reads_them() {
    let credentials = Credentials::new("wire", "");
    let exchange = Exchange::new(Hash::Sha256, &credentials, "0123456789abcdef");
    let mut out = Writer::new();
    put_data(&mut out, Some(exchange.client_first().as_bytes()));
    let payload = out.into_bytes();
    assert_eq!(payload[..12], [0, 0, 0, 0, 0, 0, 0, 0x1c, 0, 0, 0, b'n']);
    assert_eq!(payload.len(), 0xa8 - 28 - 20);
    let mut out = Writer::new();
    put_data(&mut out, None);
    assert_eq!(out.into_bytes(), [0, 0, 0, 1, 0, 0, 0, 0]);
}
