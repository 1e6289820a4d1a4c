//! Columns of the built-in kinds.

use serde_json::{Value, json};

pub(super) const NAME: &str = "Name must be unique within a namespace. Is required when creating resources, although some resources may allow a client to request the generation of an appropriate name automatically. Name is primarily intended for creation idempotence and configuration definition. Cannot be updated. More info: https://kubernetes.io/docs/concepts/overview/working-with-objects/names#names";
pub(super) const CREATED: &str = "CreationTimestamp is a timestamp representing the server time when this object was created. It is not guaranteed to be set in happens-before order across separate operations. Clients may not set this value. It is represented in RFC3339 form and is in UTC.\n\nPopulated by the system. Read-only. Null for lists. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata";
const ADDRESSES: &str = "List of addresses reachable to the node. Queried from cloud provider, if available. More info: https://kubernetes.io/docs/reference/node/node-status/#addresses Note: This field is declared as mergeable, but the merge key is not sufficiently unique, which can cause data corruption when it is merged. Callers should instead use a full-replacement patch. See https://pr.k8s.io/79391 for an example. Consumers should assume that addresses can change during the lifetime of a Node. However, there are some exceptions where this may not be possible, such as Pods that inherit a Node's address in its own status or consumers of the downward API (status.hostIP).";
const NODE_NAME: &str = "NodeName indicates in which node this pod is scheduled. If empty, this pod is a candidate for scheduling by the scheduler defined in schedulerName. Once this field is set, the kubelet for this node becomes responsible for the lifecycle of this pod. This field should not be used to express a desire for the pod to be scheduled on a specific node. https://kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node/#nodename";
const NOMINATED: &str = "nominatedNodeName is set only when this pod preempts other pods on the node, but it cannot be scheduled right away as preemption victims receive their graceful termination periods. This field does not guarantee that the pod will be scheduled on this node. Scheduler may decide to place the pod elsewhere if other nodes become available sooner. Scheduler may also decide to give the resources on this node to a higher priority pod that is created after preemption. As a result, this field may be different than PodSpec.nodeName when the pod is scheduled.";
const GATES: &str = "If specified, all readiness gates will be evaluated for pod readiness. A pod is ready when all its containers are ready AND all conditions specified in the readiness gates have status equal to \"True\" More info: https://git.k8s.io/enhancements/keps/sig-network/580-pod-readiness-gates";
const FIELD_PATH: &str = "If referring to a piece of an object instead of an entire object, this string should contain a valid JSON/Go field access statement, such as desiredState.manifest.containers[2]. For example, if the object reference is to a container within a pod, this would take on a value like: \"spec.containers{name}\" (where \"name\" refers to the name of the container that triggered the event) or if no container name is specified \"spec.containers[2]\" (container with index 2 in this pod). This syntax is chosen only to have some well-defined way of referencing a part of an object.";

/// Name, type, priority, description.
type Column = (&'static str, &'static str, u8, &'static str);

const NAMED: Column = ("Name", "string", 0, NAME);
const AGE: Column = ("Age", "string", 0, CREATED);
const CONTAINERS: Column = ("Containers", "string", 1, "Names of each container in the template.");
const IMAGES: Column = ("Images", "string", 1, "Images referenced by each container in the template.");
const SELECTOR: Column = ("Selector", "string", 1, "Label selector for the pods of this object.");
const TEMPLATE_READY: Column = ("Ready", "string", 0, "Number of the pod with ready state");

/// The columns of a kind of the core groups. A kind we have none for shows its name and when it was created.
#[rustfmt::skip]
fn columns(kind: &str) -> &'static [Column] {
    match kind {
        "Namespace" => &[NAMED, ("Status", "string", 0, "The status of the namespace"), AGE],
        "Node" => &[
            NAMED,
            ("Status", "string", 0, "The status of the node"),
            ("Roles", "string", 0, "The roles of the node"),
            AGE,
            ("Version", "string", 0, "Kubelet Version reported by the node."),
            ("Internal-IP", "string", 1, ADDRESSES),
            ("External-IP", "string", 1, ADDRESSES),
            ("OS-Image", "string", 1, "OS Image reported by the node from /etc/os-release (e.g. Debian GNU/Linux 7 (wheezy))."),
            ("Kernel-Version", "string", 1, "Kernel Version reported by the node from 'uname -r' (e.g. 3.16.0-0.bpo.4-amd64)."),
            ("Container-Runtime", "string", 1, "ContainerRuntime Version reported by the node through runtime remote API (e.g. containerd://1.4.2)."),
        ],
        "Pod" => &[
            NAMED,
            ("Ready", "string", 0, "The aggregate readiness state of this pod for accepting traffic."),
            ("Status", "string", 0, "The aggregate status of the containers in this pod."),
            ("Restarts", "string", 0, "The number of times the containers in this pod have been restarted and when the last container in this pod has restarted."),
            AGE,
            ("IP", "string", 1, "podIP address allocated to the pod. Routable at least within the cluster. Empty if not yet allocated."),
            ("Node", "string", 1, NODE_NAME),
            ("Nominated Node", "string", 1, NOMINATED),
            ("Readiness Gates", "string", 1, GATES),
        ],
        "Event" => &[
            ("Last Seen", "string", 0, "The time at which the most recent occurrence of this event was recorded."),
            ("Type", "string", 0, "Type of this event (Normal, Warning), new types could be added in the future"),
            ("Reason", "string", 0, "This should be a short, machine understandable string that gives the reason for the transition into the object's current status."),
            ("Object", "string", 0, "The object that this event is about."),
            ("Subobject", "string", 1, FIELD_PATH),
            ("Source", "string", 1, "The component reporting this event. Should be a short machine understandable string."),
            ("Message", "string", 0, "A human-readable description of the status of this operation."),
            ("First Seen", "string", 1, "The time at which the event was first recorded. (Time of server receipt is in TypeMeta.)"),
            ("Count", "string", 1, "The number of times this event has occurred."),
            ("Name", "string", 1, NAME),
        ],
        "ConfigMap" => &[
            NAMED,
            ("Data", "string", 0, "Data contains the configuration data. Each key must consist of alphanumeric characters, '-', '_' or '.'. Values with non-UTF-8 byte sequences must use the BinaryData field. The keys stored in Data must not overlap with the keys in the BinaryData field, this is enforced during validation process."),
            AGE,
        ],
        "Lease" => &[
            NAMED,
            ("Holder", "string", 0, "holderIdentity contains the identity of the holder of a current lease. If Coordinated Leader Election is used, the holder identity must be equal to the elected LeaseCandidate.metadata.name field."),
            AGE,
        ],
        "Secret" => &[
            NAMED,
            ("Type", "string", 0, "What the secret is used for."),
            ("Data", "string", 0, "Number of the entries of the secret."),
            AGE,
        ],
        "ServiceAccount" => &[NAMED, ("Secrets", "string", 0, "Number of the secrets the account may use."), AGE],
        "Service" => &[
            NAMED,
            ("Type", "string", 0, "How the service is exposed."),
            ("Cluster-IP", "string", 0, "The address of the service within the cluster."),
            ("External-IP", "string", 0, "The addresses of the service outside of the cluster."),
            ("Port(s)", "string", 0, "The ports the service exposes."),
            AGE,
            ("Selector", "string", 1, "The labels of the pods that serve."),
        ],
        "Deployment" => &[
            NAMED,
            TEMPLATE_READY,
            ("Up-to-date", "string", 0, "Number of the pods that have the desired template."),
            ("Available", "string", 0, "Number of the pods that have been ready long enough."),
            AGE, CONTAINERS, IMAGES, SELECTOR,
        ],
        "DaemonSet" => &[
            NAMED,
            ("Desired", "integer", 0, "Number of the nodes that should run the daemon."),
            ("Current", "integer", 0, "Number of the nodes that run the daemon and should."),
            ("Ready", "integer", 0, "Number of the nodes whose daemon is ready."),
            ("Up-to-date", "integer", 0, "Number of the nodes whose daemon has the desired template."),
            ("Available", "integer", 0, "Number of the nodes whose daemon has been ready long enough."),
            ("Node Selector", "string", 0, "The labels of the nodes that should run the daemon."),
            AGE, CONTAINERS, IMAGES, SELECTOR,
        ],
        "ReplicaSet" => &[
            NAMED,
            ("Desired", "integer", 0, "Number of the pods that should be."),
            ("Current", "integer", 0, "Number of the pods that are."),
            ("Ready", "integer", 0, "Number of the pods that are ready."),
            AGE, CONTAINERS, IMAGES, SELECTOR,
        ],
        "StatefulSet" => &[NAMED, TEMPLATE_READY, AGE, CONTAINERS, IMAGES],
        "Job" => &[
            NAMED,
            ("Status", "string", 0, "Status of the job."),
            ("Completions", "string", 0, "Number of the pods that succeeded, of those that should."),
            ("Duration", "string", 0, "Time required to complete the job."),
            AGE, CONTAINERS, IMAGES, SELECTOR,
        ],
        "PodDisruptionBudget" => &[
            NAMED,
            ("Min Available", "string", 0, "The minimum number of pods that must be available."),
            ("Max Unavailable", "string", 0, "The maximum number of pods that may be unavailable."),
            ("Allowed Disruptions", "integer", 0, "How many pods may be disrupted now."),
            AGE,
        ],
        "RoleBinding" | "ClusterRoleBinding" => &[
            NAMED,
            ("Role", "string", 0, "The role that is granted."),
            AGE,
            ("Users", "string", 1, "Users the role is granted to."),
            ("Groups", "string", 1, "Groups the role is granted to."),
            ("ServiceAccounts", "string", 1, "Service accounts the role is granted to."),
        ],
        "PriorityClass" => &[
            NAMED,
            ("Value", "integer", 0, "The priority."),
            ("Global-Default", "boolean", 0, "Whether pods that name no class get this one."),
            AGE,
            ("PreemptionPolicy", "string", 0, "Whether pods of this class push others off their nodes."),
        ],
        "ValidatingAdmissionPolicy" => &[
            NAMED,
            ("Validations", "integer", 0, "Number of the rules."),
            ("ParamKind", "string", 0, "The kind of object that parametrizes the policy."),
            AGE,
        ],
        "ValidatingAdmissionPolicyBinding" => &[
            NAMED,
            ("PolicyName", "string", 0, "The policy that is bound."),
            ("ParamRef", "string", 0, "The object that parametrizes the policy."),
            AGE,
        ],
        _ => &[NAMED, ("Created At", "date", 0, CREATED)],
    }
}

/// The column definitions of a kind.
pub(super) fn definitions(kind: &str) -> Vec<Value> {
    let definition = |(name, kind, priority, description): &Column| {
        let format = if *name == "Name" { "name" } else { "" };
        json!({"name": name, "type": kind, "format": format, "description": description, "priority": priority})
    };
    columns(kind).iter().map(definition).collect()
}
