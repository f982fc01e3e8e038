//! The data plane: accepts connections, carries requests, and keeps their ledgers. It knows nothing of histograms or exporters.
//!
//! A request walks through `serve` (accept), `connection` (metered socket), `stack` and `layer` (the tower stack), `body` and `upstream`.
//! `in_flight` is its account: who measures, decides and observes, each a type of its own; once it is handed over, nothing can be written
//! into it. `head` has the rules for messages' heads, `upload` ends those that come too slowly, `hold` bounds what is held, `health` is what is known of the upstream as
//! a whole, `placement` chooses one where there are several, and `error` holds Lapwing's own responses. A module uses those before it: error, head, config, connection, health, upload, hold,
//! in_flight,
//! placement, body, upstream, layer, connection_settings, stack, serve.

#![forbid(unsafe_code)]

mod body;
mod config;
mod connection;
mod connection_settings;
mod error;
mod head;
mod health;
pub mod hold;
mod in_flight;
mod layer;
mod placement;
mod serve;
mod stack;
#[cfg(any(test, feature = "testing"))]
mod tests;
mod upload;
mod upstream;
mod workers;

pub use body::capture::{BodyCapture, CaptureBudget, CaptureLimits, CapturedBody, Incomplete, ReplayBody, capture_whole};
pub use config::{Config, QuickAck, TraceSampling, UpstreamProtocol};
pub use connection_settings::ConnectionSettings;
pub use error::Error;
pub use error::response::{ERROR_FIELD, ErrorResponse};
pub use head::{RefusedHead, UpstreamHeadError};
pub use health::UpstreamHealth;
pub use in_flight::{Observer, OnClose, Profiler, ReportReader};
/// Where closed ledgers go: each [`Observer`] takes them.
pub use lapwing_tower::RecordLedger;
pub use layer::tap::{AnsweredBy, AwaitedAnswer, CapturedAnswer, CapturedExchange, ExchangeTap, PassingRequest, StackTap};
pub use layer::trace::{ContinuedTrace, Tracing};
pub use placement::{PlacedUpstream, PlacementSettings, PoolMember, SplitAssignment, TrafficSplit, Upstreams};
pub use serve::{DataPlane, Levers, serve, serve_local};
#[cfg(any(test, feature = "testing"))]
#[doc(hidden)]
pub use tests::proxy_properties;
