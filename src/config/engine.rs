//! The settings of `lapwing engine serve`: the section `engine`, and those that every process has.

use serde::{Deserialize, Serialize};

use super::root::Root;
use super::sections::{Config, LogFormat, check_process};
use crate::serving;
use lapwing_settings::{Checks, Form, Period, Section};

/// The settings of a process that serves models and nothing else. A file may hold the other sections as well.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, expecting = "a section of keys")]
pub struct EngineConfig {
    /// How long calls that are being answered may take to end after SIGTERM. Default 30 s; 0 to 1 h.
    pub drain_timeout: Period,
    /// What is logged, as a filter of `tracing-subscriber`. Default `info`.
    pub log: String,
    /// The format of log lines. Default `text`.
    pub log_format: LogFormat,
    /// The models, and how they run.
    pub engine: serving::Config,
}

impl Default for EngineConfig {
    fn default() -> Self {
        let Config { drain_timeout, log, log_format, engine, .. } = Config::default();
        Self { drain_timeout, log, log_format, engine }
    }
}

impl Section for EngineConfig {
    const FORMS: &'static [(&'static str, Form)] = &[("engine", Form::Section(serving::Config::FORMS))];

    fn check(&self, checks: &mut Checks) {
        check_process(self.drain_timeout, &self.log, checks);
        checks.section("engine", |checks| self.engine.check(checks));
    }
}

impl Root for EngineConfig {
    fn complete(&mut self, is_given: &dyn Fn(&str) -> bool) -> Vec<(&'static str, &'static str)> {
        let what = "is required: give --model FILE, LAPWING_ENGINE__MODEL or `engine: {model: FILE}` in the file";
        let is_named = self.engine.is_on() || is_given("engine.model") || is_given("engine.models");
        if is_named { Vec::new() } else { vec![("engine.model", what)] }
    }

    fn check_together(&self, checks: &mut Checks, is_given: &dyn Fn(&str) -> bool) {
        let is_given = is_given("engine.model") || is_given("engine.models");
        if is_given && !self.engine.is_on() && checks.is_sound("engine.model") && checks.is_sound("engine.models") {
            checks.fault("engine.model", &self.engine.model, "names no model, and neither does engine.models");
        }
    }
}
