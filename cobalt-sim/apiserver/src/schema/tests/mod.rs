#![allow(clippy::unwrap_used)]

mod replay;
mod unit;
pub(crate) mod wire;
