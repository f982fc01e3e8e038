//! Scripted troubles on the demo's real server: `lapwing demo --scenario NAME`.
//!
//! - `knobs` are what a scenario may turn, `table` is one row for each scenario: nothing else knows a scenario by its name;
//! - `script` is the server's part, `relay` the link's, `arrivals`, `body` and `traffic` that of the clients;
//! - `truth` keeps what was done to each request, so that it can be held against what Lapwing says;
//! - `advice` asks Lapwing for its diagnosis, and `story` plays several scenarios, one after the other.

mod advice;
mod arrivals;
mod body;
mod knobs;
pub(crate) mod relay;
mod script;
mod story;
mod table;
mod traffic;
pub(crate) mod truth;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

pub(crate) use self::advice::summary as advice;
pub use self::knobs::LoadLevel;
pub(crate) use self::knobs::{Changes, Scenario};
pub(crate) use self::script::Script;
pub(crate) use self::story::{STORY, play_story};
pub(crate) use self::table::{SCENARIOS, find};
use super::report::LoadReport;

/// The settings of Lapwing that a scenario needs.
fn settings_of(scenario: &Scenario) -> Vec<(&'static str, String)> {
    let (quantile, ms) = scenario.budget;
    let budgets = ("metrics.budgets", format!(r#"{{"*": {{{quantile}: {ms}ms}}}}"#));
    let others = scenario.settings.iter().map(|(path, text)| (*path, (*text).to_owned()));
    std::iter::once(budgets).chain(others).collect()
}

/// Those of each scenario, by its name.
pub(crate) fn settings() -> Vec<(&'static str, Vec<(&'static str, String)>)> {
    SCENARIOS.iter().map(|scenario| (scenario.name, settings_of(scenario))).collect()
}

/// A scenario as the user asked for it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Played {
    pub(crate) scenario: Scenario,
    pub(crate) level: LoadLevel,
    pub(crate) seed: u64,
    /// Where the truth about each request is written.
    pub(crate) truth: Option<PathBuf>,
}

impl Played {
    /// Requests per second, unless the user chose: the mean, with bursts.
    pub(crate) fn rate(&self) -> f64 {
        self.scenario.load.rate[self.level.index()]
    }

    /// The settings of Lapwing that the scenario needs: the setting and its text.
    pub(crate) fn settings(&self) -> Vec<(&'static str, String)> {
        settings_of(&self.scenario)
    }

    /// The address that Lapwing sends to: the server's, or that of the link before it.
    ///
    /// # Errors
    ///
    /// If the link cannot be started.
    pub(crate) fn link(&self, server: SocketAddr) -> std::io::Result<(SocketAddr, Option<relay::RelayHandle>)> {
        if self.scenario.link.is_plain() {
            return Ok((server, None));
        }
        relay::start(server, self.scenario.link).map(|(address, handle)| (address, Some(handle)))
    }

    /// Sends the load until `stop`, and writes the truth if it was asked for.
    ///
    /// # Errors
    ///
    /// If the truth cannot be written.
    pub(crate) async fn send(
        &self,
        proxy: SocketAddr,
        script: Arc<Script>,
        rate: f64,
        stop: CancellationToken,
    ) -> std::io::Result<LoadReport> {
        let (report, log) = traffic::send(proxy, self, script, rate, stop).await;
        if let Some(path) = &self.truth {
            log.write(path, &self.scenario)?;
        }
        Ok(report)
    }
}

#[cfg(test)]
mod tests;
