//! A request in flight with its open ledger, the reader of its bodies, and the observer that takes the closed ledger.

mod answer_errors;
mod body_reader;
pub(crate) mod circumstances;
mod context;
mod first_byte;
#[cfg(test)]
pub(crate) mod fixtures;
mod grpc_status;
mod guard;
mod held_pieces;
mod in_flight;
mod on_close;
mod on_flush;
mod profiler;
mod request_arrival;
pub(crate) mod server_timing;
mod tracked_request;

pub use context::Observer;
pub(crate) use context::{CountRefusals, ExchangeContext};
pub(crate) use guard::ExchangeGuard;
pub(crate) use in_flight::InFlight;
pub(crate) use on_close::OnClose;
pub use profiler::{Profiler, ReportReader};
pub(crate) use tracked_request::TrackedRequest;
