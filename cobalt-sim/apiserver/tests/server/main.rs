//! The server as its clients see it, through `kube`.
#![allow(clippy::unwrap_used)]

mod controlling;
mod core;
mod crud;
mod custom;
mod faulty;
mod lists;
mod ownership;
mod rights;
mod socket;
mod stress;
mod support;
mod watching;
