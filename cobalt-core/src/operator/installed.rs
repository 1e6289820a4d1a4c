//! Kinds that a cluster may have or not.

use std::{fmt::Debug, time::Duration};

use kube::{Api, Resource, api::ListParams};
use serde::de::DeserializeOwned;
use tokio::time::sleep;

use crate::runtime::shutdown::{Chain, Shutdown};

/// How often to ask for a kind that is not there.
const NOT_THERE: Duration = Duration::from_secs(600);
/// How often to ask after an answer that was none.
const NO_ANSWER: Duration = Duration::from_secs(15);

/// Waits until there are (or could be) objects of this kind, and answers `false` if that was not before `stop`.
///
/// What is known is told whenever it was asked: `None` if there was no answer. `loss` is what follows from not being
/// allowed to list them.
pub(super) async fn until_installed<K>(api: &Api<K>, loss: &str, tell: impl Fn(Option<bool>), stop: &Shutdown) -> bool
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    let (kind, one) = (K::kind(&()), ListParams::default().limit(1));
    loop {
        let asked = tokio::select! {
            () = stop.triggered() => return false,
            asked = api.list_metadata(&one) => asked,
        };
        let (installed, pause) = match asked {
            Ok(_) => (Some(true), Duration::ZERO),
            Err(kube::Error::Api(status)) if status.code == 404 => (Some(false), NOT_THERE),
            Err(kube::Error::Api(status)) if status.code == 403 => {
                tracing::warn!(%kind, "may not list them: {loss}");
                (Some(false), NOT_THERE)
            }
            Err(error) => {
                tracing::debug!(%kind, error = %Chain(&error), "could not find out whether there are such");
                (None, NO_ANSWER)
            }
        };
        tell(installed);
        if installed == Some(true) {
            return true;
        }
        tokio::select! {
            () = stop.triggered() => return false,
            () = sleep(pause) => {}
        }
    }
}
