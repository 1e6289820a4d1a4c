//! SCRAM (RFC 5802, RFC 7677) without channel binding, as a pure exchange of texts.

use std::num::NonZeroU32;

use base64::{Engine, engine::general_purpose::STANDARD as BASE64};
use ring::{digest, hmac, pbkdf2};

use crate::connection::Credentials;

/// Fewer rounds would make the password cheap to guess for whoever plays the daemon; RFC 5802 asks for as many.
const MIN_ITERATIONS: u32 = 4096;
/// More would let the daemon keep our processor busy.
const MAX_ITERATIONS: u32 = 1_000_000;
const MAX_SALT: usize = 1024;

/// The channel binding flag we send, "none and we know of none", in Base64 as the last message repeats it.
const GS2_HEADER: &str = "n,,";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Hash {
    Sha1,
    Sha256,
}

impl Hash {
    fn hmac(self) -> hmac::Algorithm {
        match self {
            Self::Sha1 => hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY,
            Self::Sha256 => hmac::HMAC_SHA256,
        }
    }

    fn digest(self) -> &'static digest::Algorithm {
        match self {
            Self::Sha1 => &digest::SHA1_FOR_LEGACY_USE_ONLY,
            Self::Sha256 => &digest::SHA256,
        }
    }

    fn pbkdf2(self) -> pbkdf2::Algorithm {
        match self {
            Self::Sha1 => pbkdf2::PBKDF2_HMAC_SHA1,
            Self::Sha256 => pbkdf2::PBKDF2_HMAC_SHA256,
        }
    }
}

/// Our side before the daemon has spoken.
pub(super) struct Exchange<'a> {
    hash: Hash,
    password: &'a str,
    nonce: &'a str,
    first_bare: String,
}

impl<'a> Exchange<'a> {
    /// Names and passwords go as they are: those outside of ASCII must already be in composed form.
    pub(super) fn new(hash: Hash, credentials: &'a Credentials, nonce: &'a str) -> Self {
        let name = credentials.username.replace('=', "=3D").replace(',', "=2C");
        Self { hash, password: &credentials.password, nonce, first_bare: format!("n={name},r={nonce}") }
    }

    pub(super) fn client_first(&self) -> String {
        format!("{GS2_HEADER}{}", self.first_bare)
    }

    /// Our last message, and what the daemon has to answer to it.
    pub(super) fn client_final(&self, server_first: &[u8]) -> Result<(String, ServerProof), String> {
        let server_first =
            std::str::from_utf8(server_first).map_err(|_| "the daemon's challenge is not text".to_owned())?;
        let Challenge { nonce, salt, iterations } = Challenge::parse(server_first, self.nonce)?;

        let mut salted = vec![0_u8; self.hash.digest().output_len()];
        pbkdf2::derive(self.hash.pbkdf2(), iterations, &salt, self.password.as_bytes(), &mut salted);
        let salted = hmac::Key::new(self.hash.hmac(), &salted);
        let client_key = hmac::sign(&salted, b"Client Key");
        let stored_key = digest::digest(self.hash.digest(), client_key.as_ref());
        let server_key = hmac::sign(&salted, b"Server Key");

        let without_proof = format!("c={},r={nonce}", BASE64.encode(GS2_HEADER));
        let message = format!("{},{server_first},{without_proof}", self.first_bare);
        let signature = hmac::sign(&hmac::Key::new(self.hash.hmac(), stored_key.as_ref()), message.as_bytes());
        let proof: Vec<u8> =
            client_key.as_ref().iter().zip(signature.as_ref()).map(|(key, signature)| key ^ signature).collect();
        let key = hmac::Key::new(self.hash.hmac(), server_key.as_ref());
        Ok((format!("{without_proof},p={}", BASE64.encode(proof)), ServerProof { key, message }))
    }
}

struct Challenge<'a> {
    nonce: &'a str,
    salt: Vec<u8>,
    iterations: NonZeroU32,
}

impl<'a> Challenge<'a> {
    fn parse(text: &'a str, ours: &str) -> Result<Self, String> {
        let mut parts = text.split(',');
        let mut next = |name: &str| {
            parts
                .next()
                .and_then(|part| part.strip_prefix(name)?.strip_prefix('='))
                .ok_or_else(|| format!("the daemon's challenge has no {name}= where it belongs"))
        };
        let (nonce, salt, iterations) = (next("r")?, next("s")?, next("i")?);
        if nonce.len() <= ours.len() || !nonce.starts_with(ours) {
            return Err("the daemon's challenge is not for us: its nonce does not continue ours".into());
        }
        let salt = BASE64.decode(salt).unwrap_or_default();
        if salt.is_empty() || salt.len() > MAX_SALT {
            return Err("the daemon's challenge has no usable salt".into());
        }
        let iterations = iterations
            .parse()
            .ok()
            .filter(|rounds| (MIN_ITERATIONS..=MAX_ITERATIONS).contains(rounds))
            .and_then(NonZeroU32::new)
            .ok_or_else(|| {
                format!("the daemon asks for {iterations:?} rounds; accepted are {MIN_ITERATIONS} to {MAX_ITERATIONS}")
            })?;
        Ok(Self { nonce, salt, iterations })
    }
}

/// What only somebody who knows the password (or its verifier) can say.
pub(super) struct ServerProof {
    key: hmac::Key,
    message: String,
}

impl ServerProof {
    pub(super) fn verify(&self, server_final: &[u8]) -> Result<(), String> {
        let text = std::str::from_utf8(server_final).unwrap_or_default();
        if let Some(error) = text.strip_prefix("e=") {
            let error: String = error.chars().take(64).filter(|c| !c.is_control()).collect();
            return Err(format!("the daemon refused: {error}"));
        }
        let signature = text.split(',').next().and_then(|part| part.strip_prefix("v="));
        let signature = signature.and_then(|signature| BASE64.decode(signature).ok()).unwrap_or_default();
        hmac::verify(&self.key, self.message.as_bytes(), &signature)
            .map_err(|_| "the daemon cannot prove that it knows the password: it is not who it should be".into())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// The examples printed in RFC 5802 section 5 and RFC 7677 section 3.
    #[test]
    fn the_examples_of_the_standards_come_out() {
        let credentials = Credentials::new("user", "pencil");
        for (hash, nonce, server_first, client_final, server_final) in [
            (
                Hash::Sha1,
                "fyko+d2lbbFgONRv9qkxdawL",
                "r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,s=QSXCR+Q6sek8bf92,i=4096",
                "c=biws,r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,p=v0X8v3Bz2T0CJGbJQyF0X+HI4Ts=",
                "v=rmF9pqV8S7suAoZWja4dJRkFsKQ=",
            ),
            (
                Hash::Sha256,
                "rOprNGfwEbeRWgbNEkqO",
                "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
                "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
                 p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
                "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
            ),
        ] {
            let exchange = Exchange::new(hash, &credentials, nonce);
            assert_eq!(exchange.client_first(), format!("n,,n=user,r={nonce}"));
            let (message, proof) = exchange.client_final(server_first.as_bytes()).unwrap();
            assert_eq!(message, client_final);
            proof.verify(server_final.as_bytes()).unwrap();
            assert!(proof.verify(b"v=AAAA").unwrap_err().contains("cannot prove"));
            assert!(proof.verify(b"").unwrap_err().contains("cannot prove"));
            assert_eq!(proof.verify(b"e=invalid-proof").unwrap_err(), "the daemon refused: invalid-proof");
        }
    }

    #[test]
    fn a_challenge_that_would_weaken_us_is_refused() {
        let credentials = Credentials::new("a=b,c", "pencil");
        let exchange = Exchange::new(Hash::Sha256, &credentials, "abc");
        assert_eq!(exchange.client_first(), "n,,n=a=3Db=2Cc,r=abc");
        for (challenge, complaint) in [
            ("r=abcdef,s=c2FsdA==,i=1", "rounds"),
            ("r=abcdef,s=c2FsdA==,i=4000000000", "rounds"),
            ("r=abcdef,s=c2FsdA==,i=-1", "rounds"),
            ("r=abc,s=c2FsdA==,i=4096", "nonce"),
            ("r=xyzabcdef,s=c2FsdA==,i=4096", "nonce"),
            ("r=abcdef,s=,i=4096", "salt"),
            ("r=abcdef,s=?,i=4096", "salt"),
            ("m=x,r=abcdef,s=c2FsdA==,i=4096", "no r="),
            ("", "no r="),
        ] {
            let error = exchange.client_final(challenge.as_bytes()).map(|_| ()).unwrap_err();
            assert!(error.contains(complaint), "{challenge}: {error}");
        }
        assert!(exchange.client_final(b"\xff").is_err());
    }
}
