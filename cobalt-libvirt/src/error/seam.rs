//! Our errors in the terms of the seam, where variants say what a caller can do.

use cobalt_core::Error as Seam;

use super::{Error, code};

impl Error {
    /// The same error as the seam tells it, for a connection to the driver named `driver`.
    pub fn into_core(self, driver: &str) -> Seam {
        match &self {
            Self::Remote { operation, code, message, .. } => {
                let (operation, code, reason) = (operation.to_string(), *code, message.clone());
                self.remote_into_core(operation, code, reason, driver)
            }
            Self::Timeout { operation, after } => Seam::timeout(operation.clone(), *after),
            Self::Protocol { operation, detail } => Seam::malformed(operation.clone(), detail.clone()),
            Self::Closed { operation, .. } => Seam::unavailable(operation.to_string(), self),
            Self::Connect { .. } | Self::Tls { .. } => Seam::unavailable("connect to libvirt", self),
            Self::Authentication { .. } => {
                Seam::Denied { operation: "connect to libvirt".into(), cause: Some(self.into()) }
            }
            Self::Uri { detail, .. } => Seam::Refused {
                operation: "connect to libvirt".into(),
                reason: detail.clone(),
                cause: Some(self.into()),
            },
        }
    }

    fn remote_into_core(self, operation: String, code: u32, reason: String, driver: &str) -> Seam {
        let cause = Some(self.into());
        match code {
            code::NO_SUPPORT => Seam::unsupported(operation, driver),
            code::NO_DOMAIN | code::NO_DOMAIN_METADATA | code::DEVICE_MISSING => Seam::NotFound { operation, cause },
            code::OPERATION_DENIED
            | code::AUTH_FAILED
            | code::AUTH_CANCELLED
            | code::AUTH_UNAVAILABLE
            | code::ACCESS_DENIED => Seam::Denied { operation, cause },
            // Somebody else's job, or a state that passes. An aborted job ended by a client's wish, not by the nature
            // of the call.
            code::DOM_EXIST
            | code::OPERATION_INVALID
            | code::OPERATION_TIMEOUT
            | code::OPERATION_ABORTED
            | code::RESOURCE_BUSY => Seam::Conflict { operation, reason, cause },
            code if code::is_transient(code) => Seam::Unavailable { operation, retry_after: None, cause },
            _ => Seam::Refused { operation, reason, cause },
        }
    }
}

impl From<Error> for Seam {
    fn from(error: Error) -> Self {
        error.into_core("libvirt")
    }
}

#[cfg(test)]
mod tests {
    use std::{error::Error as _, sync::Arc, time::Duration};

    use super::*;
    use crate::error::CloseReason;

    #[test]
    fn the_code_decides_what_the_seam_says() {
        for (code, category) in [
            (code::NO_SUPPORT, "unsupported"),
            (code::NO_DOMAIN, "not_found"),
            (code::OPERATION_INVALID, "conflict"),
            (code::OPERATION_TIMEOUT, "conflict"),
            (code::OPERATION_ABORTED, "conflict"),
            (code::OPERATION_DENIED, "denied"),
            (code::ACCESS_DENIED, "denied"),
            (code::AUTH_FAILED, "denied"),
            (code::NO_CONNECT, "unavailable"),
            (code::SYSTEM_ERROR, "unavailable"),
            (code::MIGRATE_UNSAFE, "refused"),
            (code::INTERNAL_ERROR, "refused"),
            (code::RPC, "refused"),
            (4711, "refused"),
        ] {
            let error = Error::remote("try", code, 10, "no");
            let transient = error.is_transient();
            let seam = error.into_core("qemu");
            assert_eq!(seam.category(), category, "code {code}");
            assert_eq!(seam.is_transient(), transient, "code {code}");
        }
    }

    #[test]
    fn what_failed_between_us_and_the_daemon_keeps_its_cause() {
        let closed = Error::closed("list domains", Arc::new(CloseReason::Peer));
        assert_eq!(closed.to_string(), "list domains: the connection is closed");
        let seam = Seam::from(closed);
        assert_eq!(seam.to_string(), "list domains: unavailable");
        let cause = seam.source().expect("the libvirt error");
        assert_eq!(cause.source().map(ToString::to_string).as_deref(), Some("closed by the daemon"));

        assert_eq!(Seam::from(Error::timeout("ping", Duration::from_secs(3))).category(), "timeout");
        assert_eq!(Seam::from(Error::protocol("list domains", "truncated")).category(), "malformed");
        assert_eq!(Seam::from(Error::authentication("h", "wrong password", None)).category(), "denied");
        assert_eq!(Seam::from(Error::uri("x", "no scheme")).category(), "refused");
        assert_eq!(Seam::from(Error::connect("connect", "refused")).category(), "unavailable");
    }
}
