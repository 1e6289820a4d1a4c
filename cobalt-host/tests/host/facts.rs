//! Facts: from hostnamed, from its properties, from files.

use cobalt_core::host::HostSystem;

use crate::rig::{Auth, HOSTNAMED, Rig};

#[tokio::test]
async fn facts_come_from_hostnamed_and_the_kernel_and_are_read_anew() {
    let Some(rig) = Rig::host("facts_come_from_hostnamed_and_the_kernel_and_are_read_anew").await else { return };
    rig.write("proc/cmdline", "intel_iommu=on hugepagesz=1G\n");
    rig.write("etc/os-release", "VERSION_ID=9\nVARIANT_ID=container\nPRETTY_NAME=Image\n");
    let host = rig.systemd().await;
    let facts = host.facts().await.unwrap();
    assert_eq!(facts.version.as_deref(), Some("1877.2"));
    assert_eq!(facts.variant_id.as_deref(), Some("kvm-gardener_prod-amd64"));
    assert_eq!(facts.pretty_version.as_deref(), Some("Garden Linux 1877.2"));
    assert_eq!(facts.garden_linux_features, ["log", "sap", "ssh", "_prod", "gardener", "kvm"]);
    assert_eq!(facts.kernel_command_line.as_deref(), Some("intel_iommu=on hugepagesz=1G"));
    assert_eq!(facts.hardware_serial.as_deref(), Some("7XKQ3M3"));
    assert_eq!(facts.firmware_date, "2025-03-01T00:00:00Z".parse().ok());
    assert_eq!(facts.boot_id.as_deref(), Some("3f2c8a52-0d1b-4c3e-9a77-1b2c3d4e5f60"));

    rig.describe(r#"{"KernelRelease": "6.12.50", "OperatingSystemReleaseData": ["VERSION_ID=12"]}"#).await;
    let facts = host.facts().await.unwrap();
    assert_eq!(facts.kernel_release.as_deref(), Some("6.12.50"));
    assert_eq!(facts.version.as_deref(), Some("12"));
    assert_eq!(facts.hardware_serial, None);
}

#[tokio::test]
async fn a_description_that_is_none_is_malformed() {
    let Some(rig) = Rig::host("a_description_that_is_none_is_malformed").await else { return };
    rig.describe("[]").await;
    let error = rig.systemd().await.facts().await.unwrap_err();
    assert_eq!(error.category(), "malformed", "{error}");
}

#[tokio::test]
async fn an_old_hostnamed_tells_by_its_properties_and_a_foreign_os_release_is_not_mixed_in() {
    let test = "an_old_hostnamed_tells_by_its_properties_and_a_foreign_os_release_is_not_mixed_in";
    let Some(mut rig) = Rig::bus(test, Auth::External).await else { return };
    rig.start_bare_hostnamed().await;
    rig.add_property(HOSTNAMED, "KernelRelease", "4.19.0").await;
    rig.add_property(HOSTNAMED, "OperatingSystemPrettyName", "Old Linux 7").await;
    let host = rig.systemd().await;
    rig.write("etc/os-release", "PRETTY_NAME='Image 1'\nVERSION_ID=1\n");
    let facts = host.facts().await.unwrap();
    assert_eq!(facts.kernel_release.as_deref(), Some("4.19.0"));
    assert_eq!((facts.pretty_version.as_deref(), facts.version), (Some("Old Linux 7"), None));
    rig.write("etc/os-release", "PRETTY_NAME='Old Linux 7'\nVERSION_ID=7\n");
    assert_eq!(host.facts().await.unwrap().version.as_deref(), Some("7"));
}

#[tokio::test]
async fn without_hostnamed_the_files_tell() {
    let Some(rig) = Rig::bus("without_hostnamed_the_files_tell", Auth::External).await else { return };
    rig.write("etc/os-release", "PRETTY_NAME='Debian GNU/Linux 12'\nVERSION_ID=12\n");
    rig.write("proc/sys/kernel/osrelease", "6.1.0-30-amd64\n");
    let facts = rig.systemd().await.facts().await.unwrap();
    assert_eq!(facts.version.as_deref(), Some("12"));
    assert_eq!(facts.kernel_release.as_deref(), Some("6.1.0-30-amd64"));
}
