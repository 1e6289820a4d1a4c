//! Answers of the Kubernetes API as errors of an [`Action`](super::Action).

use crate::{Error, runtime::api_category};

/// What a request that failed means for whoever wanted something done.
pub(super) fn failed(operation: impl Into<String>, cause: kube::Error) -> Error {
    let operation = operation.into();
    match api_category(&cause) {
        "not_found" => Error::NotFound { operation, cause: Some(Box::new(cause)) },
        "conflict" | "already_exists" => {
            Error::Conflict { operation, reason: "it has changed meanwhile".into(), cause: Some(Box::new(cause)) }
        }
        "forbidden" => Error::Denied { operation, cause: Some(Box::new(cause)) },
        "invalid" => {
            Error::Refused { operation, reason: "the API server does not take it".into(), cause: Some(Box::new(cause)) }
        }
        "malformed" => Error::malformed(operation, cause.to_string()),
        _ => Error::Unavailable { operation, retry_after: None, cause: Some(Box::new(cause)) },
    }
}
