#![allow(clippy::unwrap_used)]

mod calls;
mod events;
mod peer;
