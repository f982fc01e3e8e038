//! A tower layer that keeps Lapwing's ledger for a server written in Rust: axum, tonic, hyper.
//!
//! Every request gets an account whose stages sum to its total, to the nanosecond. The handler marks what it does; the layer itself
//! observes the waits for the client. Closed ledgers go to the histograms of `lapwing-metrics` through a bounded queue, and
//! [`StatsService`] answers `/stats`, `/exchanges` and `/metrics` as the sidecar does. With
//! [`LedgerLayer::with_server_timing`], the response says what was marked, and a sidecar in front of the server joins it.
//!
//! It never waits, never alters a body, never reads one, and never fails a request: a full queue costs the record, which is counted,
//! and a mark after the ledger is closed is counted and dropped.
//!
//! ```
//! use bytes::Bytes;
//! use http::{Request, Response};
//! use http_body_util::Full;
//! use lapwing_tower::{LedgerLayer, RequestStages, ServerRecorder, Stage, Unit};
//! use tower::{Layer, ServiceExt, service_fn};
//!
//! # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
//! let recorder = ServerRecorder::start("digits")?;
//! let handler = service_fn(async |request: Request<_>| {
//!     let stages = request.extensions().get::<RequestStages>().cloned().unwrap_or_default();
//!     stages.model("digits");
//!     stages.work(Unit::Row, 32);
//!     let forward = stages.enter(Stage::Forward);
//!     // … the model runs …
//!     drop(forward);
//!     Ok::<_, std::convert::Infallible>(Response::new(Full::new(Bytes::from("[7]"))))
//! });
//! let server = LedgerLayer::new(&recorder).with_server_timing().layer(handler);
//!
//! let response = server.oneshot(Request::post("/predict").body(Full::<Bytes>::default())?).await?;
//! assert!(response.headers()["server-timing"].to_str()?.starts_with("forward;dur="));
//! drop(response); // its body was not read, so the client is taken to have left
//! recorder.flush();
//! let exchanges = recorder.recent(1);
//! assert_eq!(exchanges[0].account.total_ns(), exchanges[0].ledger.total_ns);
//! assert!(exchanges[0].account.stage_ns(Stage::Forward) > 0);
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

pub mod account;
mod body;
mod in_handler;
mod layer;
pub mod outcome;
mod recorder;
mod recording;
mod server_accounts;
mod stages;
mod stats_service;

pub use account::{LedgerService, ResponseFuture};
pub use body::{RequestBody, ResponseBody};
pub use lapwing_ledger::{Exchange, Outcome, Stage, Unit};
pub use lapwing_metrics::{Config, Labels};
pub use layer::LedgerLayer;
pub use recorder::{RecorderBuilder, ServerRecorder};
pub use recording::RecordLedger;
pub use server_accounts::ServerAccounts;
pub use stages::{During, RequestStages, StageGuard};
pub use stats_service::{StatsBody, StatsService};
