//! Two answers to one request held against each other: what they say ([`outputs`]) and how long they took ([`ab`]).
//!
//! It is given finished answers and latencies; it sends nothing, waits for nothing, and never runs on a request's path.

#![forbid(unsafe_code)]

pub mod ab;
pub mod outputs;
pub mod secret_names;
