//! The host's certificate as cert-manager is asked for it.

use std::time::Duration;

use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams},
};
use serde_json::{Value, json};

use crate::{
    agent::FIELD_MANAGER,
    api::{Condition, ConditionStatus, Hypervisor},
    runtime::shutdown::Chain,
};

/// The condition: the agent has asked cert-manager for the host's certificate.
pub const CERTIFICATE_REQUESTED: &str = "CertificateRequested";

/// What to ask for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) namespace: String,
    pub(super) issuer: Option<String>,
    pub(super) address: Option<std::net::IpAddr>,
    pub(super) duration: Duration,
    pub(super) renew_before: Duration,
}

/// What came of it: the condition to show, and whether to try again later.
pub(super) struct Answer {
    pub(super) condition: Condition,
    pub(super) again: bool,
}

fn answer(holds: bool, reason: &str, message: impl Into<String>, again: bool) -> Answer {
    let condition = Condition::new(CERTIFICATE_REQUESTED, ConditionStatus::from(holds), reason, message);
    Answer { condition, again }
}

impl Request {
    /// The object, as an apply.
    fn body(&self, node: &str, issuer: &str, owner: &Hypervisor) -> Value {
        let seconds = |duration: Duration| format!("{}s", duration.as_secs());
        let mut spec = json!({
            "secretName": super::secret_name(node),
            "commonName": node,
            "dnsNames": [node],
            "subject": {"organizations": ["nova"]},
            "privateKey": {"algorithm": "RSA", "encoding": "PKCS1", "size": 4096},
            "duration": seconds(self.duration),
            "renewBefore": seconds(self.renew_before),
            "usages": ["server auth", "client auth", "digital signature", "key encipherment"],
            "issuerRef": {"group": "cert-manager.io", "kind": "Issuer", "name": issuer},
        });
        if let Some(address) = self.address {
            spec["ipAddresses"] = json!([address.to_string()]);
        }
        json!({
            "apiVersion": "cert-manager.io/v1",
            "kind": "Certificate",
            "metadata": {
                "name": certificate_name(node),
                "ownerReferences": [{
                    "apiVersion": "kvm.cloud.sap/v1", "kind": "Hypervisor",
                    "name": owner.name_any(), "uid": owner.uid(),
                }],
            },
            "spec": spec,
        })
    }

    /// Asks, unless somebody else does.
    pub(super) async fn make(&self, client: &Client, node: &str, owner: &Hypervisor) -> Answer {
        let Some(issuer) = &self.issuer else {
            return answer(false, "NoIssuer", "no issuer is configured: give --issuer-name", false);
        };
        let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("cert-manager.io", "v1", "Certificate"));
        let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), &self.namespace, &kind);
        let name = certificate_name(node);
        let trouble = |error: &kube::Error| match error {
            // An object that is not there is no error to read, and an apply makes it: what is missing is the kind. A
            // server that has never heard of the group answers in plain text, so the code is all there is.
            kube::Error::Api(status) if status.code == 404 => {
                answer(false, "NoCertManager", "the cluster has no cert-manager.io/v1 Certificates", true)
            }
            error => answer(false, "Failed", Chain(error).to_string(), true),
        };
        let body = self.body(node, issuer, owner);
        match api.get_opt(&name).await {
            Ok(Some(found)) => {
                if let Some(other) = other_manager(&found) {
                    let message = format!("Certificate {name} is made by {other}, the agent leaves it alone");
                    return answer(true, "MadeByAnother", message, false);
                }
                if found.data["spec"] == body["spec"] {
                    return answer(true, "Requested", "", false);
                }
            }
            Ok(None) => {}
            Err(error) => return trouble(&error),
        }
        let params = PatchParams::apply(FIELD_MANAGER).force();
        match api.patch(&name, &params, &Patch::Apply(&body)).await {
            Ok(_) => answer(true, "Requested", "", false),
            Err(error) => trouble(&error),
        }
    }
}

pub(super) fn certificate_name(node: &str) -> String {
    format!("libvirt-{node}")
}

/// Who else has written the spec.
fn other_manager(found: &DynamicObject) -> Option<String> {
    found.managed_fields().iter().find_map(|entry| {
        let wrote_spec = entry.fields_v1.as_ref().is_some_and(|fields| fields.0.get("f:spec").is_some());
        let manager = entry.manager.clone().unwrap_or_default();
        (wrote_spec && entry.subresource.is_none() && manager != FIELD_MANAGER).then_some(manager)
    })
}
