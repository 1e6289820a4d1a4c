//! The server as its clients see it, through `kube`.
#![allow(clippy::unwrap_used)]

mod answers;
mod cluster;
mod controlling;
mod core;
mod crud;
mod custom;
mod faulty;
mod lists;
mod ownership;
mod policies;
mod rights;
mod roles;
mod scaling;
mod socket;
mod stress;
mod support;
mod tokens;
mod watching;
