//! The admin server: stats, exchanges, diagnosis, metrics, HDR logs, configuration and health.
//!
//! It reads what the aggregator wrote and never changes it; `/record` alone starts something. Responses are made on tokio's blocking
//! threads, one at a time; at most four are made or wait to be read. They lock the registry for one series at a time, so that neither requests nor
//! the aggregator wait.
//!
//! ```
//! use std::sync::Arc;
//!
//! use axum::http::{Method, Request};
//! use lapwing_admin::{Surfaces, router};
//! use tower::ServiceExt;
//! # use lapwing_metrics::{Config, Counters, Labels, Registry};
//! # use lapwing_settings::ConfigHandle;
//!
//! # let (labels, counters) = (Arc::new(Labels::new(1, 1, 1)), Arc::new(Counters::default()));
//! let surfaces = Surfaces {
//!     config: ConfigHandle::fixed(serde_json::json!({"upstream": {"url": "http://127.0.0.1:8000"}})),
//!     ready: Arc::new(|| Box::pin(async { Err("the upstream refuses connections".to_owned()) })),
//!     // … and the registry, the counters and what else it reads
//! #   registry: Arc::new(parking_lot::Mutex::new(Registry::new(Config::default(), labels, counters.clone()))),
//! #   counters,
//! #   optima: Arc::default(),
//! #   config_schema: Arc::default(),
//! #   upstreams: Arc::new(Vec::new),
//! #   engine: Arc::new(Vec::new),
//! #   split: None,
//! #   trials: None,
//! #   dispatch: None,
//! #   cache: None,
//! #   downstreams: None,
//! #   shadow: None,
//! #   recording: Arc::default(),
//! #   diagnosis: None,
//! #   admin_token: None,
//! #   admin_token_for: lapwing_settings::AdminTokenFor::default(),
//! #   record: Arc::new(|_| Err("nothing is recorded here".to_owned())),
//! #   leaving: tokio_util::sync::CancellationToken::new(),
//! #   draining: tokio_util::sync::CancellationToken::new(),
//! #   limits: ConfigHandle::fixed(lapwing_metrics::views::ProfilerLimits::default()),
//! #   started_unix_ns: lapwing_ledger::clock::unix_ns(),
//! #   started: lapwing_ledger::Stamp::now(),
//! };
//! # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
//! let admin = router(surfaces);
//! for (method, path, status) in [
//!     (Method::GET, "/config", 200),
//!     (Method::GET, "/livez", 200),
//!     (Method::GET, "/readyz", 503), // and says why
//!     (Method::PUT, "/config", 405), // nothing that it shows can be changed through it
//!     (Method::GET, "/diagnosis", 404), // it is off
//! ] {
//!     let request = Request::builder().method(method).uri(path).body(axum::body::Body::empty())?;
//!     assert_eq!(admin.clone().oneshot(request).await?.status(), status, "{path}");
//! }
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

mod access;
mod access_line;
mod answers;
mod cache;
mod diagnosis;
mod dispatch;
mod endpoints;
mod handlers;
mod hdr;
mod health;
mod hosted;
mod in_process;
mod inferred;
mod leave;
mod openapi;
mod otlp;
mod page;
mod prometheus;
mod query;
mod record;
mod server;
mod shadow;
mod split;
mod stats;
mod surfaces;
mod trials;

pub use access_line::access_line;
pub use diagnosis::DiagnosisSurface;
pub use hosted::{HostedFallback, HostedModel, HostedModels};
pub use in_process::report_json;
pub use inferred::Inference;
pub use otlp::otlp_metrics;
pub use server::{router, serve};
pub use shadow::{ComparedTargets, compared_targets};
pub use surfaces::{Probe, Probing, StartRecording, Surfaces, UpstreamState};

#[cfg(test)]
mod tests;
