//! From the signals of the bus to the events of the seam.
//!
//! ```text
//!   subscribe ──ok──▶ pump ──connection lost──▶ wait ──▶ subscribe …      each subscription but the first ▶ Resync
//!       └──────────────failed──────────────────▶ wait
//! ```
//!
//! The wait grows while the bus stays away, and ends early when a call has found it. The pump goes on taking signals
//! while it waits for an answer: the answer may stand behind the signals it would not take.

use std::{collections::HashMap, num::NonZeroUsize, sync::Arc, time::Duration};

use cobalt_core::{
    Error, Result,
    host::{ActiveState, HostEvent},
};
use futures::{FutureExt, StreamExt, future::BoxFuture, stream::SelectAll};
use tracing::{debug, info, warn};
use zbus::{
    Connection, MatchRule, Message, MessageStream, ObjectPath, OwnedVariant, Variant,
    match_rule::Builder,
    message::{Flags, Type},
    names::{InterfaceName, MemberName, OwnedUniqueName, UniqueName},
};

use super::{LOGIND, SYSTEMD, Shared};
use crate::{
    bus::{DBUS, Service},
    error::BusError,
};

const UNIT: &str = "org.freedesktop.systemd1.Unit";
const UNITS: &str = "/org/freedesktop/systemd1/unit";
const QUEUE: NonZeroUsize = NonZeroUsize::new(256).expect("not zero");
const FIRST_WAIT: Duration = Duration::from_millis(250);
const LONGEST_WAIT: Duration = Duration::from_secs(15);

/// A running subscription.
pub(super) struct Signals {
    connection: Connection,
    messages: SelectAll<MessageStream>,
    /// Who may speak for a service. Anybody on the system bus can send us a signal; only its owner is believed.
    owners: HashMap<&'static str, Option<OwnedUniqueName>>,
}

/// Follows the bus for ever, beginning with a subscription that may have been made already.
pub(super) async fn run(shared: Arc<Shared>, first: Option<Signals>) {
    let mut subscription = first;
    let mut wait = FIRST_WAIT;
    loop {
        if let Some(signals) = subscription.take() {
            wait = FIRST_WAIT;
            pump(&shared, signals).await;
            warn!("the connection to the system bus is lost");
        }
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = shared.bus.connected() => {}
        }
        wait = (wait * 2).min(LONGEST_WAIT);
        match subscribe(&shared).await {
            Ok(signals) => {
                info!("the system bus is back");
                shared.state().units.forget();
                shared.tell([HostEvent::Resync]);
                subscription = Some(signals);
            }
            Err(error) => debug!(%error, "the system bus is still away"),
        }
    }
}

/// Asks for all signals we follow, and catches up with what they would have told before.
pub(super) async fn subscribe(shared: &Shared) -> Result<Signals> {
    let operation = "follow the host";
    let connection = shared.bus.connection(operation).await?;
    let listen = async {
        let mut messages = SelectAll::new();
        for rule in rules()? {
            messages.push(MessageStream::for_match_rule(rule, &connection, Some(QUEUE)).await?);
        }
        Ok::<_, zbus::Error>(messages)
    };
    let messages = tokio::time::timeout(shared.bus.timeout(), listen)
        .await
        .map_err(|_| Error::timeout(operation, shared.bus.timeout()))?
        .map_err(|error| BusError::from(error).into_seam(operation))?;
    let owners =
        HashMap::from([(SYSTEMD.name, owner(shared, SYSTEMD).await?), (LOGIND.name, owner(shared, LOGIND).await?)]);
    if owners[SYSTEMD.name].is_some() {
        // Without this systemd sends nothing. That somebody on this connection has asked before is fine.
        let subscribed = shared.bus.call::<_, ()>("subscribe to systemd", SYSTEMD, "Subscribe", &()).await;
        match subscribed {
            Err(error) if error.is_transient() => return Err(error),
            Err(error) if error.category() != "refused" => warn!(%error, "changes of units will not be told"),
            _ => {}
        }
    }
    let logind = owners[LOGIND.name].is_some() || can_be_started(shared, LOGIND).await?;
    let announced = if owners[LOGIND.name].is_some() { preparing_for_shutdown(shared).await? } else { None };
    shared.state().logind = logind;
    if let Some(announced) = announced {
        catch_up(shared, announced);
    }
    Ok(Signals { connection, messages, owners })
}

fn rules() -> zbus::Result<Vec<MatchRule<'static>>> {
    let signal = || MatchRule::builder().msg_type(Type::Signal);
    let owner_of = |service: Service| {
        signal().sender(DBUS.name).interface(DBUS.interface).member("NameOwnerChanged").add_arg(service.name)
    };
    let properties = signal().sender(SYSTEMD.name).interface(SYSTEMD.properties().interface);
    let rules = [
        owner_of(SYSTEMD),
        owner_of(LOGIND),
        signal().sender(SYSTEMD.name).path(SYSTEMD.path).interface(SYSTEMD.interface),
        properties.member("PropertiesChanged").path_namespace(UNITS).add_arg(UNIT),
        signal().sender(LOGIND.name).interface(LOGIND.interface).member("PrepareForShutdown"),
    ];
    rules.into_iter().map(Builder::build).collect()
}

async fn owner(shared: &Shared, service: Service) -> Result<Option<OwnedUniqueName>> {
    let operation = format!("look for {}", service.name);
    match shared.bus.call(&operation, DBUS, "GetNameOwner", &(service.name,)).await {
        Ok(owner) => Ok(Some(owner)),
        Err(error) if super::is_absent(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

async fn can_be_started(shared: &Shared, service: Service) -> Result<bool> {
    let names: Vec<String> =
        shared.bus.call("list services that can be started", DBUS, "ListActivatableNames", &()).await?;
    Ok(names.iter().any(|name| name == service.name))
}

/// `None` if logind does not say.
async fn preparing_for_shutdown(shared: &Shared) -> Result<Option<bool>> {
    let property = (LOGIND.interface, "PreparingForShutdown");
    let operation = "ask whether a shutdown is announced";
    match shared.bus.call::<_, OwnedVariant>(operation, LOGIND.properties(), "Get", &property).await {
        Ok(value) => Ok(bool::try_from(value).ok()),
        Err(error) if error.is_transient() => Err(error),
        Err(error) => {
            debug!(%error, "whether a shutdown is announced is unknown");
            Ok(None)
        }
    }
}

/// Tells of a shutdown that was announced or taken back unheard.
fn catch_up(shared: &Shared, announced: bool) {
    let mut state = shared.state();
    if state.shutting_down != announced {
        state.shutting_down = announced;
        shared.tell([HostEvent::PrepareForShutdown(announced)]);
    }
}

/// Whether a shutdown is announced, asked of a logind that has just come.
type Question<'a> = BoxFuture<'a, Result<Option<bool>>>;

async fn pump(shared: &Shared, mut signals: Signals) {
    let mut question: Option<Question<'_>> = None;
    loop {
        let asked = async {
            match question.as_mut() {
                Some(question) => question.await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            // Signals first: one about a shutdown is newer than the answer, or says the same.
            biased;
            message = signals.messages.next() => match message {
                Some(Ok(message)) => {
                    if let Err(error) = signals.handle(shared, &message, &mut question).await {
                        debug!(%error, "a signal that cannot be read is passed over");
                    }
                }
                Some(Err(error)) => {
                    debug!(%error, "no more signals");
                    return;
                }
                None => return,
            },
            answer = asked => {
                question = None;
                match answer {
                    Ok(announced) => announced.into_iter().for_each(|announced| catch_up(shared, announced)),
                    // One that went away again is asked when it is back.
                    Err(error) => warn!(%error, "logind does not say whether a shutdown is announced"),
                }
            }
        }
    }
}

impl Signals {
    async fn handle<'a>(
        &mut self,
        shared: &'a Shared,
        message: &Message,
        question: &mut Option<Question<'a>>,
    ) -> zbus::Result<()> {
        let header = message.header();
        let sender = header.sender().map(UniqueName::as_str);
        let path = header.path().map(ObjectPath::as_str).unwrap_or_default();
        let interface = header.interface().map(InterfaceName::as_str).unwrap_or_default();
        let member = header.member().map(MemberName::as_str).unwrap_or_default();
        let body = message.body();
        if interface == DBUS.interface && sender == Some(DBUS.name) {
            let (service, _, owner): (String, String, String) = body.deserialize()?;
            self.owner_changed(shared, &service, &owner).await?;
            if service == LOGIND.name {
                let is_there = self.owners[LOGIND.name].is_some();
                *question = is_there.then(|| preparing_for_shutdown(shared).boxed());
            }
            return Ok(());
        }
        let speaks_for = |service: Service| {
            let owner = self.owners.get(service.name).and_then(Option::as_ref);
            sender.is_some() && sender == owner.map(|owner| owner.as_str())
        };
        if interface == LOGIND.interface && speaks_for(LOGIND) {
            let announced: bool = body.deserialize()?;
            *question = None;
            let mut state = shared.state();
            state.shutting_down = announced;
            shared.tell([HostEvent::PrepareForShutdown(announced)]);
        } else if speaks_for(SYSTEMD) {
            let mut state = shared.state();
            let changed = match member {
                "PropertiesChanged" => {
                    let (_, changed, _): (&str, HashMap<&str, Variant<'_>>, Vec<&str>) = body.deserialize()?;
                    let active = changed.get("ActiveState").and_then(|value| value.downcast_ref::<&str>().ok());
                    state.units.properties_changed(path, active.map(ActiveState::parse).as_ref())
                }
                "UnitNew" | "UnitRemoved" => {
                    let (_, path): (&str, ObjectPath<'_>) = body.deserialize()?;
                    state.units.came_or_went(path.as_str())
                }
                "JobRemoved" => {
                    let (_, _, unit, _): (u32, ObjectPath<'_>, &str, &str) = body.deserialize()?;
                    state.units.job_ended(unit)
                }
                "Reloading" if !body.deserialize::<bool>()? => state.units.reloaded(),
                _ => Vec::new(),
            };
            shared.tell(changed.into_iter().map(HostEvent::UnitChanged));
        }
        Ok(())
    }

    /// A service came, went or was replaced; what it told before may be old.
    async fn owner_changed(&mut self, shared: &Shared, service: &str, owner: &str) -> zbus::Result<()> {
        let Some(known) = self.owners.get_mut(service) else { return Ok(()) };
        *known = OwnedUniqueName::try_from(owner).ok();
        if known.is_none() {
            return Ok(());
        }
        if service == SYSTEMD.name {
            let subscribe = Message::method_call(SYSTEMD.path, "Subscribe")
                .destination(SYSTEMD.name)
                .interface(SYSTEMD.interface)
                .with_flags(Flags::NO_REPLY_EXPECTED)
                .build(&())?;
            self.connection.send(&subscribe).await?;
        }
        let mut state = shared.state();
        state.logind |= service == LOGIND.name;
        state.units.forget();
        shared.tell([HostEvent::Resync]);
        Ok(())
    }
}
