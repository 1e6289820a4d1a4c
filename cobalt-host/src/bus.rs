//! The connection to the system bus: made when it is needed, made again when it was lost.

use std::{str::FromStr, time::Duration};

use cobalt_core::{Error, Result};
use serde::{Serialize, de::DeserializeOwned};
use tokio::sync::{Mutex, Notify};
use tracing::debug;
use zbus::{
    Address, Connection, DynamicType, Type,
    connection::{AuthMechanism, Builder},
};

use crate::{error::BusError, options::Options};

/// One interface of one object of one service.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Service {
    pub(crate) name: &'static str,
    pub(crate) path: &'static str,
    pub(crate) interface: &'static str,
}

impl Service {
    /// The same object's properties.
    pub(crate) const fn properties(self) -> Self {
        Self { interface: "org.freedesktop.DBus.Properties", ..self }
    }
}

/// The bus itself.
pub(crate) const DBUS: Service =
    Service { name: "org.freedesktop.DBus", path: "/org/freedesktop/DBus", interface: "org.freedesktop.DBus" };

/// The system bus, connected or not.
#[derive(Debug)]
pub(crate) struct Bus {
    addresses: Vec<Address>,
    timeout: Duration,
    /// Held while connecting, so that many callers make one attempt together.
    current: Mutex<Option<Connection>>,
    connected: Notify,
}

impl Bus {
    /// A bus at the addresses of the options; nothing is connected yet.
    pub(crate) fn new(options: &Options) -> Result<Self> {
        let parse = |address: &String| {
            Address::from_str(address)
                .map_err(|error| Error::refused(format!("connect to the system bus at {address}"), error.to_string()))
        };
        let addresses = options.addresses().iter().map(parse).collect::<Result<Vec<_>>>()?;
        if addresses.is_empty() {
            return Err(Error::refused("connect to the system bus", "no address is given"));
        }
        Ok(Self { addresses, timeout: options.timeout, current: Mutex::default(), connected: Notify::new() })
    }

    /// The longest time for one call.
    pub(crate) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Returns when somebody's call has made a new connection.
    pub(crate) async fn connected(&self) {
        self.connected.notified().await;
    }

    /// The connection, made now if there is none.
    pub(crate) async fn connection(&self, operation: &str) -> Result<Connection> {
        self.bounded(operation, self.ensure_connected()).await
    }

    /// Calls a method and reads its answer, within the time a call is given.
    pub(crate) async fn call<B, R>(&self, operation: &str, service: Service, method: &str, body: &B) -> Result<R>
    where
        B: Serialize + DynamicType + Sync,
        R: DeserializeOwned + Type,
    {
        let call = async {
            let connection = self.ensure_connected().await?;
            let Service { name, path, interface } = service;
            let reply = connection.call_method(Some(name), path, Some(interface), method, body).await?;
            Ok(reply.body().deserialize::<R>()?)
        };
        self.bounded(operation, call).await
    }

    async fn bounded<T>(&self, operation: &str, call: impl Future<Output = Result<T, BusError>>) -> Result<T> {
        match tokio::time::timeout(self.timeout, call).await {
            Ok(answer) => answer.map_err(|error| error.into_seam(operation)),
            Err(_) => Err(Error::timeout(operation, self.timeout)),
        }
    }

    async fn ensure_connected(&self) -> Result<Connection, BusError> {
        let mut current = self.current.lock().await;
        if let Some(connection) = current.as_ref().filter(|connection| !connection.is_closed()) {
            return Ok(connection.clone());
        }
        *current = None;
        let mut last = None;
        for address in &self.addresses {
            match connect(address).await {
                Ok(connection) => {
                    debug!(%address, "connected to the system bus");
                    *current = Some(connection.clone());
                    self.connected.notify_one();
                    return Ok(connection);
                }
                // The first refusal by a living bus tells more than the absence of the others.
                Err(error) => last = Some(last.filter(BusError::is_handshake).unwrap_or(error)),
            }
        }
        Err(last.unwrap_or_else(|| BusError::from(zbus::Error::Address("none".into()))))
    }
}

/// Who we are is our own user id; a bus that does not know it may still take anybody.
async fn connect(address: &Address) -> Result<Connection, BusError> {
    let attempt = |mechanism| Builder::address(address.clone()).auth_mechanism(mechanism).build();
    let external = match attempt(AuthMechanism::External).await {
        Ok(connection) => return Ok(connection),
        Err(error @ zbus::Error::Connection(..)) => {
            return Err(BusError::Connect { address: address.to_string(), source: error });
        }
        Err(error) => error,
    };
    debug!(%address, error = %external, "the bus does not take our user id, trying without");
    attempt(AuthMechanism::Anonymous)
        .await
        .map_err(|_| BusError::Handshake { address: address.to_string(), source: external })
}
