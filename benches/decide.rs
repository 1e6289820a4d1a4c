//! The cost of one decision: all stages over one Hypervisor, and the bodies of its writes. No IO.
#![allow(missing_docs, clippy::expect_used)]

use std::hint::black_box;

use cobalt_benches::decision::Decision;
use cobalt_core::operator::pass;
use criterion::{Criterion, criterion_group, criterion_main};

fn decide(bench: &mut Criterion) {
    let Decision { stages, seen } = Decision::new().expect("a region to decide in");
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
