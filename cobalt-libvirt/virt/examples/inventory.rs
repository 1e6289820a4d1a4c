//! Reads a daemon through libvirt's C library, one step for each line on standard input: the other side of a comparison.
//!
//!     inventory qemu:///system inventory
//!     inventory qemu:///system scrape
//!
//! It says `ready`, waits for a line, works, says `done` with the number of domains, and begins again.
#![allow(clippy::print_stdout)]

use std::io;

use cobalt_core::backend::HypervisorBackend;
use cobalt_libvirt_virt::VirtBackend;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(uri), Some(what)) = (arguments.next(), arguments.next()) else {
        return Err("usage: inventory URI inventory|scrape".into());
    };
    let backend = VirtBackend::open(&uri).await?;
    println!("ready");
    for line in io::stdin().lines() {
        line?;
        let found = match what.as_str() {
            "inventory" => backend.inventory().await?.len(),
            "scrape" => backend.stats().await?.len(),
            other => return Err(format!("there is no step {other}").into()),
        };
        println!("done {found}");
        println!("ready");
    }
    Ok(())
}
