//! Wiring: who owns which thread and task, start and shutdown, the command line, and the demo.

mod aggregate;
mod check;
pub mod cli;
mod control;
mod data;
pub mod demo;
pub mod engine;
mod hosted;
mod log;
mod run;
mod running;
mod signals;
mod upstream_flags;

pub use run::run;
pub use running::{Addresses, Running, StartError, start};
