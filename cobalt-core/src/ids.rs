//! Names that must not be mixed up: each is a string on the wire and a type here.

use serde::{Deserialize, Serialize};

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(String);

        impl $name {
            /// Wraps the text as it stands on the wire.
            pub fn new(text: impl Into<String>) -> Self {
                Self(text.into())
            }

            /// The text as it stands on the wire.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                Self(text.to_owned())
            }
        }

        impl From<String> for $name {
            fn from(text: String) -> Self {
                Self(text)
            }
        }
    };
}

id! {
    /// The UUID of a VM: libvirt's domain UUID and Nova's server id are the same text.
    InstanceId
}
id! {
    /// A compute host's full name: the Kubernetes Node, the Hypervisor object and Nova's `host` share it.
    ///
    /// Compared whole. There is deliberately no way to get a part of it: cutting at the first dot made
    /// `node.a.example` and `node.b.example` the same host.
    HostName
}
id! {
    /// The UUID of a Nova compute service.
    ServiceId
}
id! {
    /// The UUID of a Nova hypervisor, which is also the UUID of its Placement resource provider.
    ProviderId
}
id! {
    /// The numeric id of a Nova aggregate, as text.
    AggregateId
}
id! {
    /// The id of one Nova migration record, as text.
    MigrationId
}
