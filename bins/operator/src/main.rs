//! The hypervisor operator.

use std::process::ExitCode;

use clap::Parser;
use cobalt_core::{operator::program, runtime::program::finish};

fn main() -> ExitCode {
    let args = program::Args::parse();
    // The work is waiting for the API server; two threads are plenty and keep the memory small.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    finish(runtime.map_err(Into::into).and_then(|runtime| runtime.block_on(program::run(args)).map_err(Into::into)))
}
