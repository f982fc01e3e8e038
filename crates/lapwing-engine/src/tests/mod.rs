//! Tests that need several modules at once: random plans and those of the fixtures, lowered, fused and run.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod fuse;
pub(crate) mod naive;
mod pasts;
pub(crate) mod plans;
