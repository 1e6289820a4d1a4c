//! Lists the interfaces of a switch by the crate `ovsdb`, says how many there are, and waits to be let go.
//!
//! The crate itself prints every message it gets to the standard output. That costs it, and cannot be switched off.

use std::path::PathBuf;

use ovsdb::{Client, protocol::method::Operation};
use serde_json::Value;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let socket = std::env::args_os().nth(1).map(PathBuf::from).ok_or("usage: cobalt-benches-ovsdb SOCKET")?;
    let client = Client::connect_unix(&socket).await?;
    let select = Operation::Select { table: "Interface".to_owned(), clauses: Vec::new() };
    let answer: Value = client.transact("Open_vSwitch", vec![select]).await?;
    let rows = answer[0]["rows"].as_array().map_or(0, Vec::len);
    // On a line of its own: what the crate prints need not end one.
    println!("\ndone {rows}");
    std::io::stdin().lines().count();
    drop(answer);
    Ok(())
}
