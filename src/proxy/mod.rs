//! The data plane: listens, carries requests, keeps the ledger. It knows nothing of histograms or exporters.

mod body;
mod config;
mod connection;
mod error;
mod exchange;
mod layer;
mod stack;
mod upstream;

pub use config::{Config, TraceSampling, UpstreamProtocol};
pub use connection::{ConnectionSettings, Parts, serve};
pub use error::Error;
pub use error::response::{ERROR_FIELD, Verdict};
pub use exchange::in_flight::Observer;
pub use exchange::profiler::{Profiler, Reports};
pub use layer::trace::Tracing;
