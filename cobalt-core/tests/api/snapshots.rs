//! `deploy/crds` is what the types say.

use std::path::Path;

use cobalt_core::api::crd;
use cobalt_core::k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;

const UPDATE: &str = "COBALT_UPDATE_SNAPSHOTS";

#[test]
fn the_files_in_deploy_crds_are_up_to_date() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/crds");
    let mut expected = Vec::new();
    for crd in crd::all() {
        let path = directory.join(crd::file_name(&crd));
        let text = crd::document(&crd);
        if std::env::var_os(UPDATE).is_some() {
            std::fs::create_dir_all(&directory).unwrap();
            std::fs::write(&path, &text).unwrap();
        }
        let kept = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            kept == text,
            "{} is out of date. To write it anew:\n\n    {UPDATE}=1 cargo test -p cobalt-core --all-features --test api\n",
            path.display()
        );
        expected.push(path.file_name().unwrap().to_owned());
    }
    for entry in std::fs::read_dir(&directory).unwrap() {
        let name = entry.unwrap().file_name();
        assert!(
            expected.contains(&name) || Path::new(&name).extension().is_none_or(|ext| ext != "yaml"),
            "{name:?} is no CRD of ours"
        );
    }
}

#[test]
fn the_yaml_reads_back_as_the_same_definitions() {
    let read: Vec<CustomResourceDefinition> = serde_saphyr::from_multiple(&crd::to_yaml()).unwrap();
    assert_eq!(read, crd::all());
}

/// The API server reads YAML 1.1, where a bare `n`, `on` or `yes` is a boolean.
#[test]
fn words_that_yaml_1_1_takes_for_booleans_are_quoted() {
    let words = ["y", "Y", "n", "N", "yes", "No", "on", "OFF", "true", "False", "null", "~"];
    for word in words {
        let as_key = serde_saphyr::to_string(&std::collections::BTreeMap::from([(word, 1)])).unwrap();
        let as_value = serde_saphyr::to_string(&[word]).unwrap();
        assert_eq!(as_key.trim(), format!("\"{word}\": 1"));
        assert_eq!(as_value.trim(), format!("- \"{word}\""));
    }
}
