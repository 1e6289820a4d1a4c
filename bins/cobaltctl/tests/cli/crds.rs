//! `cobaltctl crds`.

use std::fs;

use crate::{
    PROGRAM,
    testing::{Scratch, run},
};

#[test]
fn all_definitions_are_printed() {
    let said = run(PROGRAM, &["crds"]);
    assert_eq!((said.code, said.err.as_str()), (Some(0), ""));
    assert_eq!(said.out.matches("kind: CustomResourceDefinition").count(), 4);
    for name in
        ["hypervisors.kvm.cloud.sap", "evictions.kvm.cloud.sap", "migrations.kvm.cloud.sap", "ovsnodes.ovs.c5c3.io"]
    {
        assert!(said.out.contains(&format!("name: {name}\n")), "{name}");
    }
}

#[test]
fn the_files_are_the_ones_in_the_tree() {
    let scratch = Scratch::new();
    let directory = scratch.path("deep/down");
    let said = run(PROGRAM, &["crds", "--output", &directory.display().to_string()]);
    assert_eq!(said.code, Some(0), "{said:?}");
    let kept = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/crds");
    let mut names: Vec<_> = fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names.len(), 4);
    for name in names {
        let (written, kept) = (directory.join(&name), std::path::Path::new(kept).join(&name));
        assert!(said.out.contains(&written.display().to_string()), "named: {}", said.out);
        assert_eq!(fs::read_to_string(written).unwrap(), fs::read_to_string(kept).unwrap());
    }
}

#[test]
fn a_directory_that_cannot_be_is_named() {
    let scratch = Scratch::new();
    let file = scratch.file("file", "");
    run(PROGRAM, &["crds", "--output", &file]).refused(1, &["error: ", &file, "--output"]);
}
