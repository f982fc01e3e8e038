//! The data plane: listens, carries requests, keeps the ledger. It knows nothing of histograms or exporters.

mod body;
mod config;
mod connection;
mod error;
mod exchange;
mod layer;
mod serve;
mod settings;
mod stack;
mod upstream;

pub use config::{Config, TraceSampling, UpstreamProtocol};
pub use error::Error;
pub use error::response::{ERROR_FIELD, ErrorResponse};
pub use exchange::{Observer, Profiler, ReportReader};
pub use serve::{Parts, serve};
pub use settings::{ConnectionSettings, Tracing};
