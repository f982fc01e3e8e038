//! Scripted troubles on the demo's real server: `lapwing demo --scenario NAME`.
//!
//! - `knobs` are what a scenario may turn, `table` is one row for each scenario: nothing else knows a scenario by its name;
//! - `script` is the server's part, `relay` the link's, `arrivals` and `body` that of the clients;
//! - `truth` keeps what was done to each request, so that it can be held against what Lapwing says;
//! - `advice` asks Lapwing for its diagnosis.

mod advice;
pub(crate) mod arrivals;
pub(crate) mod body;
pub(crate) mod knobs;
pub(crate) mod relay;
pub(crate) mod script;
pub(crate) mod table;
pub(crate) mod truth;

use std::net::SocketAddr;
use std::path::PathBuf;

pub(crate) use self::advice::summary as advice;
pub use self::knobs::LoadLevel;
pub(crate) use self::knobs::{Changes, Scenario};
pub(crate) use self::script::Script;
pub(crate) use self::table::{SCENARIOS, find};

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
}

#[cfg(test)]
mod tests;
