//! The data plane: listens, carries requests, keeps the ledger. It knows nothing of histograms or exporters.

mod amended;
mod call;
mod chunk;
mod config;
mod connection;
mod error;
mod grpc;
mod io;
mod layer;
mod live;
mod meter;
mod profiler;
mod reading;
mod request;
mod rescue;
mod response;
mod stack;
mod timing;
mod upstream;
mod waits;
mod watch;

pub use config::{Config, TraceSampling, UpstreamProtocol};
pub use connection::{Parts, serve};
pub use error::Error;
pub use layer::trace::Tracing;
pub use live::Observer;
pub use profiler::{Profiler, Reports};
pub use rescue::{ERROR_FIELD, Verdict};
