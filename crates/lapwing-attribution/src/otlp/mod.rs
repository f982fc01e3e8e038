//! The OTLP receiver: traces, metrics and logs over gRPC and HTTP, and the forwarder to the user's own collector.
//!
//! The model server's exporter is pointed at Lapwing, so what is received is forwarded, and the user's collector gets what it would without
//! Lapwing. Spans are also decoded, one at a time, mapped to stages and handed to the join. Every request, queue and buffer here
//! is bounded, and what does not fit is counted.

mod decode;
mod export_handler;
mod forward;
mod json;
mod limits;
#[cfg(any(test, feature = "testing"))]
#[doc(hidden)]
pub mod otlp_properties;
mod own_traces;
mod packing;
mod receive_grpc;
mod receive_http;
mod refusals;
mod status;

pub use export_handler::ExportHandler;
pub use forward::{ForwardQueue, forwarder};
pub use own_traces::OwnTraces;
pub use receive_grpc::serve_grpc;
pub use receive_http::serve_http;
pub use refusals::{OtlpRefusals, RefusalCause};

#[cfg(test)]
mod tests;
