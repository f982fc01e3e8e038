//! `lapwing demo`: a model server with features, a tokenizer, a model and calibration, a load on it, and a live table that shows
//! where the time goes.
//!
//! The model is served by `serving/` and run by the engine. The parts know only each other's socket addresses: [`run`] starts the
//! server ([`start_server`]), puts Lapwing in front of it, and lets `Demo::drive` send the load and draw the table.

#![forbid(unsafe_code)]

mod cli;
mod client;
mod drive;
mod injected;
mod load;
mod options;
mod report;
mod run;
mod scenario;
mod server;
mod spans;
mod steps;
mod story;
mod tickets;
mod traffic;
mod view;

pub use cli::DemoArgs;
pub use cli::run_command;
pub use load::run_load;
pub use options::Demo;
pub use report::LoadReport;
pub use run::{DemoError, FrontedServer, Places, StartLapwing, run};
pub use scenario::LoadLevel;
pub use server::{ServerHandle, start_server};

/// The name of each scenario, and the settings of Lapwing that it needs: paths of the configuration and their texts.
#[must_use]
pub fn scenario_settings() -> Vec<(&'static str, Vec<(&'static str, String)>)> {
    scenario::settings()
}
