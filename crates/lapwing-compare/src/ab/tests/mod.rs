//! The statistics against their oracles, their laws, what people read, and seeded runs under noise of every kind.

mod counts;
mod evidence;
mod matching;
mod oracle;
mod report;
mod simulation;
pub(crate) mod stream;
mod tracking;
