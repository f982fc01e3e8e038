//! The section `hold`: how large, how many and how long.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use lapwing_settings::{Checks, Period, Section, Size};

/// The section `hold`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, expecting = "a section of keys")]
pub struct Config {
    /// The largest body that is held.
    pub max_body: Size,
    /// The memory of all held bodies.
    pub budget: Size,
    /// How long it may take to come.
    pub max_time: Period,
}

impl Default for Config {
    fn default() -> Self {
        Self { max_body: Size::mib(1), budget: Size::mib(64), max_time: Period::from_secs(10) }
    }
}

impl Section for Config {
    fn check(&self, checks: &mut Checks) {
        checks.range("max_body", &self.max_body, Size::kib(1)..=Size::mib(64));
        checks.range("max_time", &self.max_time, Period::from_millis(1)..=Period::from_secs(3600));
        if self.budget < self.max_body && checks.is_sound("budget") && checks.is_sound("max_body") {
            checks.fault("budget", self.budget, format!("has no room for one body of max_body, {}", self.max_body));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_fault_names_its_key_and_reason() {
        let faults = |config: Config| {
            let mut checks = Checks::default();
            config.check(&mut checks);
            checks.into_faults().iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(faults(Config::default()), Vec::<String>::new());
        let small = Config { budget: Size::kib(512), ..Config::default() };
        assert_eq!(faults(small), ["budget: 512KiB: has no room for one body of max_body, 1MiB"]);
        let empty = Config { max_body: Size(0), max_time: Period::from_secs(0), ..Config::default() };
        let found = faults(empty);
        assert!(found.len() == 2 && found[0].starts_with("max_body: 0"), "{found:?}");
        assert!(found[1].starts_with("max_time: 0"), "{found:?}");
    }
}
