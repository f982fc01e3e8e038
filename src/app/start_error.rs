//! Why Lapwing could not start.

use std::io;
use std::net::SocketAddr;

use super::hosted::HostError;
use lapwing_diagnosis::cost::CostError;
use lapwing_protocol::TokenizerError;
use lapwing_settings::Fault;
use lapwing_shadow::mapping::MappingError;

/// Why Lapwing could not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// An address could not be listened on.
    #[error("{key}: {address}: {cause}{hint}")]
    Bind {
        /// The setting.
        key: &'static str,
        /// Its value.
        address: SocketAddr,
        /// The operating system's error.
        cause: io::Error,
        /// What the user can do about it.
        hint: &'static str,
    },
    /// Certificates, keys or authorities cannot be used.
    #[error("{}", shown(.0))]
    Tls(Vec<Fault>),
    /// The admin token cannot be read.
    #[error("{0}")]
    AdminToken(String),
    /// The access log cannot be written.
    #[error("access_log: {0}")]
    AccessLog(String),
    /// The collector for forwarded telemetry cannot be used.
    #[error("otlp_forward: {0}")]
    Forward(#[from] lapwing_attribution::collector::Error),
    /// The collector for Lapwing's own telemetry cannot be used.
    #[error("telemetry: {0}")]
    Telemetry(lapwing_attribution::collector::Error),
    /// A tokenizer cannot be read any more.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// A model's optimum cannot be had.
    #[error(transparent)]
    Cost(#[from] CostError),
    /// The engine.
    #[error(transparent)]
    Engine(#[from] HostError),
    /// A mapping of requests does not fit the model that it is for.
    #[error(transparent)]
    Mapping(#[from] MappingError),
    /// The Redis that answers are shared in.
    #[error("{0}")]
    Cache(Fault),
    /// A thread or its runtime could not be started.
    #[error("cannot start a thread: {0}")]
    Thread(io::Error),
}

fn shown(faults: &[Fault]) -> String {
    faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}
