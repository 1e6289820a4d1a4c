//! Pods run as a service account: it must exist, and its token is mounted.

use serde_json::{Value, json};

use crate::registry::Resource;
use crate::server::Inner;
use crate::status::{ApiError, ApiResult};
use crate::store::{Key, PODS};

const MOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// Completes a new pod, if the server was told to.
pub(crate) fn complete(server: &Inner, resource: &Resource, object: &mut Value) -> ApiResult<()> {
    if !server.service_accounts || resource.bucket != PODS {
        return Ok(());
    }
    let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default().to_owned();
    let name = object["spec"]["serviceAccountName"].as_str().filter(|name| !name.is_empty()).unwrap_or("default");
    let name = name.to_owned();
    let Some(account) = server.store.get("serviceaccounts", &Key::new(&*namespace, &*name)) else {
        let why = format!("error looking up service account {namespace}/{name}: serviceaccount {name:?} not found");
        let pod = object["metadata"]["name"].as_str().unwrap_or_default();
        return Err(ApiError::forbidden(&resource.subject(pod), &why, &[]));
    };
    let spec = &mut object["spec"];
    spec["serviceAccountName"] = name.clone().into();
    spec["serviceAccount"] = name.into();
    let wanted = &spec["automountServiceAccountToken"];
    let wanted = if wanted.is_boolean() { wanted } else { &account.value["automountServiceAccountToken"] };
    if wanted == &Value::Bool(false) {
        prioritize(spec);
        return Ok(());
    }
    mount(spec, &format!("kube-api-access-{}", server.entropy.suffix()));
    prioritize(spec);
    Ok(())
}

/// Priority and tolerations, which the other plugins of a default configuration set.
fn prioritize(spec: &mut Value) {
    let Some(spec) = spec.as_object_mut() else {
        return;
    };
    spec.entry("priority").or_insert_with(|| 0.into());
    spec.entry("preemptionPolicy").or_insert_with(|| "PreemptLowerPriority".into());
    let tolerations = spec.entry("tolerations").or_insert_with(|| json!([]));
    if let Some(tolerations) = tolerations.as_array_mut() {
        for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
            if !tolerations.iter().any(|toleration| toleration["key"] == key) {
                tolerations.push(json!({
                    "key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300,
                }));
            }
        }
    }
}

fn mount(spec: &mut Value, volume: &str) {
    let mut used = false;
    for list in ["initContainers", "containers"] {
        for container in spec[list].as_array_mut().into_iter().flatten() {
            let mut mounts = container["volumeMounts"].as_array().cloned().unwrap_or_default();
            if !mounts.iter().any(|mount| mount["mountPath"] == MOUNT) {
                mounts.push(json!({"name": volume, "readOnly": true, "mountPath": MOUNT}));
                container["volumeMounts"] = mounts.into();
                used = true;
            }
        }
        if spec[list].is_null()
            && let Some(spec) = spec.as_object_mut()
        {
            spec.remove(list);
        }
    }
    if !used {
        return;
    }
    let mut volumes = spec["volumes"].as_array().cloned().unwrap_or_default();
    volumes.push(json!({
        "name": volume,
        "projected": {
            "sources": [
                {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
                {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
                {"downwardAPI": {"items": [{
                    "path": "namespace",
                    "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"},
                }]}},
            ],
            "defaultMode": 420,
        },
    }));
    spec["volumes"] = volumes.into();
}
