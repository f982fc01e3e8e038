//! Configuration of reading traffic: whether bodies are read, what a model costs, and rules for servers whose protocol is not
//! known here.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::json_pointer::paths_of_pointer;
use super::tokenizer;
use lapwing_ledger::{Basis, Unit, Work};
use lapwing_settings::{Checks, Form, Record, Section};

/// An element of `custom`.
const RULE: Record = Record {
    what: "a rule: route, and at least one of model, rows, entities, input_tokens, output_tokens and elements",
    keys: &[
        ("route", Form::Text),
        ("model", Form::Record(&NAME)),
        ("rows", Form::Record(&AMOUNT)),
        ("entities", Form::Record(&AMOUNT)),
        ("input_tokens", Form::Record(&AMOUNT)),
        ("output_tokens", Form::Record(&AMOUNT)),
        ("elements", Form::Record(&AMOUNT)),
        ("primary", Form::Text),
    ],
    stand_in: &[("route", "/")],
};

/// The location of a name.
const NAME: Record = Record {
    what: "a section with one of json, header and fixed",
    keys: &[("json", Form::Text), ("header", Form::Text), ("fixed", Form::Literal), ("from", Form::Text)],
    stand_in: &[],
};

/// The location of an amount.
const AMOUNT: Record = Record {
    what: "a section with one of json, header, length and fixed",
    keys: &[("json", Form::Text), ("header", Form::Text), ("length", Form::Text), ("fixed", Form::Number), ("from", Form::Text)],
    stand_in: &[],
};

/// What a model costs.
const FLOPS: Record = Record {
    what: "a section of FLOPs by unit, as in {per_row: 2.4e6}",
    keys: &[("per_row", Form::Number), ("per_input_token", Form::Number), ("per_output_token", Form::Number)],
    stand_in: &[],
};

/// The section `protocol`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, expecting = "a section of keys")]
pub struct Config {
    /// Whether bodies are read, in constant memory, after they were forwarded. Without it work, tokens, reports in bodies and
    /// errors inside an answer are unknown.
    pub read_bodies: bool,
    /// Rules for servers that docs/UPSTREAMS.md does not list. The first whose route matches decides, before the built-in ones.
    pub custom: Vec<Custom>,
    /// What a model costs in floating-point operations, by its name; `*` is every other model. A multiply-add is two.
    pub flops: BTreeMap<String, Flops>,
    /// A model's `tokenizer.json`, by its name; `*` is every other model. It counts input tokens that no server reports. Read at
    /// the start; needs the feature `tokenizers`.
    #[schemars(with = "BTreeMap<String, lapwing_settings::File>")]
    #[schemars(extend("x-fixed-at-start" = true))]
    pub tokenizers: BTreeMap<String, PathBuf>,
}

impl Config {
    /// The headers of requests in which rules find the model or the work.
    pub fn request_headers(&self) -> impl Iterator<Item = &str> {
        self.custom.iter().flat_map(|rule| {
            let model = rule.model.as_ref().filter(|name| name.from == Side::Request).and_then(|name| name.header.as_deref());
            let amounts = rule.amounts().filter(|(.., amount)| amount.from == Side::Request);
            model.into_iter().chain(amounts.filter_map(|(.., amount)| amount.header.as_deref()))
        })
    }
}

impl Default for Config {
    fn default() -> Self {
        Self { read_bodies: true, custom: Vec::new(), flops: BTreeMap::new(), tokenizers: BTreeMap::new() }
    }
}

/// The floating-point operations of a model; a multiply-add counts as two. The parts add up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(title = "cost")]
pub struct Flops {
    /// For each row.
    pub per_row: f64,
    /// For each token that it reads.
    pub per_input_token: f64,
    /// For each token that it writes.
    pub per_output_token: f64,
}

impl Flops {
    /// The FLOPs of this work, and the worst basis of the amounts used; `None` if an amount is unknown.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a cost is right to a few digits")]
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it saturates, and is not negative")]
    pub fn of(&self, work: &Work) -> Option<(u64, Basis)> {
        let units =
            [(Unit::Row, self.per_row), (Unit::InputToken, self.per_input_token), (Unit::OutputToken, self.per_output_token)];
        let (mut flops, mut worst) = (0.0, Basis::Counted);
        for (unit, per_unit) in units.into_iter().filter(|(_, per_unit)| *per_unit > 0.0) {
            let (amount, basis) = work.get(unit)?;
            flops += amount as f64 * per_unit;
            worst = worst.min(basis);
        }
        (flops >= 1.0).then_some((flops as u64, worst))
    }
}

/// Where to find the model and the work of requests on a route.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(title = "rule")]
pub struct Custom {
    /// The requests that the rule applies to: a path, or a method and a path, with `*` for any text.
    #[schemars(example = "POST /score/*")]
    pub route: String,
    /// The model's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<Named>,
    /// Rows of a batch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rows: Option<Amount>,
    /// Entities whose features are looked up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entities: Option<Amount>,
    /// Tokens that the model reads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input_tokens: Option<Amount>,
    /// Tokens that the model writes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_tokens: Option<Amount>,
    /// Scalars of the input.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub elements: Option<Amount>,
    /// The unit of cost classes. Default: the first that the rule names of output tokens, input tokens, rows, entities and
    /// elements, else `byte`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub primary: Option<Unit>,
}

/// A message of an exchange.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Side {
    /// What the client sent.
    #[default]
    Request,
    /// What the upstream answered.
    Response,
}

/// Where to find a name: exactly one of `json`, `header`, `fixed`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(title = "name")]
pub struct Named {
    /// A JSON pointer into the body.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub json: Option<String>,
    /// The name of a header; of a response also of a trailer, which wins.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub header: Option<String>,
    /// The name itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fixed: Option<String>,
    /// Whose body or header is meant.
    pub from: Side,
}

/// Where to find an amount: exactly one of `json`, `header`, `length`, `fixed`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(title = "amount")]
pub struct Amount {
    /// A JSON pointer into the body, as `/inputs/0/data`, with at most six numbers; `*` matches every element and adds what it
    /// finds. A number counts as itself, a list as its length, a text or an object as one. For tokens a text counts as a quarter of
    /// its bytes, an estimate, and each `output_tokens` text of a stream of events as one token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub json: Option<String>,
    /// The name of a header whose value is a number; of a response also of a trailer, which wins. One of a response that is
    /// repeated or no count (negative, not finite, 9 × 10¹⁵ or more) is not used, and counts in `lapwing_reports_malformed_total`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub header: Option<String>,
    /// The bytes of the request's or the response's body.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub length: Option<Side>,
    /// The amount itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fixed: Option<u64>,
    /// Whose body or header is meant.
    pub from: Side,
}

impl Custom {
    /// The method, if the route names one, and the path.
    #[must_use]
    pub fn route(&self) -> (Option<&str>, &str) {
        self.route.split_once(' ').map_or((None, self.route.as_str()), |(method, path)| (Some(method), path.trim_start()))
    }

    /// The amounts that the rule names, each with its key.
    pub fn amounts(&self) -> impl Iterator<Item = (&'static str, Unit, &Amount)> {
        [
            ("output_tokens", Unit::OutputToken, &self.output_tokens),
            ("input_tokens", Unit::InputToken, &self.input_tokens),
            ("rows", Unit::Row, &self.rows),
            ("entities", Unit::Entity, &self.entities),
            ("elements", Unit::Element, &self.elements),
        ]
        .into_iter()
        .filter_map(|(key, unit, amount)| Some((key, unit, amount.as_ref()?)))
    }

    /// The unit that best describes the cost of a request; bytes if the rule names none.
    #[must_use]
    pub fn primary(&self) -> Unit {
        self.primary.or_else(|| self.amounts().next().map(|(_, unit, _)| unit)).unwrap_or(Unit::Byte)
    }
}

impl Section for Config {
    const FORMS: &'static [(&'static str, Form)] =
        &[("custom", Form::List(&RULE)), ("flops", Form::Named(&Form::Record(&FLOPS))), ("tokenizers", Form::Named(&Form::Text))];

    fn check(&self, checks: &mut Checks) {
        for (index, rule) in self.custom.iter().enumerate() {
            rule.check(checks, &format!("custom[{index}]"));
        }
        for (model, flops) in &self.flops {
            let parts = [
                ("per_row", flops.per_row),
                ("per_input_token", flops.per_input_token),
                ("per_output_token", flops.per_output_token),
            ];
            for (key, value) in parts {
                checks.range(&format!("flops.{model}.{key}"), &value, 0.0..=1e18);
            }
            if parts.iter().all(|(_, value)| *value == 0.0) {
                checks.fault(&format!("flops.{model}"), "", "needs a cost above zero");
            }
        }
        for (model, file) in &self.tokenizers {
            if let Some(error) = tokenizer::fault_of(file) {
                checks.fault(&format!("tokenizers.{model}"), file.display(), error.to_string());
            }
        }
        if !self.tokenizers.is_empty() && !self.read_bodies {
            checks.fault("tokenizers", "", "has no effect while read_bodies is false");
        }
    }
}

impl Custom {
    fn check(&self, checks: &mut Checks, path: &str) {
        let at = |key: &str| format!("{path}.{key}");
        let (method, route) = self.route();
        if !route.starts_with(['/', '*']) {
            checks.fault(&at("route"), &self.route, "must be a path or a method and a path, as in POST /score/*");
        } else if method.is_some_and(|method| method.is_empty() || !method.bytes().all(|byte| byte.is_ascii_uppercase())) {
            checks.fault(&at("route"), &self.route, "must begin with a method in capitals, or with the path");
        }
        let mut places = BTreeSet::new();
        let mut place = |checks: &mut Checks, key: &str, from: Side, json: &Option<String>, header: &Option<String>| {
            if let Some(pointer) = json {
                if paths_of_pointer(pointer).is_none() {
                    let reason = "must be a JSON pointer with at most six numbers, as in /inputs/0/data";
                    checks.fault(&at(&format!("{key}.json")), pointer, reason);
                } else if !places.insert((from as u8, pointer.clone())) {
                    checks.fault(&at(&format!("{key}.json")), pointer, "is already read for something else");
                }
            }
            if let Some(name) = header.as_ref().filter(|name| name.parse::<http::HeaderName>().is_err()) {
                checks.fault(&at(&format!("{key}.header")), name, "is not a header name");
            }
        };
        if let Some(name) = &self.model {
            place(checks, "model", name.from, &name.json, &name.header);
            one_of(
                checks,
                &at("model"),
                "json, header, fixed",
                &[name.json.is_some(), name.header.is_some(), name.fixed.is_some()],
            );
        }
        for (key, _, amount) in self.amounts() {
            place(checks, key, amount.from, &amount.json, &amount.header);
            one_of(
                checks,
                &at(key),
                "json, header, length, fixed",
                &[amount.json.is_some(), amount.header.is_some(), amount.length.is_some(), amount.fixed.is_some()],
            );
        }
        if self.model.is_none() && self.amounts().next().is_none() {
            checks.fault(
                path,
                &self.route,
                "needs something to read: model, rows, entities, input_tokens, output_tokens, elements",
            );
        }
        let known = |unit: Unit| unit == Unit::Byte || self.amounts().any(|(_, own, _)| own == unit);
        if let Some(primary) = self.primary.filter(|unit| !known(*unit)) {
            checks.fault(&at("primary"), primary.name(), "is not a unit that this rule reads");
        }
    }
}

fn one_of(checks: &mut Checks, path: &str, names: &str, given: &[bool]) {
    if given.iter().filter(|given| **given).count() != 1 {
        checks.fault(path, "", format!("needs exactly one of {names}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_keys_of_rules_and_costs_are_their_fields() {
        RULE.assert_describes::<Custom>();
        NAME.assert_describes::<Named>();
        AMOUNT.assert_describes::<Amount>();
        FLOPS.assert_describes::<Flops>();
    }
}
