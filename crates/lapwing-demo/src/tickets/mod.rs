//! The model that the demo serves: support tickets are sent to the team that should answer them.
//!
//! A request names tickets. Their texts come from a feature table behind a cache (hydration), are tokenized (preprocessing), classified
//! by a small transformer on the engine's plan (forward), and the scores are calibrated (postprocessing). All of it is made from
//! seeds at the start: tickets, vocabulary, weights.

mod cache;
mod calibration;
mod classifier;
mod corpus;
mod encoder;
mod handler;
mod onnx;
mod replay;
mod table;
mod tokenizer;

pub(crate) use cache::{CacheCounts, CacheReading};
pub(crate) use handler::{TOP, TicketModel};
pub(crate) use table::id;

/// The name under which the model is served.
pub(crate) const MODEL: &str = "tickets";
/// The seed of the tickets in the feature table.
const SEED: u64 = 1;
/// Rows of the feature table, and of its cache when it is full.
const ROWS: usize = 4096;
/// Rows that a scenario asks for: the first of the table. The cache has all of them when a scenario begins.
pub(crate) const WORKING_SET: usize = 128;

/// The team of each ticket in the feature table, as a number, in the order of their ids.
pub(crate) fn teams() -> Vec<usize> {
    corpus::tickets(SEED, ROWS).into_iter().map(|ticket| ticket.team).collect()
}
