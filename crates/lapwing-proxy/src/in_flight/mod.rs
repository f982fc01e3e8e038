//! A request in flight with its open ledger, the reader of its bodies, and the observer that takes the closed ledger.

mod account;
mod body_observation;
mod client_expects;
mod context;
mod first_byte;
#[cfg(test)]
pub(crate) mod fixtures;
pub(crate) mod load_report;
mod observer;
mod refusals;
mod request;
mod request_known;
pub(crate) mod server_timing;
mod stamps;

pub(crate) use account::RequestAccount;
pub(crate) use context::{RequestContext, WorkerParts};
pub(crate) use observer::FencedObserver;
pub use observer::{Observer, OnClose, Profiler, ReportReader};
pub(crate) use refusals::CountRefusals;
pub(crate) use request::{AccountGuard, InFlight};
