//! What can go wrong on the bus, and what that means to a caller of the seam.

use cobalt_core::Error;
use zbus::{DBusError, names::ErrorName};

/// Why a call on the system bus failed; the cause behind the [`Error`] that the seam speaks.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BusError {
    /// Nobody listens at this address.
    #[error("connect to the system bus at {address}")]
    Connect {
        /// The address that was tried.
        address: String,
        /// What the connection failed with.
        #[source]
        source: zbus::Error,
    },
    /// The bus takes neither our user id nor anonymous clients.
    #[error("introduce ourselves to the system bus at {address}")]
    Handshake {
        /// The address that was tried.
        address: String,
        /// Why our user id was not taken.
        #[source]
        source: zbus::Error,
    },
    /// A call was answered by an error, or its answer did not come or could not be decoded.
    #[error("call on the system bus")]
    Call(#[from] zbus::Error),
}

impl BusError {
    pub(crate) fn is_handshake(&self) -> bool {
        matches!(self, Self::Handshake { .. })
    }

    /// The name and the text of the error that the other side answered with, if it answered.
    pub(crate) fn answer(&self) -> Option<(ErrorName<'_>, Option<&str>)> {
        match self {
            Self::Call(error) => answer(error),
            _ => None,
        }
    }

    /// A short, bounded name for metric labels.
    pub fn category(&self) -> &'static str {
        match self {
            Self::Connect { .. } => "connect",
            Self::Handshake { .. } => "handshake",
            Self::Call(_) => "call",
        }
    }

    /// Whether the same call may succeed later without anybody changing anything.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Connect { .. } => true,
            Self::Handshake { .. } => false,
            Self::Call(error) => matches!(meaning(error), Meaning::Unavailable | Meaning::Conflict),
        }
    }

    /// The seam's error for it.
    pub(crate) fn into_seam(self, operation: &str) -> Error {
        let operation = operation.to_owned();
        let meaning = match &self {
            Self::Connect { .. } => Meaning::Unavailable,
            Self::Handshake { .. } => Meaning::Denied,
            Self::Call(error) => meaning(error),
        };
        let reason = self.answer().map(|(name, text)| text.map_or_else(|| name.to_string(), str::to_owned));
        let reason = reason.unwrap_or_default();
        match meaning {
            Meaning::Absent => Error::unsupported(operation, "this host"),
            Meaning::NotFound => Error::NotFound { operation, cause: Some(self.into()) },
            Meaning::Denied => Error::Denied { operation, cause: Some(self.into()) },
            Meaning::Conflict => Error::Conflict { operation, reason, cause: Some(self.into()) },
            Meaning::Refused => Error::Refused { operation, reason, cause: Some(self.into()) },
            Meaning::Unavailable => Error::unavailable(operation, self),
            Meaning::Malformed => {
                let detail = if let Self::Call(error) = &self { error.to_string() } else { self.to_string() };
                Error::malformed(operation, detail)
            }
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Meaning {
    /// This method does not exist here.
    Absent,
    NotFound,
    Denied,
    Conflict,
    Refused,
    Unavailable,
    Malformed,
}

/// The standard errors of D-Bus come apart from those that services have made up; to us they are alike.
fn answer(error: &zbus::Error) -> Option<(ErrorName<'_>, Option<&str>)> {
    match error {
        zbus::Error::MethodError(name, text, _) => Some((name.as_ref(), text.as_deref())),
        zbus::Error::FDO(error) => Some((error.name(), error.description().filter(|text| !text.is_empty()))),
        _ => None,
    }
}

fn meaning(error: &zbus::Error) -> Meaning {
    if let Some((name, _)) = answer(error) {
        return meaning_of_name(name.as_str());
    }
    match error {
        // What cannot be decoded, by whichever rule of the format.
        zbus::Error::Failure(_)
        | zbus::Error::IncorrectType
        | zbus::Error::Utf8(_)
        | zbus::Error::PaddingNot0(_)
        | zbus::Error::UnknownFd
        | zbus::Error::SignatureMismatch(..)
        | zbus::Error::OutOfBounds
        | zbus::Error::MaxDepthExceeded(_)
        | zbus::Error::SignatureParse(_)
        | zbus::Error::EmptyStructure
        | zbus::Error::InvalidObjectPath
        | zbus::Error::InvalidName(_)
        | zbus::Error::InvalidNameConversion { .. }
        | zbus::Error::ExcessData
        | zbus::Error::InvalidReply
        | zbus::Error::InvalidField
        | zbus::Error::InvalidSerial
        | zbus::Error::MissingField
        | zbus::Error::IncorrectEndian => Meaning::Malformed,
        _ => Meaning::Unavailable,
    }
}

fn meaning_of_name(name: &str) -> Meaning {
    let Some(name) = name.strip_prefix("org.freedesktop.") else { return Meaning::Refused };
    match name {
        "DBus.Error.UnknownMethod"
        | "DBus.Error.UnknownInterface"
        | "DBus.Error.UnknownObject"
        | "DBus.Error.UnknownProperty"
        | "DBus.Error.NotSupported" => Meaning::Absent,
        "systemd1.NoSuchUnit" => Meaning::NotFound,
        "DBus.Error.AccessDenied" | "DBus.Error.AuthFailed" | "DBus.Error.InteractiveAuthorizationRequired" => {
            Meaning::Denied
        }
        "systemd1.TransactionIsDestructive" | "systemd1.TransactionJobsConflicting" | "login1.OperationInProgress" => {
            Meaning::Conflict
        }
        "DBus.Error.ServiceUnknown"
        | "DBus.Error.NameHasNoOwner"
        | "DBus.Error.NoReply"
        | "DBus.Error.NoServer"
        | "DBus.Error.NoNetwork"
        | "DBus.Error.Timeout"
        | "DBus.Error.TimedOut"
        | "DBus.Error.Disconnected"
        | "DBus.Error.LimitsExceeded"
        | "DBus.Error.NoMemory" => Meaning::Unavailable,
        spawn if spawn.starts_with("DBus.Error.Spawn.") => Meaning::Unavailable,
        _ => Meaning::Refused,
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;

    use super::*;

    #[test]
    fn the_words_of_dbus_become_what_a_caller_can_do() {
        let means = |name: &str| meaning_of_name(&format!("org.freedesktop.{name}"));
        assert_eq!(means("systemd1.NoSuchUnit"), Meaning::NotFound);
        assert_eq!(means("systemd1.UnitMasked"), Meaning::Refused);
        assert_eq!(means("systemd1.TransactionIsDestructive"), Meaning::Conflict);
        assert_eq!(means("DBus.Error.AccessDenied"), Meaning::Denied);
        assert_eq!(means("DBus.Error.UnknownMethod"), Meaning::Absent);
        assert_eq!(means("DBus.Error.Spawn.ExecFailed"), Meaning::Unavailable);
        assert_eq!(meaning_of_name("com.example.Odd"), Meaning::Refused);
    }

    #[test]
    fn a_standard_error_is_understood_by_its_name_and_told_by_its_text() {
        let seam = |error: zbus::fdo::Error| BusError::from(zbus::Error::from(error)).into_seam("start unit a.service");
        assert_eq!(seam(zbus::fdo::Error::AccessDenied("no".into())).category(), "denied");
        assert_eq!(seam(zbus::fdo::Error::UnknownMethod("what?".into())).category(), "unsupported");
        assert!(seam(zbus::fdo::Error::NoReply(String::new())).is_transient());
        let refused = seam(zbus::fdo::Error::InvalidArgs("Name is not valid".into()));
        assert_eq!(refused.to_string(), "start unit a.service: refused: Name is not valid");
        let silent = seam(zbus::fdo::Error::Failed(String::new()));
        assert_eq!(silent.to_string(), "start unit a.service: refused: org.freedesktop.DBus.Error.Failed");
    }

    #[test]
    fn a_lost_connection_is_unavailable_and_keeps_its_cause() {
        let lost = zbus::Error::from(std::io::Error::other("broken pipe"));
        let error = BusError::from(lost).into_seam("read units a.service");
        assert_eq!(error.to_string(), "read units a.service: unavailable");
        assert!(error.is_transient() && error.source().is_some());
        let malformed = BusError::from(zbus::Error::ExcessData).into_seam("read facts");
        assert_eq!(malformed.category(), "malformed");
    }
}
