//! Wiring: who owns which thread and task, start and shutdown, the command line.

mod access_log;
mod aggregate;
mod check;
pub mod cli;
mod cluster;
mod control;
mod data;
#[cfg(feature = "engine")]
mod demo;
mod doctor;
#[cfg(feature = "engine")]
pub mod engine;
mod file_watch;
#[cfg(feature = "engine")]
mod hosted;
mod identities;
mod in_force;
mod listening;
mod log;
mod outbound;
mod receivers;
mod reload;
mod replay;
mod run;
mod running;
mod service_manager;
mod shadow;
mod signals;
mod start_error;
mod telemetry;
mod threads;
#[cfg(feature = "engine")]
mod trial;
mod upstream_flags;
mod upstreams;
mod warm;
mod warming;

#[cfg(not(feature = "engine"))]
use crate::without_engine::{self as demo, self as engine, self as hosted};

pub use run::run;
pub use running::{Addresses, Running, StartError, start};
