//! The OTLP receiver: traces, metrics and logs by gRPC and by HTTP, and their way on to the user's own collector.
//!
//! The upstream's exporter points at us, so everything received is passed on as it came; spans are also decoded, mapped to
//! stages and handed to the join. Every queue and buffer here is bounded, and what does not fit is counted.

mod connections;
mod decode;
mod forward;
mod inbox;
mod json;
mod ours;
mod receive_grpc;
mod receive_http;
mod signal;
mod status;

pub use forward::{Error, ForwardQueue, forwarder};
pub use inbox::Inbox;
pub use ours::Ours;
pub use receive_grpc::serve_grpc;
pub use receive_http::serve_http;

#[cfg(test)]
mod forward_tests;
#[cfg(test)]
mod grpc_tests;
#[cfg(test)]
mod http_tests;
#[cfg(test)]
mod sample;
#[cfg(test)]
mod servers_tests;
