//! The certificate of a host: from its Secret to its files, and libvirt is told.

use std::{fs, path::Path, time::Duration};

use cobalt_core::{
    agent::{CERTIFICATE_REQUESTED, Certificates},
    api::Hypervisor,
    host::ActiveState,
    ids::HostName,
    runtime::shutdown::Shutdown,
};
use cobalt_sim::Region;
use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams},
};
use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use serde_json::{Value, json};

use super::{Rig, reason};

const INSTALLED: &str = "TLSCertificateInstalled";
const UPDATE_TLS: &str = "virt-admin-server-update-tls.service";

struct Host {
    rig: Rig,
    region: Region,
    name: HostName,
    pki: tempfile::TempDir,
    agent: Shutdown,
    ca: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Host {
    async fn new() -> Self {
        let rig = Rig::new().await;
        let region = Region::builder().hosts(1).vms_per_host(1).seed(3).build();
        let name = region.hosts().remove(0);
        let agent = rig.stop.child();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let ca = params.self_signed(&key).unwrap().pem();
        let issuer = Issuer::new(params, key);
        let this = Self { rig, region, name, pki: tempfile::tempdir().unwrap(), agent, ca, issuer };
        this.rig.operator();
        this.start_agent(this.agent.clone());
        this.rig.add_node(this.name.as_str(), json!({}), json!({})).await;
        this.until("reported", |hv| hv.is_true("LibVirtConnection")).await;
        this
    }

    fn start_agent(&self, stop: Shutdown) {
        let part = Certificates::new("certificates", self.pki.path()).issuer("ca");
        self.rig.agent_with(&self.region, &self.name, stop, |agent| agent.part(part));
    }

    async fn until(&self, what: &str, test: impl Fn(&Hypervisor) -> bool) -> Hypervisor {
        self.rig.until(self.name.as_str(), what, test).await
    }

    async fn installed(&self, reason_: &str) -> Hypervisor {
        self.until(reason_, |hv| reason(hv, INSTALLED) == Some(reason_)).await
    }

    fn secrets(&self, namespace: &str) -> Api<Secret> {
        Api::namespaced(self.rig.client.clone(), namespace)
    }

    /// A new certificate in the Secret of this host; its key is returned.
    async fn renew(&self, namespace: &str) -> String {
        let mut params = CertificateParams::new(vec![self.name.as_str().to_owned()]).unwrap();
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap().pem();
        let data = json!({"ca.crt": self.ca, "tls.crt": certificate, "tls.key": key.serialize_pem()});
        self.apply(namespace, data).await;
        key.serialize_pem()
    }

    async fn apply(&self, namespace: &str, data: Value) {
        let spaces: Api<k8s_openapi::api::core::v1::Namespace> = Api::all(self.rig.client.clone());
        let params = PatchParams::apply("test").force();
        let space = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
        spaces.patch(namespace, &params, &Patch::Apply(space)).await.unwrap();
        let name = format!("tls-libvirt-{}", self.name);
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": data});
        self.secrets(namespace).patch(&name, &params, &Patch::Apply(secret)).await.unwrap();
    }

    async fn spec(&self, spec: Value) {
        let patch = Patch::Merge(json!({"spec": spec}));
        self.rig.hypervisors().patch(self.name.as_str(), &PatchParams::default(), &patch).await.unwrap();
    }

    fn key(&self) -> Option<String> {
        fs::read_to_string(self.pki.path().join("libvirt/private/serverkey.pem")).ok()
    }

    async fn until_key(&self, key: &str) {
        for _ in 0..10_000 {
            if self.key().as_deref() == Some(key) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("the key never came");
    }
}

#[tokio::test(start_paused = true)]
async fn a_secret_is_installed_and_a_renewal_too_and_at_rest_nothing_is_written() {
    let host = Host::new().await;
    host.installed("FailedToUpdateTLSCertificate").await;
    let first = host.renew("certificates").await;
    host.installed("Ready").await;
    assert_eq!(host.key(), Some(first));
    let second = host.renew("certificates").await;
    host.until_key(&second).await;
    host.installed("Ready").await;
    host.rig.rest().await;
    host.rig.an_hour_of_rest(&[("agent", 2), ("operator", 4)]).await;
}

#[tokio::test(start_paused = true)]
async fn a_secret_of_that_name_in_another_namespace_is_nobodys() {
    let host = Host::new().await;
    host.renew("elsewhere").await;
    host.rig.rest().await;
    host.installed("FailedToUpdateTLSCertificate").await;
    assert_eq!(host.key(), None);
}

#[tokio::test(start_paused = true)]
async fn a_broken_secret_and_a_deleted_one_leave_the_good_files_alone() {
    let host = Host::new().await;
    let good = host.renew("certificates").await;
    host.installed("Ready").await;
    host.apply("certificates", json!({"ca.crt": host.ca, "tls.crt": "nonsense", "tls.key": "nonsense"})).await;
    let told = host.installed("FailedToUpdateTLSCertificate").await;
    assert!(told.condition(INSTALLED).unwrap().message.contains("tls.crt"));
    assert_eq!(host.key(), Some(good));
    let name = format!("tls-libvirt-{}", host.name);
    host.secrets("certificates").delete(&name, &DeleteParams::default()).await.unwrap();
    host.rig.rest().await;
    assert!(host.key().is_some());
    // And the next good one is taken at once, however long the bad one was there.
    tokio::time::sleep(Duration::from_secs(7200)).await;
    let next = host.renew("certificates").await;
    host.until_key(&next).await;
    host.installed("Ready").await;
}

#[tokio::test(start_paused = true)]
async fn a_restarted_agent_tells_libvirt_nothing_it_knows() {
    let host = Host::new().await;
    host.renew("certificates").await;
    host.installed("Ready").await;
    host.agent.trigger();
    host.rig.rest().await;
    // Were it started now, it would stay failed: nobody cleans up after it.
    host.region.world().set_unit(&host.name, UPDATE_TLS, ActiveState::Failed).unwrap();
    let before = fs::metadata(host.pki.path().join("CA/.last_resource_version")).unwrap().modified().unwrap();
    host.start_agent(host.rig.stop.child());
    host.rig.rest().await;
    host.installed("Ready").await;
    let after = fs::metadata(host.pki.path().join("CA/.last_resource_version")).unwrap().modified().unwrap();
    assert_eq!(before, after);
}

#[tokio::test(start_paused = true)]
async fn files_that_cannot_be_written_are_told_and_written_later() {
    let host = Host::new().await;
    let blocked = host.pki.path().join("qemu");
    fs::write(&blocked, "").unwrap();
    host.renew("certificates").await;
    let told =
        host.until("told", |hv| hv.condition(INSTALLED).is_some_and(|condition| condition.message.contains("/qemu")));
    assert_eq!(reason(&told.await, INSTALLED), Some("FailedToUpdateTLSCertificate"));
    assert!(!Path::new(&host.pki.path().join("libvirt/private/serverkey.pem")).exists());
    fs::remove_file(&blocked).unwrap();
    host.installed("Ready").await;
    assert!(host.key().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_host_that_does_not_want_it_gets_no_certificate() {
    let host = Host::new().await;
    host.installed("FailedToUpdateTLSCertificate").await;
    host.spec(json!({"installCertificate": false})).await;
    host.until("silent", |hv| hv.condition(INSTALLED).is_none()).await;
    host.renew("certificates").await;
    host.rig.rest().await;
    assert_eq!(host.key(), None);
}

#[tokio::test(start_paused = true)]
async fn a_cluster_without_cert_manager_is_told_of() {
    let host = Host::new().await;
    host.spec(json!({"createCertManagerCertificate": true})).await;
    host.until("told", |hv| reason(hv, CERTIFICATE_REQUESTED) == Some("NoCertManager")).await;
    host.spec(json!({"createCertManagerCertificate": false})).await;
    host.until("silent", |hv| hv.condition(CERTIFICATE_REQUESTED).is_none()).await;
}
