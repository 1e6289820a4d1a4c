//! The table of built-in kinds.

use crate::registry::Resource;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Flag {
    Namespaced,
    Status,
    Generation,
    /// Updates need a resourceVersion.
    Conditional,
    CreateOnUpdate,
    ReturnsDeleted,
}

use Flag::{Conditional, CreateOnUpdate, Generation, Namespaced, ReturnsDeleted, Status};

const EVENT_FIELDS: &[&str] = &[
    "involvedObject.kind",
    "involvedObject.namespace",
    "involvedObject.name",
    "involvedObject.uid",
    "involvedObject.apiVersion",
    "involvedObject.resourceVersion",
    "involvedObject.fieldPath",
    "reason",
    "reportingComponent",
    "source",
    "type",
];

const EVENT_V1_FIELDS: &[&str] = &[
    "regarding.kind",
    "regarding.namespace",
    "regarding.name",
    "regarding.uid",
    "regarding.apiVersion",
    "regarding.resourceVersion",
    "regarding.fieldPath",
    "reason",
    "reportingController",
    "type",
];

const POD_FIELDS: &[&str] = &[
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.schedulerName",
    "spec.serviceAccountName",
    "spec.hostNetwork",
    "status.phase",
    "status.podIP",
    "status.nominatedNodeName",
];

type Names = &'static [&'static str];

/// Group, plural, kind, short names, categories, flags, selectable fields.
type Row = (&'static str, &'static str, &'static str, Names, Names, &'static [Flag], Names);

#[rustfmt::skip]
const TABLE: &[Row] = &[
    ("", "namespaces", "Namespace", &["ns"], &[], &[Status], &["status.phase", "name"]),
    ("", "nodes", "Node", &["no"], &[], &[Status], &["spec.unschedulable"]),
    ("", "pods", "Pod", &["po"], &["all"], &[Namespaced, Status, Generation, ReturnsDeleted], POD_FIELDS),
    ("", "events", "Event", &["ev"], &[], &[Namespaced], EVENT_FIELDS),
    ("", "secrets", "Secret", &[], &[], &[Namespaced], &["type"]),
    ("", "configmaps", "ConfigMap", &["cm"], &[], &[Namespaced], &[]),
    ("", "serviceaccounts", "ServiceAccount", &["sa"], &[], &[Namespaced, ReturnsDeleted], &[]),
    ("", "services", "Service", &["svc"], &["all"], &[Namespaced, Status, ReturnsDeleted], &["spec.clusterIP", "spec.type"]),
    ("admissionregistration.k8s.io", "validatingadmissionpolicies", "ValidatingAdmissionPolicy", &[], &["api-extensions"], &[Status, Generation, Conditional], &[]),
    ("admissionregistration.k8s.io", "validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding", &[], &["api-extensions"], &[Generation, Conditional], &[]),
    ("apiextensions.k8s.io", "customresourcedefinitions", "CustomResourceDefinition", &["crd", "crds"], &["api-extensions"], &[Status, Generation, Conditional], &[]),
    ("apps", "daemonsets", "DaemonSet", &["ds"], &["all"], &[Namespaced, Status, Generation], &[]),
    ("apps", "deployments", "Deployment", &["deploy"], &["all"], &[Namespaced, Status, Generation], &[]),
    ("apps", "replicasets", "ReplicaSet", &["rs"], &["all"], &[Namespaced, Status, Generation], &["status.replicas"]),
    ("apps", "statefulsets", "StatefulSet", &["sts"], &["all"], &[Namespaced, Status, Generation], &[]),
    ("authentication.k8s.io", "selfsubjectreviews", "SelfSubjectReview", &[], &[], &[], &[]),
    ("authentication.k8s.io", "tokenreviews", "TokenReview", &[], &[], &[], &[]),
    ("authorization.k8s.io", "localsubjectaccessreviews", "LocalSubjectAccessReview", &[], &[], &[Namespaced], &[]),
    ("authorization.k8s.io", "selfsubjectaccessreviews", "SelfSubjectAccessReview", &[], &[], &[], &[]),
    ("authorization.k8s.io", "selfsubjectrulesreviews", "SelfSubjectRulesReview", &[], &[], &[], &[]),
    ("authorization.k8s.io", "subjectaccessreviews", "SubjectAccessReview", &[], &[], &[], &[]),
    ("batch", "jobs", "Job", &[], &["all"], &[Namespaced, Status, Generation], &["status.successful"]),
    ("coordination.k8s.io", "leases", "Lease", &[], &[], &[Namespaced, Conditional, CreateOnUpdate], &[]),
    ("events.k8s.io", "events", "Event", &["ev"], &[], &[Namespaced], EVENT_V1_FIELDS),
    ("policy", "poddisruptionbudgets", "PodDisruptionBudget", &["pdb"], &[], &[Namespaced, Status, Generation, Conditional], &[]),
    ("rbac.authorization.k8s.io", "clusterrolebindings", "ClusterRoleBinding", &[], &[], &[CreateOnUpdate], &[]),
    ("rbac.authorization.k8s.io", "clusterroles", "ClusterRole", &[], &[], &[CreateOnUpdate], &[]),
    ("rbac.authorization.k8s.io", "rolebindings", "RoleBinding", &[], &[], &[Namespaced, CreateOnUpdate], &[]),
    ("rbac.authorization.k8s.io", "roles", "Role", &[], &[], &[Namespaced, CreateOnUpdate], &[]),
    ("scheduling.k8s.io", "priorityclasses", "PriorityClass", &["pc"], &[], &[Generation], &[]),
];

/// Questions to the server: created, answered, never stored.
pub(crate) fn is_review(plural: &str) -> bool {
    matches!(
        plural,
        "selfsubjectreviews"
            | "tokenreviews"
            | "localsubjectaccessreviews"
            | "selfsubjectaccessreviews"
            | "selfsubjectrulesreviews"
            | "subjectaccessreviews"
    )
}

/// The built-in resources.
pub(crate) fn builtin() -> Vec<Resource> {
    TABLE.iter().map(resource).collect()
}

fn resource(&(group, plural, kind, short, categories, flags, fields): &Row) -> Resource {
    let owned = |names: Names| names.iter().map(ToString::to_string).collect();
    let has = |flag| flags.contains(&flag);
    let mut field_labels = vec!["metadata.name", "metadata.namespace"];
    field_labels.extend_from_slice(fields);
    Resource {
        group: group.to_owned(),
        version: "v1".to_owned(),
        plural: plural.to_owned(),
        singular: kind.to_lowercase(),
        kind: kind.to_owned(),
        list_kind: format!("{kind}List"),
        namespaced: has(Namespaced),
        short_names: owned(short),
        categories: owned(categories),
        has_status: has(Status),
        counts_generation: has(Generation),
        unconditional_update: !has(Conditional),
        create_on_update: has(CreateOnUpdate),
        returns_deleted: has(ReturnsDeleted),
        field_labels,
        bucket: bucket(group, plural),
        custom: None,
    }
}

/// `plural.group`; events.k8s.io is another view on the core events.
pub(crate) fn bucket(group: &str, plural: &str) -> String {
    if group.is_empty() || group == "events.k8s.io" { plural.to_owned() } else { format!("{plural}.{group}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_event_resources_share_their_objects() {
        let buckets: Vec<_> = builtin().into_iter().filter(|r| r.plural == "events").map(|r| r.bucket).collect();
        assert_eq!(buckets, ["events", "events"]);
    }
}
