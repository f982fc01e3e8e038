//! Tests of the diagnosis as a whole.

mod bounds;
mod document;
mod notices;
mod scenarios;
mod simulator;
mod sureness;
mod troubles;
mod truth;
