//! An element of `shadow.mappings`: where the JSON of a route has the tensors of a model.

use std::collections::BTreeMap;
use std::path::PathBuf;

use http::{HeaderMap, Method};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::named_routes::NamedRoutes;
use lapwing_compare::outputs::ValuePath;
use lapwing_protocol::{Protocols, TextEncoder};
use lapwing_settings::{Checks, Form, Record, ShadowTarget};

/// The most elements of the list.
pub(crate) const MAX_MAPPINGS: usize = 64;
/// The most inputs or outputs of an element.
const MAX_TENSORS: usize = 64;

/// An element of `shadow.mappings`.
pub(crate) const MAPPING: Record = Record {
    what: "a mapping: route, inputs and/or text with tokenizer, and outputs",
    keys: &[
        ("route", Form::Text),
        ("targets", Form::Texts),
        ("inputs", Form::Named(&Form::Text)),
        ("text", Form::Text),
        ("tokenizer", Form::Text),
        ("max_tokens", Form::Number),
        ("outputs", Form::Named(&Form::Text)),
    ],
    stand_in: &[("route", "POST /")],
};

/// Where requests and answers of a route have the tensors of a model. Paths lead to one value, or with `[]` to one of each element:
/// `$.rows`, `$.data[].embedding`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, expecting = "a section of keys")]
#[schemars(title = "mapping")]
pub struct MappingRule {
    /// The route, as `/stats` names it: `POST /score`.
    pub route: String,
    /// The targets that it is for, all of which the engine runs; without any, all such targets.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub targets: Vec<String>,
    /// Where the request has each input of the model, by the input's name: a number or lists of numbers.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub inputs: BTreeMap<String, String>,
    /// Where the request has a text or a list of texts, which become `input_ids`, `attention_mask` and, if the model has it,
    /// `token_type_ids`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// The model's `tokenizer.json`, for `text`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<lapwing_settings::File>")]
    pub tokenizer: Option<PathBuf>,
    /// The most tokens of a text, special ones included; longer texts are cut at their end.
    pub max_tokens: usize,
    /// Where the upstream's answer has each output of the model that is compared, by the output's name.
    pub outputs: BTreeMap<String, String>,
}

impl Default for MappingRule {
    fn default() -> Self {
        Self {
            route: String::new(),
            targets: Vec::new(),
            inputs: BTreeMap::new(),
            text: None,
            tokenizer: None,
            max_tokens: 512,
            outputs: BTreeMap::new(),
        }
    }
}

impl MappingRule {
    /// Whether it is for this target, which the engine runs.
    pub(crate) fn is_for(&self, target: &str) -> bool {
        self.targets.is_empty() || self.targets.iter().any(|own| own == target)
    }

    /// Reports what is wrong with it; `path` is where it stands in the section `shadow`, whose routes and
    /// targets these are.
    pub(crate) fn check(&self, checks: &mut Checks, path: &str, routes: &[String], targets: &BTreeMap<String, ShadowTarget>) {
        let at = |key: &str| format!("{path}.{key}");
        self.check_route(checks, &at("route"), routes);
        for (index, target) in self.targets.iter().enumerate() {
            match targets.get(target) {
                // a replay names its targets itself
                None if targets.is_empty() => {}
                None => checks.fault(&at(&format!("targets[{index}]")), target, "is none of shadow.targets"),
                Some(ShadowTarget::Engine(_)) => {}
                Some(ShadowTarget::Server(_)) => {
                    let reason = "is a server, and only models that the engine runs (engine:model.onnx) can have a mapping";
                    checks.fault(&at(&format!("targets[{index}]")), target, reason);
                }
            }
        }
        if !targets.is_empty() && !targets.values().any(|target| matches!(target, ShadowTarget::Engine(_))) {
            checks.fault(path, &self.route, "has no effect: no target is a model that the engine runs (engine:model.onnx)");
        }
        for (key, tensors) in [("inputs", &self.inputs), ("outputs", &self.outputs)] {
            if tensors.len() > MAX_TENSORS {
                checks.fault(&at(key), tensors.len(), format!("must be at most {MAX_TENSORS}"));
            }
            for (name, own) in tensors {
                check_path(checks, &at(&format!("{key}.{name}")), own);
            }
        }
        if self.inputs.is_empty() && self.text.is_none() {
            checks.fault(
                &at("inputs"),
                "",
                "is required, unless there is text: it says where the request has the model's inputs",
            );
        }
        if self.outputs.is_empty() {
            checks.fault(&at("outputs"), "", "is required: it says where the upstream's answer has the model's outputs");
        }
        self.check_text(checks, &at);
    }

    fn check_route(&self, checks: &mut Checks, key: &str, listed: &[String]) {
        let parts = self.route.split_once(' ').filter(|(_, path)| path.starts_with('/'));
        let Some((method, path)) = parts.and_then(|(method, path)| Some((Method::from_bytes(method.as_bytes()).ok()?, path)))
        else {
            return checks.fault(key, &self.route, "must be a method and a path, as /stats names the route: POST /score");
        };
        let is_named = NamedRoutes::new(listed).has(&self.route, method.as_str(), path);
        if !is_named && !Protocols::default().may_be_inference(&method, path, &HeaderMap::new()) {
            let reason = "is not copied: list it in shadow.routes too, if its requests are safe to repeat";
            checks.fault(key, &self.route, reason);
        }
    }

    fn check_text(&self, checks: &mut Checks, at: &impl Fn(&str) -> String) {
        if let Some(text) = &self.text {
            check_path(checks, &at("text"), text);
        }
        checks.range(&at("max_tokens"), &self.max_tokens, 8..=32_768);
        match (&self.text, &self.tokenizer) {
            (Some(text), None) => {
                checks.fault(&at("tokenizer"), text, "is required where there is text: the model's tokenizer.json")
            }
            (None, Some(file)) => checks.fault(&at("tokenizer"), file.display(), "has no effect without text"),
            (Some(_), Some(file)) if checks.is_sound(&at("max_tokens")) => {
                if let Err(error) = TextEncoder::load(file, self.max_tokens) {
                    checks.fault(&at("tokenizer"), file.display(), error.to_string());
                }
            }
            _ => {}
        }
    }
}

fn check_path(checks: &mut Checks, key: &str, path: &str) {
    if let Err(reason) = ValuePath::parse(path) {
        checks.fault(key, path, reason);
    }
}
