//! Names and one sentence for the built-in kinds.

/// The name of a kind among the schemas: the group backwards for custom resources, the Go package for our own.
pub(super) fn name(group: &str, version: &str, kind: &str, custom: bool) -> String {
    if custom {
        let backwards: Vec<&str> = group.rsplit('.').collect();
        return format!("{}.{version}.{kind}", backwards.join("."));
    }
    let package = match group {
        "" => "core",
        "apiextensions.k8s.io" => {
            return format!("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.{version}.{kind}");
        }
        group => group.split('.').next().unwrap_or_default(),
    };
    format!("io.k8s.api.{package}.{version}.{kind}")
}

/// What a kind is.
pub(super) fn description(kind: &str) -> Option<&'static str> {
    Some(match kind {
        "ClusterRole" => "ClusterRole is a set of rights in all namespaces and on what has none.",
        "ClusterRoleBinding" => "ClusterRoleBinding grants the rights of a ClusterRole everywhere.",
        "ConfigMap" => "ConfigMap holds configuration data for pods to consume.",
        "CustomResourceDefinition" => "CustomResourceDefinition adds a kind of resource to the API.",
        "DaemonSet" => "DaemonSet runs a pod on every node that matches.",
        "Deployment" => "Deployment keeps a number of equal pods running and replaces them by newer ones.",
        "Event" => "Event is a report of something that happened to an object.",
        "Job" => "Job runs pods until enough of them have succeeded.",
        "Lease" => "Lease says who holds something, and until when without renewal.",
        "Namespace" => "Namespace is a scope for names.",
        "Node" => "Node is a worker node of the cluster.",
        "Pod" => "Pod is a set of containers that run together on a node.",
        "PodDisruptionBudget" => "PodDisruptionBudget limits how many pods may be evicted at once.",
        "PriorityClass" => "PriorityClass names a priority of pods.",
        "ReplicaSet" => "ReplicaSet keeps a number of equal pods running.",
        "Role" => "Role is a set of rights within a namespace.",
        "RoleBinding" => "RoleBinding grants the rights of a role within a namespace.",
        "Secret" => "Secret holds data that not everybody may see.",
        "Service" => "Service is a stable address for a set of pods.",
        "ServiceAccount" => "ServiceAccount is an identity for programs in pods.",
        "StatefulSet" => "StatefulSet keeps pods with stable names and storage running.",
        "ValidatingAdmissionPolicy" => "ValidatingAdmissionPolicy is a set of rules that writes must obey.",
        "ValidatingAdmissionPolicyBinding" => "ValidatingAdmissionPolicyBinding puts a policy into force.",
        _ => return None,
    })
}
