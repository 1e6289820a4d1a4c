//! The cost of one decision: all stages over one Hypervisor, and the bodies of its writes. No IO.
#![allow(missing_docs)]

use std::{hint::black_box, sync::Arc};

use cobalt_core::{
    api::{
        labels,
        testing::{hypervisor, node},
    },
    operator::{Snapshot, default_stages, pass},
};
use criterion::{Criterion, criterion_group, criterion_main};

fn decide(bench: &mut Criterion) {
    let mut seen = Snapshot::new("node-1", cobalt_core::api::testing::MADE_AT);
    seen.node = Some(Arc::new(
        node("node-1").with_kvm().managed().with_label(labels::ZONE, "qa-1a").with_internal_ip("10.0.0.1").build(),
    ));
    seen.hypervisor = Some(Arc::new(hypervisor("node-1").onboarded().with_instances(50).build()));
    let stages = default_stages();
    bench.bench_function("decide", |bencher| bencher.iter(|| pass::decide(&stages, black_box(&seen))));
    bench.bench_function("decide and bodies", |bencher| {
        bencher.iter(|| {
            let plan = pass::decide(&stages, black_box(&seen));
            (pass::main_body(&seen, &plan), pass::status_body(&seen, &plan))
        });
    });
}

criterion_group!(benches, decide);
criterion_main!(benches);
