//! Tests that need several modules at once: plans of the fixtures, lowered, fused and run.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

pub(crate) mod naive;
pub(crate) mod plans;
