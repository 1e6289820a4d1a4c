#![allow(clippy::unwrap_used)]

mod laws;
mod paths;
mod replay;
mod rules;
