use cobalt_core::{
    api::{condition_types as types, testing::hypervisor},
    operator::Taint,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;

use super::{decide, seen};

#[test]
fn a_manager_of_kubectl_is_shown_with_the_generation_it_was_seen_in() {
    for (managers, status, reason) in [
        (&["kubectl-edit", "cobalt-operator"][..], "True", "Kubectl"),
        (&["kubectl"], "True", "Kubectl"),
        (&["cobalt-operator", "manager"], "False", "NoKubectl"),
        (&["my-kubectl"], "False", "NoKubectl"),
        (&[], "False", "NoKubectl"),
    ] {
        let entry = |manager: &&str| ManagedFieldsEntry { manager: Some((*manager).to_owned()), ..Default::default() };
        let host = hypervisor("node-1").metadata(|metadata| {
            metadata.generation = Some(7);
            metadata.managed_fields = Some(managers.iter().map(entry).collect());
        });
        let plan = decide(&Taint, &seen(None, Some(host.build())));
        let tainted = plan.condition(types::TAINTED).unwrap();
        assert_eq!((tainted.status.as_str(), tainted.reason.as_str()), (status, reason), "{managers:?}");
        assert_eq!(tainted.observed_generation, Some(7));
    }
}

#[test]
fn a_host_that_is_not_there_is_not_judged() {
    assert!(decide(&Taint, &seen(None, None)).condition(types::TAINTED).is_none());
}
