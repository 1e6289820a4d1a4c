//! Real kubectl against the server on a socket: an old one and a current one, through the sessions that were
//! recorded from a real API server.
//!
//! `cargo xtask test` brings both programs. Where one is missing its test says so and counts as skipped; with
//! `CI=true` it fails instead.

mod current;
mod old;
mod recording;
mod stage;
mod tool;
mod wire;
