//! What each model server reports about itself, by exact field name.
//!
//! To add a server: add it to `ledger::Server`, write its rows in `generative.rs` or `classic.rs`, and name them in
//! [`table::of`].

mod classic;
mod debug_duration;
mod field;
mod generative;
mod report;
pub mod table;

pub use field::{FieldLocation, Flags, Quantity, ReportedField, Scale};
pub use report::{ReportPart, ReportedValues, ServerReport};
