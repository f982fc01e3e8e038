//! Wiring: who owns which thread and task, start and shutdown, the command line, and the demo.

mod access_log;
mod admin_client;
mod admin_token;
mod aggregate;
mod check;
pub mod cli;
mod control;
mod data;
#[cfg(feature = "engine")]
pub mod demo;
mod diagnose;
#[cfg(feature = "engine")]
pub mod engine;
mod fleet;
#[cfg(feature = "engine")]
mod hosted;
mod inferred;
mod log;
mod printable;
mod receivers;
mod record;
mod replay;
mod run;
mod running;
mod shadow;
mod shadow_report;
mod signals;
mod stats;
mod table;
mod telemetry;
#[cfg(feature = "top")]
mod top;
mod units;
mod upstream_flags;

#[cfg(not(feature = "engine"))]
use crate::without_engine::{self as demo, self as engine, self as hosted};

pub use run::run;
pub use running::{Addresses, Running, StartError, start};
