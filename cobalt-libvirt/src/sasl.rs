//! Logging in to a daemon that asks for SASL.
//!
//! Of the mechanisms that need no further library there are three here: SCRAM-SHA-256 and SCRAM-SHA-1, where the
//! password never travels and the daemon has to prove that it knows it too, and PLAIN, which is the password itself
//! and is used only where nobody can read along. Which ones a daemon offers is set in its `/etc/sasl2/libvirt.conf`.

use bytes::Bytes;
use ring::rand::{SecureRandom, SystemRandom};

use self::scram::{Exchange, Hash};
use crate::{
    connection::{ConnectOptions, Connection, Credentials, decode},
    error::{Error, Result},
    uri::LibvirtUri,
    xdr::{self, Reader, Writer},
};

mod scram;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;

const SASL_INIT: u32 = 67;
const SASL_START: u32 = 68;
const SASL_STEP: u32 = 69;

/// More than any mechanism sends in one step; libvirt's own limit.
const MAX_DATA: usize = 65_536;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mechanism {
    Scram(Hash),
    Plain,
}

impl Mechanism {
    fn name(self) -> &'static str {
        match self {
            Self::Scram(Hash::Sha256) => "SCRAM-SHA-256",
            Self::Scram(Hash::Sha1) => "SCRAM-SHA-1",
            Self::Plain => "PLAIN",
        }
    }

    /// The best of what the daemon offers, or why none will do.
    fn choose(offered: &str, confidential: bool) -> Result<Self, String> {
        let mut names = offered.split([',', ' ']).filter(|name| !name.is_empty());
        let preferred = [Self::Scram(Hash::Sha256), Self::Scram(Hash::Sha1), Self::Plain];
        let found = preferred.into_iter().find(|mechanism| names.clone().any(|name| name == mechanism.name()));
        match found {
            Some(Self::Plain) if !confidential => Err("of the mechanisms we have the daemon offers only PLAIN, which \
                 would show the password to everybody on the way: use +tls with a verified certificate"
                .into()),
            Some(mechanism) => Ok(mechanism),
            None if names.next().is_none() => Err("the daemon offers no mechanism".into()),
            None => Err(format!(
                "the daemon offers {offered}; this client has SCRAM-SHA-256, SCRAM-SHA-1 and, inside TLS, PLAIN \
                 (on plain TCP daemons hide mechanisms that do not encrypt)"
            )),
        }
    }
}

/// Prove who we are, and have the daemon prove itself where the mechanism can.
pub(crate) async fn login(
    connection: &Connection,
    confidential: bool,
    uri: &LibvirtUri,
    options: &ConnectOptions,
) -> Result<()> {
    let dialogue = Dialogue { connection, options };
    let refuse = |detail: String| Error::authentication(connection.peer(), detail, None);

    let offered = dialogue.mechanisms().await?;
    let mechanism = Mechanism::choose(&offered, confidential).map_err(refuse)?;
    let credentials = credentials(uri, options).map_err(refuse)?;
    tracing::debug!(peer = connection.peer(), mechanism = mechanism.name(), "authenticating");
    match mechanism {
        Mechanism::Plain => {
            let Credentials { username, password } = &credentials;
            let step = dialogue.start(mechanism, format!("\0{username}\0{password}").as_bytes()).await?;
            if step.complete { Ok(()) } else { Err(refuse("the daemon wants more than PLAIN has to say".into())) }
        }
        Mechanism::Scram(hash) => scram_login(&dialogue, hash, &credentials, &nonce().map_err(refuse)?).await,
    }
}

async fn scram_login(dialogue: &Dialogue<'_>, hash: Hash, credentials: &Credentials, nonce: &str) -> Result<()> {
    let refuse = |detail: String| Error::authentication(dialogue.connection.peer(), detail, None);
    let exchange = Exchange::new(hash, credentials, nonce);
    let first = dialogue.start(Mechanism::Scram(hash), exchange.client_first().as_bytes()).await?;
    if first.complete {
        return Err(refuse("the daemon let us in without asking for the password: it is not who it should be".into()));
    }
    let (client_final, proof) = exchange.client_final(&first.data).map_err(refuse)?;
    let last = dialogue.step(Some(client_final.as_bytes())).await?;
    proof.verify(&last.data).map_err(refuse)?;
    // The daemon's proof is its last word; libraries that cannot send data along with success want an empty answer.
    if last.complete || dialogue.step(None).await?.complete {
        Ok(())
    } else {
        Err(refuse("the daemon goes on asking after the end of the exchange".into()))
    }
}

fn credentials(uri: &LibvirtUri, options: &ConnectOptions) -> Result<Credentials, String> {
    let given =
        options.credentials.clone().ok_or("the daemon asks for a name and a password, and none are configured")?;
    let Credentials { username, password } = given;
    let username = if username.is_empty() { uri.user().unwrap_or_default().to_owned() } else { username };
    if username.is_empty() {
        return Err("the daemon asks for a user name, and neither the options nor the URI have one".into());
    }
    if username.contains('\0') || password.contains('\0') {
        return Err("a user name or password cannot contain NUL".into());
    }
    Ok(Credentials { username, password })
}

fn nonce() -> Result<String, String> {
    use base64::{Engine, engine::general_purpose::STANDARD_NO_PAD};
    let mut bytes = [0_u8; 18];
    SystemRandom::new().fill(&mut bytes).map_err(|_| "the system gives no random numbers".to_owned())?;
    Ok(STANDARD_NO_PAD.encode(bytes))
}

/// What the daemon says in each step.
struct Step {
    complete: bool,
    data: Vec<u8>,
}

/// The three calls that carry a mechanism's words.
struct Dialogue<'a> {
    connection: &'a Connection,
    options: &'a ConnectOptions,
}

impl Dialogue<'_> {
    async fn mechanisms(&self) -> Result<String> {
        let operation = "ask for the SASL mechanisms";
        let reply = self.call(SASL_INIT, Bytes::new(), operation).await?;
        decode(operation, &reply, Reader::string)
    }

    async fn start(&self, mechanism: Mechanism, data: &[u8]) -> Result<Step> {
        let mut arguments = Writer::new();
        arguments.string(mechanism.name());
        put_data(&mut arguments, Some(data));
        let operation = "start to authenticate";
        let reply = self.call(SASL_START, arguments.into_bytes(), operation).await?;
        decode(operation, &reply, get_step)
    }

    async fn step(&self, data: Option<&[u8]>) -> Result<Step> {
        let mut arguments = Writer::new();
        put_data(&mut arguments, data);
        let operation = "authenticate";
        let reply = self.call(SASL_STEP, arguments.into_bytes(), operation).await?;
        decode(operation, &reply, get_step)
    }

    async fn call(&self, procedure: u32, payload: impl Into<Bytes>, operation: &'static str) -> Result<Bytes> {
        let answer = self.connection.call(procedure, payload, operation, self.options.connect_timeout).await;
        answer.map_err(|error| match error {
            // Whatever a daemon answers here with an error is about who we are.
            error @ Error::Remote { .. } => {
                let detail = if procedure == SASL_INIT {
                    "the daemon has no mechanism for this transport (on plain TCP it hides those that do not encrypt)"
                } else {
                    "the daemon refused; its log has the reason, usually a wrong name or password"
                };
                Error::authentication(self.connection.peer(), detail, Some(error.into()))
            }
            error => error,
        })
    }
}

/// In SASL nothing and the empty string are two things, hence the flag. Each character takes a word of its own.
fn put_data(out: &mut Writer, data: Option<&[u8]>) {
    out.bool(data.is_none());
    let data = data.unwrap_or_default();
    out.length(data.len());
    for byte in data {
        // A C `char` is signed where libvirt runs, and is widened as such.
        out.i32(i32::from(byte.cast_signed()));
    }
}

fn get_step(from: &mut Reader<'_>) -> xdr::Result<Step> {
    let (complete, _absent) = (from.bool()?, from.bool()?);
    let count = from.count(MAX_DATA, 4)?;
    // A char may come sign-extended; its low byte is the character either way.
    let data = (0..count).map(|_| Ok(from.u32()?.to_be_bytes()[3])).collect::<xdr::Result<_>>()?;
    Ok(Step { complete, data })
}
