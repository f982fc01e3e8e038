//! What an upstream window is made of where nothing is reported: a fit by work and concurrency.
//!
//! The model is a server with some slots that takes requests in the order of their arrival:
//!
//! window = fixed + per unit × work + per ahead × departures to wait for
//!
//! docs/INFERENCE.md says what it assumes, when it refuses, and what it cannot tell. In the order of the data:
//!
//! - `statistics` takes requests and holds what is kept of a series;
//! - `pending` judges 128 requests at a time by the model so far, and folds them into a block of time;
//! - `block` is that block, with `cells` by cost class and number in flight, and their `moments`;
//! - `part` is what some blocks say together;
//! - `model` is the model, `solve` fits it to cells;
//! - `estimate` fits a series with intervals, or says by `refusal` why not; `fitted` is the result;
//! - `infer` says what a fit makes of an exchange, and with `mixture` of all; `stages` is that on `/diagnosis`.

mod block;
mod cells;
mod estimate;
mod fitted;
mod infer;
mod mixture;
mod model;
mod moments;
mod part;
mod pending;
mod refusal;
mod solve;
mod stages;
mod statistics;
#[cfg(test)]
pub(crate) mod tests;

pub(crate) use block::Ratios;
pub use fitted::{FittedValue, FittedWaiting, WindowFit};
pub use infer::InferredParts;
pub(crate) use part::Part;
pub use refusal::FitRefusal;
pub use stages::{FittedStages, InferredStage, InferredStages, RefusedFit};
pub use statistics::FitStatistics;
