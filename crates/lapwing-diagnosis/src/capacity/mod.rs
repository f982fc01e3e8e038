//! How much more a server can take: its utilisation, the rate at which a quantile crosses its budget, and what a replica would do.
//!
//! It follows from the fit of a series (`fit`). The queue is simulated with the measured service times and a fixed seed:
//!
//! - `random` is a small generator, so that the same figures give the same answer in every version;
//! - `service` draws service times as they were measured;
//! - `queue` is the queue: Lindley's recursion for many servers (Kiefer and Wolfowitz, 1955);
//! - `crossing` finds the rate at which a quantile meets a budget;
//! - `estimate` is what `/diagnosis` says about it.
//!
//! An estimate takes some ten milliseconds. The caller must not hold a lock under which exchanges are recorded.

mod crossing;
mod estimate;
mod queue;
mod service;
#[cfg(test)]
mod tests;

pub use estimate::{CapacityEstimate, CapacityQuestion, RefusedCapacity};
