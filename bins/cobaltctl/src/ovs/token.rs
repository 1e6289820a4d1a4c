//! The token to ask with: the person's own, or one of a service account.

use cobalt_core::api::OVSNode;
use http::{Request, Response, header::AUTHORIZATION};
use k8s_openapi::api::{
    authentication::v1::{TokenRequest, TokenRequestSpec},
    core::v1::ServiceAccount,
};
use kube::{
    Api, Config, ResourceExt,
    api::PostParams,
    client::{Body, ConfigExt},
};
use tower::{Layer, ServiceExt, service_fn};

use super::{OvsError, Place, find::Cluster, print::tell};

/// As short as Kubernetes makes them: it is used at once.
const SECONDS: i64 = 600;

/// The service account, in the namespace of the OVSNode, whose token people with a client certificate ask with.
const TROUBLESHOOTER: &str = "ovs-troubleshooter";
/// What such people have.
const CERTIFICATE: &str = "a client certificate";

/// A service account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    namespace: String,
    name: String,
}

/// Reads `NAMESPACE/NAME`.
pub(super) fn account(text: &str) -> Result<Account, String> {
    match text.split_once('/') {
        Some((namespace, name)) if !namespace.is_empty() && !name.is_empty() && !name.contains('/') => {
            Ok(Account { namespace: namespace.to_owned(), name: name.to_owned() })
        }
        _ => Err("expected NAMESPACE/NAME of a service account".to_owned()),
    }
}

/// A token that does not show itself.
#[derive(Clone)]
pub(super) struct Token(pub(super) String);

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token(…)")
    }
}

pub(super) async fn get(cluster: &Cluster, place: &Place, node: &OVSNode) -> Result<Token, OvsError> {
    match &place.as_service_account {
        Some(account) => requested(cluster, account, node).await,
        None => own(cluster, node).await,
    }
}

/// A token for somebody who has a certificate: of the service account that is there for this, if they may request one.
async fn instead(cluster: &Cluster, node: &OVSNode) -> Result<Token, OvsError> {
    let account = Account { namespace: node.namespace().unwrap_or_default(), name: TROUBLESHOOTER.to_owned() };
    let Account { namespace, name } = &account;
    match requested(cluster, &account, node).await {
        Ok(token) => {
            tell(&format!(
                "your kubeconfig has {CERTIFICATE} and no token: asking as service account {namespace}/{name}"
            ));
            Ok(token)
        }
        Err(OvsError::Cluster { cause, .. }) if matches!(&*cause, kube::Error::Api(status) if matches!(status.code, 401 | 403 | 404)) =>
        {
            let tried = format!(", and none could be requested of service account {namespace}/{name} ({cause})");
            Err(OvsError::NoToken { what: CERTIFICATE, tried })
        }
        Err(other) => Err(other),
    }
}

/// The token the kubeconfig gives, from wherever it has it: a plain one, a file, a program that is asked for it. For a
/// client certificate there is none, and one is requested.
async fn own(cluster: &Cluster, node: &OVSNode) -> Result<Token, OvsError> {
    let config = &cluster.config;
    let layer = config.auth_layer().map_err(|cause| OvsError::Token(Box::new(cause)))?;
    let Some(layer) = layer else {
        return if has_certificate(config) {
            instead(cluster, node).await
        } else {
            Err(OvsError::NoToken { what: "no credentials", tried: String::new() })
        };
    };
    // Whoever set an audience does not want agents to see tokens that are good for the whole API server.
    if audience(node).is_some() {
        return Err(OvsError::OwnToken);
    }
    // The layer puts the header on a request; this one goes nowhere, and comes back with it.
    let echo = service_fn(|request: Request<Body>| async move {
        let mut response = Response::new(());
        if let Some(value) = request.headers().get(AUTHORIZATION) {
            response.headers_mut().insert(AUTHORIZATION, value.clone());
        }
        Ok::<_, tower::BoxError>(response)
    });
    let answered = layer.layer(echo).oneshot(Request::new(Body::empty())).await.map_err(OvsError::Token)?;
    let header = answered.headers().get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    let token = header.and_then(|value| value.strip_prefix("Bearer ")).map(str::trim).filter(|token| !token.is_empty());
    token
        .map(|token| Token(token.to_owned()))
        .ok_or_else(|| OvsError::NoToken { what: "a user name and a password", tried: String::new() })
}

/// Whether the kubeconfig has a client certificate, from a file, in itself, or from a program.
fn has_certificate(config: &Config) -> bool {
    let info = &config.auth_info;
    info.client_certificate.is_some() || info.client_certificate_data.is_some() || info.exec.is_some()
}

/// Whom a token for this agent must be made for, if it cares.
fn audience(node: &OVSNode) -> Option<String> {
    node.status.as_ref().and_then(|status| status.troubleshooting.as_ref()?.audience.clone())
}

async fn requested(cluster: &Cluster, account: &Account, node: &OVSNode) -> Result<Token, OvsError> {
    let audience = audience(node);
    let wanted = TokenRequest {
        spec: TokenRequestSpec {
            audiences: audience.into_iter().collect(),
            expiration_seconds: Some(SECONDS),
            bound_object_ref: None,
        },
        ..TokenRequest::default()
    };
    let accounts: Api<ServiceAccount> = Api::namespaced(cluster.client.clone(), &account.namespace);
    let made = accounts.create_token_request(&account.name, &PostParams::default(), &wanted).await;
    let what = || format!("request a token of service account {}/{}", account.namespace, account.name);
    let made = made.map_err(|cause| OvsError::Cluster { what: what(), cause: Box::new(cause) })?;
    Ok(Token(made.status.map(|status| status.token).unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_account_needs_both_its_names() {
        let ours = Account { namespace: "ovn-system".into(), name: "troubleshooter".into() };
        assert_eq!(account("ovn-system/troubleshooter"), Ok(ours));
        for wrong in ["", "troubleshooter", "/troubleshooter", "ovn-system/", "a/b/c"] {
            assert!(account(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_token_does_not_show_itself() {
        assert!(!format!("{:?}", Token("secret".into())).contains("secret"));
    }
}
