//! Our errors in the terms of the seam, where variants say what a caller can do.

use cobalt_core::Error as Seam;

use super::{Error, is_passing};

impl From<Error> for Seam {
    fn from(error: Error) -> Self {
        match &error {
            Error::Refused { operation, error: name, details } => {
                let operation = operation.to_string();
                let reason = details.clone().unwrap_or_else(|| name.clone());
                let (passing, denied) = (is_passing(name), name == "permission error");
                let cause = Some(error.into());
                if denied {
                    Seam::Denied { operation, cause }
                } else if passing {
                    Seam::Conflict { operation, reason, cause }
                } else {
                    Seam::Refused { operation, reason, cause }
                }
            }
            Error::Timeout { operation, after } => Seam::timeout(operation.clone(), *after),
            Error::Protocol { operation, detail } => Seam::malformed(operation.clone(), detail.clone()),
            Error::Closed { operation, .. } | Error::Absent { operation, .. } => {
                Seam::unavailable(operation.to_string(), error)
            }
            Error::Connect { .. } | Error::Tls { .. } => Seam::unavailable("connect to the switch", error),
            Error::Socket { operation, .. } => {
                Seam::Denied { operation: operation.to_string(), cause: Some(error.into()) }
            }
            Error::Address { detail, .. } => Seam::Refused {
                operation: "connect to the switch".into(),
                reason: detail.clone(),
                cause: Some(error.into()),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{error::Error as _, sync::Arc, time::Duration};

    use super::*;
    use crate::error::CloseReason;

    #[test]
    fn what_a_caller_can_do_survives_the_seam() {
        let socket = Error::Socket {
            operation: "version".into(),
            path: "/run/x.ctl".into(),
            cause: std::io::ErrorKind::PermissionDenied.into(),
        };
        for (error, category) in [
            (Error::refused("trace", "br-nowhere: unknown bridge", None), "refused"),
            (Error::refused("insert", "permission error", Some("rbac".into())), "denied"),
            (Error::refused("transact", "not leader", None), "conflict"),
            (Error::timeout("version", Duration::from_secs(1)), "timeout"),
            (Error::protocol("list_dbs", "no array"), "malformed"),
            (Error::absent("version", "connection refused"), "unavailable"),
            (Error::connect("connect to unix:/x", "no such file"), "unavailable"),
            (socket, "denied"),
            (Error::tls("read /ca.pem", "no certificate"), "unavailable"),
            (Error::address("foo", "unknown scheme"), "refused"),
        ] {
            let (text, transient) = (error.to_string(), error.is_transient());
            let of_tls = error.category() == "tls";
            let seam = Seam::from(error);
            assert_eq!(seam.category(), category, "{text}");
            // What TLS complains about is for a person, yet the seam has no better word than "unavailable".
            assert!(of_tls || seam.is_transient() == transient, "{text}");
        }
    }

    #[test]
    fn a_closed_connection_keeps_its_reason() {
        let seam = Seam::from(Error::closed("select from Bridge", Arc::new(CloseReason::Peer)));
        assert_eq!(seam.to_string(), "select from Bridge: unavailable");
        let cause = seam.source().expect("our error");
        assert_eq!(cause.source().map(ToString::to_string).as_deref(), Some("closed by the server"));
    }
}
