//! Delivers OTLP messages to a collector over gRPC or HTTP: one attempt at a time, a bounded number of attempts, growing pauses.
//!
//! What is received and passed on (`attribution`) and Lapwing's own signals (`telemetry`) are both sent by it. It keeps no queue
//! and counts nothing: its callers bound their messages and count what becomes of them.

mod grpc;
mod headers;
mod send;
mod signal;
mod transport;

#[cfg(test)]
mod tests;

use bytes::Bytes;

pub use self::headers::Error;
pub use self::send::{RetryPolicy, SendError, Transport, send};
pub use self::signal::{Encoding, Signal};
pub use self::transport::{CollectorClient, CollectorOptions, Compression};

/// An export request on its way to a collector.
#[derive(Clone, Debug)]
pub struct ExportMessage {
    /// What it carries.
    pub signal: Signal,
    /// How it is encoded.
    pub encoding: Encoding,
    /// The encoded request, not compressed.
    pub body: Bytes,
}
