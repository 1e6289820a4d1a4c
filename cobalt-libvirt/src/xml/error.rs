//! Why a document could not be read.

use std::error::Error as _;

/// Why a document could not be read.
///
/// Only what makes the *whole* document useless is an error. A part that is missing, unknown or nonsense is a part we
/// know nothing about.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum XmlError {
    /// Larger than [`Limits::bytes`](super::Limits::bytes).
    #[error("read <{document}>: {bytes} bytes, at most {limit} are read")]
    TooLarge {
        /// The root element that was asked for.
        document: &'static str,
        /// Its size.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// Nested deeper than [`Limits::depth`](super::Limits::depth).
    #[error("read <{document}>: more than {limit} elements inside of each other at byte {position}")]
    TooDeep {
        /// The root element that was asked for.
        document: &'static str,
        /// Where.
        position: u64,
        /// The limit.
        limit: usize,
    },
    /// It has a document type, which libvirt never writes and which could define entities.
    #[error("read <{document}>: document types are not accepted")]
    DocumentType {
        /// The root element that was asked for.
        document: &'static str,
    },
    /// It uses an entity besides the five of XML itself.
    #[error("read <{document}>: entity &{entity}; at byte {position} is not known")]
    Entity {
        /// The root element that was asked for.
        document: &'static str,
        /// The entity's name.
        entity: String,
        /// Where.
        position: u64,
    },
    /// It is another document, or none at all.
    #[error("read <{document}>: the root is {}", Root(found.as_deref()))]
    WrongRoot {
        /// The root element that was asked for.
        document: &'static str,
        /// The root element that is there.
        found: Option<String>,
    },
    /// It is not well-formed.
    #[error("read <{document}>: not well-formed at byte {position}")]
    Malformed {
        /// The root element that was asked for.
        document: &'static str,
        /// Where.
        position: u64,
        /// What the parser says about it.
        #[source]
        cause: quick_xml::Error,
    },
    /// It ends before its root element does.
    #[error("read <{document}>: ends at byte {position}, in the middle")]
    Truncated {
        /// The root element that was asked for.
        document: &'static str,
        /// Where.
        position: u64,
    },
}

struct Root<'a>(Option<&'a str>);

impl std::fmt::Display for Root<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Some(name) => write!(f, "<{name}>"),
            None => f.write_str("missing"),
        }
    }
}

impl XmlError {
    /// A bounded word for metrics.
    pub fn category(&self) -> &'static str {
        match self {
            Self::TooLarge { .. } | Self::TooDeep { .. } => "limit",
            Self::DocumentType { .. } | Self::Entity { .. } => "forbidden",
            Self::WrongRoot { .. } => "wrong_document",
            Self::Malformed { .. } | Self::Truncated { .. } => "malformed",
        }
    }

    /// Never: the same text reads the same way again.
    pub fn is_transient(&self) -> bool {
        false
    }

    /// The same in the terms of the seam, for the call named in `operation`.
    ///
    /// ```
    /// use cobalt_libvirt::xml::DomainXml;
    ///
    /// let error = DomainXml::parse("<network/>").unwrap_err().into_seam("get XML of domain web-1");
    /// assert_eq!(error.category(), "malformed");
    /// assert_eq!(
    ///     error.to_string(),
    ///     "get XML of domain web-1: malformed answer: read <domain>: the root is <network>"
    /// );
    /// ```
    pub fn into_seam(self, operation: impl Into<String>) -> cobalt_core::Error {
        // The seam's variant has a text and no source, so the parser's reason moves into the text.
        let detail = match self.source() {
            Some(cause) => format!("{self}: {cause}"),
            None => self.to_string(),
        };
        cobalt_core::Error::malformed(operation, detail)
    }
}
