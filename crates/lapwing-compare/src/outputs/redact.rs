//! Replaces the values that the configuration hides in whole JSON bodies, for recordings.

use serde_json::Value;

use super::Config;
use super::paths::{PathPart, PathSet, PathState};

/// What replaces a hidden value.
const HIDDEN: &str = "***";

/// Hides the values at the paths of `redact`.
#[derive(Clone, Debug)]
pub struct Redactor {
    paths: PathSet,
    is_idle: bool,
}

impl Redactor {
    /// By a checked configuration.
    #[must_use]
    pub fn new(config: &Config) -> Self {
        Self { paths: PathSet::new(&config.redact), is_idle: config.redact.is_empty() }
    }

    /// Whether there is no path, so that nothing is hidden.
    #[must_use]
    pub const fn is_idle(&self) -> bool {
        self.is_idle
    }

    /// The document `body` with `"***"` in place of each hidden value, written anew: its spaces, the order of its keys and the digits
    /// of its numbers may change. `None` if it is no JSON, or is nested deeper than 128.
    #[must_use]
    pub fn redacted(&self, body: &[u8]) -> Option<Vec<u8>> {
        let mut document = serde_json::from_slice(body).ok()?;
        self.hide(&mut document, &self.paths.start());
        serde_json::to_vec(&document).ok()
    }

    fn hide(&self, value: &mut Value, state: &PathState) {
        if self.paths.matches(state) {
            *value = HIDDEN.into();
            return;
        }
        match value {
            Value::Object(members) => {
                for (key, member) in members {
                    self.hide(member, &self.paths.step(state, &PathPart::Key(key)));
                }
            }
            Value::Array(elements) => {
                for (at, element) in elements.iter_mut().enumerate() {
                    self.hide(element, &self.paths.step(state, &PathPart::Element(at)));
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidden_values_are_gone_and_the_others_stay() {
        let redact = ["$.prompt", "$.messages[].content", "$..key"].map(str::to_owned).to_vec();
        let redactor = Redactor::new(&Config { redact, ..Config::default() });
        let body = br#"{"prompt": ["a", "b"], "messages": [{"role": "user", "content": "s"}], "a": {"key": 1, "x": 0.1}}"#;
        let expected = serde_json::json!({
            "prompt": "***", "messages": [{"role": "user", "content": "***"}], "a": {"key": "***", "x": 0.1}
        });
        let redacted = redactor.redacted(body).unwrap();
        assert_eq!(serde_json::from_slice::<Value>(&redacted).unwrap(), expected);
        assert!(!redactor.is_idle() && Redactor::new(&Config::default()).is_idle());
    }

    #[test]
    fn what_is_no_json_is_refused() {
        let redactor = Redactor::new(&Config { redact: vec!["$.a".to_owned()], ..Config::default() });
        let deep = "[".repeat(10_000);
        for body in [&b"{\"a\": "[..], b"\x00\xff", deep.as_bytes(), b"{} {}"] {
            assert_eq!(redactor.redacted(body), None);
        }
    }
}
