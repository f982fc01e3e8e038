//! A request in flight with its open ledger, what reads its bodies, and who takes the ledger when it is closed.

pub(crate) mod body_reader;
pub(crate) mod grpc;
pub(crate) mod in_flight;
pub(crate) mod profiler;
pub(crate) mod server_timing;
pub(crate) mod tracked_request;
