//! What a request must be, as settings say it.

use http::{HeaderName, Method};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use lapwing_settings::{Checks, Form, Record, WorkRange};

/// What such a section is.
pub const MATCH: Record = Record {
    what: "a section with route, model, class or header, as in {route: POST /v1/*, header: 'x-tier: batch'}",
    keys: &[("route", Form::Text), ("model", Form::Text), ("class", Form::Text), ("header", Form::Text)],
    stand_in: &[],
};

/// What a request must be to be taken. `*` stands for any text.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(title = "match")]
pub struct RouteMatch {
    /// Its path, or method and path.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(example = "POST /v1/chat/*")]
    pub route: Option<String>,
    /// The model that its path names, as `/v2/models/NAME/infer` does, or its body where the protocol has the name there: such a request
    /// is held until its body has come (`hold`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// How much it asks for, by its body: rows, or what else the protocol counts; of generated answers the tokens that are read.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(example = "..31")]
    pub class: Option<WorkRange>,
    /// One of its header fields, or its presence.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(example = "x-tier: batch")]
    pub header: Option<String>,
}

impl RouteMatch {
    /// Method, if it is given, and path.
    pub(crate) fn method_and_path(&self) -> Option<(Option<&str>, &str)> {
        let route = self.route.as_deref()?.trim();
        Some(match route.split_once(' ') {
            Some((method, path)) => (Some(method), path.trim_start()),
            None => (None, route),
        })
    }

    /// Name and, if it is given, value of the header field.
    pub(crate) fn name_and_value(&self) -> Option<(&str, Option<&str>)> {
        let header = self.header.as_deref()?;
        Some(match header.split_once(':') {
            Some((name, value)) => (name.trim(), Some(value.trim())),
            None => (header.trim(), None),
        })
    }
}

/// Reports the faults of what a request must be.
pub fn check_match(key: &str, matches: &RouteMatch, checks: &mut Checks) {
    let RouteMatch { route: path, model, class, header } = matches;
    if path.is_none() && model.is_none() && class.is_none() && header.is_none() {
        checks.fault(key, "", "needs at least one of route, model, class, header");
    }
    if let Some((method, path)) = matches.method_and_path() {
        let at = format!("{key}.route");
        let shown = matches.route.as_deref().unwrap_or_default();
        if !path.starts_with(['/', '*']) {
            checks.fault(&at, shown, "must be a path or a method and a path, as in POST /v1/*");
        } else if method.is_some_and(|method| {
            Method::from_bytes(method.as_bytes()).is_err() || method.contains(|c: char| c.is_ascii_lowercase())
        }) {
            checks.fault(&at, shown, "must begin with a method in capitals, or with the path");
        }
    }
    if let Some((name, _)) = matches.name_and_value()
        && name.parse::<HeaderName>().is_err()
    {
        checks.fault(&format!("{key}.header"), name, "is not a header name; write name: value, or the name alone");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_keys_are_the_fields() {
        MATCH.assert_describes::<RouteMatch>();
    }
}
