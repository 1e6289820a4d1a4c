//! What can go wrong with a capture.

use cobalt_core::Error as Seam;

/// Why a capture failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no such device in this network namespace.
    #[error("capture on {device}: there is no such device in this network namespace")]
    NoDevice {
        /// The device.
        device: String,
    },
    /// We may not: `CAP_NET_RAW` is missing, or for a mirror's port `CAP_NET_ADMIN`.
    #[error("capture on {device}: {step}: permission denied")]
    Denied {
        /// The device.
        device: String,
        /// What we may not.
        step: &'static str,
    },
    /// The request is outside of what can be done.
    #[error("capture on {device}: {what}")]
    Bound {
        /// The device.
        device: String,
        /// What would be right.
        what: &'static str,
    },
    /// The device is gone, or down.
    #[error("capture on {device}: the device is gone or down")]
    Down {
        /// The device.
        device: String,
    },
    /// The kernel said no.
    #[error("capture on {device}: {step}")]
    Os {
        /// The device.
        device: String,
        /// What was tried.
        step: &'static str,
        /// What the kernel said.
        #[source]
        cause: std::io::Error,
    },
}

impl Error {
    pub(crate) fn os(device: &str, step: &'static str, cause: impl Into<std::io::Error>) -> Self {
        let (device, cause) = (device.to_owned(), cause.into());
        if cause.kind() == std::io::ErrorKind::PermissionDenied {
            return Self::Denied { device, step };
        }
        Self::Os { device, step, cause }
    }

    /// A short, bounded name for metric labels.
    pub fn category(&self) -> &'static str {
        match self {
            Self::NoDevice { .. } => "no_device",
            Self::Denied { .. } => "denied",
            Self::Bound { .. } => "bound",
            Self::Down { .. } => "down",
            Self::Os { .. } => "os",
        }
    }

    /// Whether the same capture may succeed later without anybody changing anything.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Down { .. })
    }
}

impl From<Error> for Seam {
    fn from(error: Error) -> Self {
        let (device, reason) = match &error {
            Error::NoDevice { device } => {
                return Self::NotFound { operation: format!("capture on {device}"), cause: Some(error.into()) };
            }
            Error::Denied { device, .. } => {
                return Self::Denied { operation: format!("capture on {device}"), cause: Some(error.into()) };
            }
            Error::Bound { device, what } => (device, *what),
            Error::Down { device } | Error::Os { device, .. } => {
                return Self::unavailable(format!("capture on {device}"), error);
            }
        };
        let (operation, reason) = (format!("capture on {device}"), reason.to_owned());
        Self::Refused { operation, reason, cause: Some(error.into()) }
    }
}
