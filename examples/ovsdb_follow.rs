//! Every change of a database as a line, until Ctrl-C. A server that goes away is waited for.
//!
//!     cargo run -p cobalt-examples --example ovsdb_follow
//!     cargo run -p cobalt-examples --example ovsdb_follow -- --remote tcp:127.0.0.1:6642 OVN_Southbound Port_Binding

use std::io::Write;

use clap::Parser;
use cobalt_ovs::{
    ConnectOptions, Remote,
    ovsdb::{Follow, Ovsdb, Replica, ReplicaEvent, ReplicaOptions, Row, RowChange, Tables},
};
use futures::StreamExt;

/// Follows a database.
#[derive(Parser)]
struct Args {
    /// Where the server is: unix:PATH, tcp:HOST:PORT; several, separated by commas, are a cluster
    #[arg(long, default_value = "unix:/run/openvswitch/db.sock")]
    remote: String,
    /// Columns that are of no interest; statistics change all the time
    #[arg(long, value_delimiter = ',', default_value = "statistics,rstp_statistics")]
    without: Vec<String>,
    /// The database
    #[arg(default_value = "Open_vSwitch")]
    database: String,
    /// The tables; all of them if none is named
    tables: Vec<String>,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let remotes = Remote::list(&args.remote)?;
    // A replica follows what it is told to, so the server is asked once what there is.
    let schema = Ovsdb::connect(&remotes[0], &ConnectOptions::new()).await?.schema(&args.database).await?;
    let mut follow = Follow::new(&args.database);
    for (table, columns) in schema.tables {
        if args.tables.is_empty() || args.tables.contains(&table) {
            follow = follow.table(table, columns.columns.into_keys().filter(|column| !args.without.contains(column)));
        }
    }
    let replica = Replica::connect(remotes, follow, ReplicaOptions::new()).await?;
    let mut events = replica.events().boxed();
    let mut out = std::io::stdout();
    writeln!(out, "-- {} rows of {} {}", replica.read(Tables::len), args.database, schema.version)?;
    loop {
        let event = tokio::select! {
            event = events.next() => event,
            pressed = tokio::signal::ctrl_c() => return Ok(pressed?),
        };
        match event {
            Some(ReplicaEvent::Changed(changes)) => changes.iter().try_for_each(|change| show(change, &mut out))?,
            Some(ReplicaEvent::Connected) => writeln!(out, "-- connected")?,
            Some(ReplicaEvent::Disconnected(why)) => writeln!(out, "-- disconnected: {why}")?,
            Some(ReplicaEvent::Lagged(lost)) => writeln!(out, "-- too slow: {lost} events lost")?,
            Some(_) => {}
            None => return Ok(()),
        }
    }
}

/// What is new in a row, or all of a new one.
fn show(change: &RowChange, out: &mut impl Write) -> std::io::Result<()> {
    let nothing = Row::new();
    let (sign, old, new) = match (&change.old, &change.new) {
        (None, Some(new)) => ('+', &nothing, new.as_ref()),
        (Some(old), Some(new)) => ('~', old.as_ref(), new.as_ref()),
        (Some(old), None) => ('-', &nothing, old.as_ref()),
        (None, None) => return Ok(()),
    };
    let name = new.str("name").map_or_else(|| change.uuid.to_string(), ToOwned::to_owned);
    write!(out, "{sign} {} {name}", change.table)?;
    for (column, value) in new.iter().filter(|(column, value)| old.get(column) != Some(value)) {
        write!(out, " {column}={}", serde_json::to_string(value)?)?;
    }
    for (column, _) in old.iter().filter(|(column, _)| new.get(column).is_none()) {
        write!(out, " {column}=")?;
    }
    writeln!(out)
}
