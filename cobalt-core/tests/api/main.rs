//! The API types: their CRDs, how they read what others wrote, and what they write.

#![allow(clippy::unwrap_used, missing_docs)]

mod builders;
mod conditions;
mod quantities;
mod reading;
mod samples;
mod schema;
mod snapshots;
mod writing;
