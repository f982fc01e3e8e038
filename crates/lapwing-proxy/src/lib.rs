//! The data plane: accepts connections, carries requests, and keeps their ledgers. It knows nothing of histograms or exporters.
//!
//! A request walks through `serve` (accept), `connection` (metered socket), `stack` and `layer` (the tower stack), `body` and
//! `upstream`; `head` has the rules for messages' heads, `upload` ends those that come too slowly, `in_flight` is the request in flight, which all of them write into, and `error`
//! holds Lapwing's own responses.

#![forbid(unsafe_code)]

mod body;
mod config;
mod connection;
mod connection_settings;
mod error;
mod head;
mod health;
mod in_flight;
mod layer;
#[cfg(any(test, feature = "testing"))]
#[doc(hidden)]
pub mod proxy_properties;
mod serve;
mod stack;
mod upload;
mod upstream;
#[cfg(test)]
mod wakeups;
mod workers;

pub use body::capture::{Capture, CaptureBudget, CaptureLimits, CapturedBody, Incomplete, ReplayBody, capture_whole};
pub use config::{Config, QuickAck, TraceSampling, UpstreamProtocol};
pub use connection_settings::ConnectionSettings;
pub use error::Error;
pub use error::response::{ERROR_FIELD, ErrorResponse};
pub use head::{RefusedHead, UpstreamHeadError};
pub use health::UpstreamHealth;
pub use in_flight::{Observer, Profiler, ReportReader};
pub use layer::shadow::{
    PAIR_FIELD, PairNumbers, PrimaryAnswer, RecordingSwitch, RunningRecording, ShadowJob, ShadowRole, ShadowTap, TapBranch,
    TapParts,
};
pub use layer::trace::{ContinuedTrace, Tracing};
pub use serve::{DataPlane, serve, serve_local};
