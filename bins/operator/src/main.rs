//! The hypervisor operator.

mod cloud;

use std::process::ExitCode;

use clap::Parser;
use cobalt_core::{
    operator::program,
    runtime::{program::finish, shutdown::TaskError},
};

/// A thousand hosts are many small pieces of memory that come and go, of which the system's allocator gives back little.
/// How much this one keeps is said in `.cargo/config.toml`.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Creates a Hypervisor for every hypervisor Node, brings the hosts into OpenStack, keeps them in step, drains them, and
/// takes them out again.
///
/// A Node is a hypervisor if it has the label nova.openstack.cloud.sap/virt-driver. The way into OpenStack is read from
/// the environment: OS_AUTH_URL, OS_USERNAME, OS_PASSWORD and their like, or OS_CLOUD with a clouds.yaml. New hosts are
/// tried in a project of its own, with a second login: see SMOKE_TEST_OS_X below.
#[derive(Parser, Clone, Debug)]
#[command(name = "cobalt-operator", version)]
struct Args {
    #[command(flatten)]
    operator: program::Args,
    #[command(flatten)]
    openstack: cloud::OpenStackArgs,
}

async fn run(args: Args) -> Result<(), TaskError> {
    let Args { operator, openstack } = args;
    let smoke_test = operator.smoke_test.clone();
    Ok(program::run(operator, |calls| openstack.reach(&smoke_test, calls)).await?)
}

fn main() -> ExitCode {
    let args = Args::parse();
    // The work is waiting for the API server; two threads are plenty and keep the memory small.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    finish(runtime.map_err(Into::into).and_then(|runtime| runtime.block_on(run(args))))
}
