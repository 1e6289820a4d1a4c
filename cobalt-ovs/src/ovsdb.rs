//! OVSDB, the protocol of RFC 7047: a client, and a copy of a database that follows it.
//!
//! [`Ovsdb`] is one connection. [`Replica`] keeps the tables and columns that a [`Follow`] names as they are in the
//! server, connects again by itself, and says what changed.

pub use self::{
    client::Ovsdb,
    datum::{Atom, Datum},
    monitor::{Clause, Follow, RowUpdate, TableUpdates, Updates},
    operation::{Condition, Function, Mutation, Operation, Outcome},
    replica::{Replica, ReplicaEvent, ReplicaOptions, ReplicaState},
    row::Row,
    schema::{ColumnSchema, Schema, TableSchema},
    tables::{RowChange, Tables},
};

mod client;
mod datum;
mod monitor;
mod operation;
mod probe;
mod replica;
mod row;
mod schema;
mod tables;
mod task;
#[cfg(all(test, feature = "testing"))]
#[allow(clippy::unwrap_used)]
mod tests;
