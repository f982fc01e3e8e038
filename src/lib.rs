//! Lapwing: a sidecar latency-profiling proxy for ML model servers.
//!
//! The modules stand on floors, and each uses lower floors only (`tests/layout.rs` enforces it):
//!
//! | floor | modules |
//! |---|---|
//! | 0 | [`compression`], [`ledger`], [`settings`], [`metrics`] (may use `ledger`) |
//! | 1 | [`protocol`], [`net`] |
//! | 2 | [`attribution`] (may use `collector`), [`collector`], [`cost`] |
//! | 3 | [`shadow`], [`telemetry`], [`diagnosis`] |
//! | 4 | [`proxy`], [`export`], [`serving`] |
//! | 5 | [`config`] |
//! | 6 | [`app`] |
//!
//! ARCHITECTURE.md has the picture and the reasons.

#![forbid(unsafe_code)]

pub mod app;
pub mod attribution;
pub mod collector;
pub mod compression;
pub mod config;
pub mod cost;
pub mod diagnosis;
pub mod export;
pub mod ledger;
pub mod metrics;
pub mod net;
pub mod protocol;
pub mod proxy;
#[cfg(feature = "engine")]
pub mod serving;
pub mod settings;
pub mod shadow;
pub mod telemetry;
#[cfg(not(feature = "engine"))]
pub mod without_engine;
#[cfg(not(feature = "engine"))]
pub use without_engine as serving;
