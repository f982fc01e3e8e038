//! An element of `shadow.mappings`: where the JSON of a route has the tensors of a model.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use http::{HeaderMap, Method};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::image_source::ImageSource;
use super::model_files::ModelFiles;
use super::postprocessing::{POSTPROCESSING, PostprocessingRule};
use crate::named_routes::NamedRoutes;
use crate::pictures::{Channels, ImagePreprocessor};
use lapwing_compare::outputs::ValuePath;
use lapwing_protocol::{Protocols, TextEncoder};
use lapwing_settings::{Checks, Form, Record, ShadowTarget};

/// The most elements of the list.
pub(crate) const MAX_MAPPINGS: usize = 64;
/// The most inputs or outputs of an element.
const MAX_TENSORS: usize = 64;

/// The most paths, categories or parameters under one name.
const MAX_LISTED: usize = 4096;

/// An element of `shadow.mappings`.
pub(crate) const MAPPING: Record = Record {
    what: "a mapping: route, inputs, columns, images and/or text, and outputs",
    keys: &[
        ("route", Form::Text),
        ("targets", Form::Texts),
        ("inputs", Form::Named(&Form::Text)),
        ("columns", Form::Named(&Form::Texts)),
        ("categories", Form::Named(&Form::Texts)),
        ("images", Form::Named(&Form::Text)),
        ("preprocessor", Form::Text),
        ("text", Form::Text),
        ("text_pair", Form::Text),
        ("tokenizer", Form::Text),
        ("max_tokens", Form::Number),
        ("parameters", Form::Named(&Form::Literal)),
        ("outputs", Form::Named(&Form::Text)),
        ("postprocessing", Form::Named(&Form::Record(&POSTPROCESSING))),
    ],
    stand_in: &[("route", "POST /")],
};

/// Where requests and answers of a route have the tensors of a model. Paths lead to one value, or with `[]` to one of each element:
/// `$.rows`, `$.data[].embedding`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, expecting = "a section of keys")]
#[schemars(title = "mapping")]
pub struct MappingRule {
    /// The route, as `/stats` names it: `POST /score`.
    pub route: String,
    /// The targets of the engine that it is for; without any, all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub targets: Vec<String>,
    /// Where the request has each input of the model, by the input's name: a value, or lists of values.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub inputs: BTreeMap<String, String>,
    /// Where the request has each column of an input, by the input's name: values, or lists of one for each row. A single one
    /// beside lists is every row's.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub columns: BTreeMap<String, Vec<String>>,
    /// Texts that stand for numbers, by a path of `inputs` or `columns`: each is its index in the list.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub categories: BTreeMap<String, Vec<String>>,
    /// Where the request has pictures (JPEG, PNG), by the name of the model's input: `body`, `part:NAME` of a form, or the path of base64
    /// or of a URL of data.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub images: BTreeMap<String, String>,
    /// The model's `preprocessor_config.json`, for `images`; without it, the one beside the model.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<lapwing_settings::File>")]
    pub preprocessor: Option<PathBuf>,
    /// Where the request has texts, which become `input_ids` and, if the model has them, `attention_mask`, `token_type_ids` and
    /// `position_ids`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// Where the request has the second texts of pairs. A single text is paired with each of several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text_pair: Option<String>,
    /// The model's `tokenizer.json`, for `text`; without it, the one beside the model.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<lapwing_settings::File>")]
    pub tokenizer: Option<PathBuf>,
    /// The most tokens of a text, special ones included, where longer ones are cut. Without it, as the files beside the tokenizer
    /// say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<usize>,
    /// What the request must have at a path, unless it has nothing or `null` there: `{$.normalize: true}`. Others are not sent.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub parameters: BTreeMap<String, String>,
    /// Where the upstream's answer has each value that is compared, by the name of the model's output, or of any in `postprocessing`.
    pub outputs: BTreeMap<String, String>,
    /// What the upstream's API makes of the model's output, by a name in `outputs`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub postprocessing: BTreeMap<String, PostprocessingRule>,
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
        if self.inputs.is_empty() && self.columns.is_empty() && self.images.is_empty() && self.text.is_none() {
            let reason =
                "is required, unless there are columns, images or text: it says where the request has the model's inputs";
            checks.fault(&at("inputs"), "", reason);
        }
        self.check_columns(checks, &at);
        if self.outputs.is_empty() {
            checks.fault(&at("outputs"), "", "is required: it says where the upstream's answer has the model's outputs");
        }
        for (name, rule) in &self.postprocessing {
            let key = at(&format!("postprocessing.{name}"));
            if !self.outputs.contains_key(name) {
                checks.fault(&key, name, "is none of outputs");
            }
            rule.check(checks, &key, self.text.is_some());
        }
        self.check_images(checks, &at, targets);
        self.check_text(checks, &at, targets);
    }

    fn check_images(&self, checks: &mut Checks, at: &impl Fn(&str) -> String, targets: &BTreeMap<String, ShadowTarget>) {
        for (name, source) in &self.images {
            if let Err(reason) = ImageSource::parse(source) {
                checks.fault(&at(&format!("images.{name}")), source, reason);
            }
        }
        let shown = self.preprocessor.as_deref().unwrap_or(Path::new(""));
        if self.images.is_empty() {
            if self.preprocessor.is_some() {
                checks.fault(&at("preprocessor"), shown.display(), "has no effect without images");
            }
            return;
        }
        for model in self.models(self.preprocessor.as_ref(), targets) {
            if let Err(reason) = self.preprocessor(model, Channels::First) {
                checks.fault(&at("preprocessor"), shown.display(), reason.trim_start_matches("preprocessor: "));
            }
        }
    }

    /// The models that it is for, whose files decide; of a file that is `named`, which is the same for all, a single one of no name.
    fn models<'t>(&self, named: Option<&PathBuf>, targets: &'t BTreeMap<String, ShadowTarget>) -> Vec<&'t Path> {
        if named.is_some() {
            return vec![Path::new("")];
        }
        targets.iter().filter(|(name, _)| self.is_for(name)).filter_map(|(_, target)| model_of(target)).collect()
    }

    /// What prepares pictures for the model in `file`.
    ///
    /// # Errors
    ///
    /// The key, the file and why it cannot be used, or where there is none.
    pub(crate) fn preprocessor(&self, file: &Path, channels: Channels) -> Result<ImagePreprocessor, String> {
        let beside = || {
            let found = ModelFiles::beside(file).find("preprocessor_config.json");
            found.map_err(|places| format!("preprocessor: is required where there are images, because there is no {places}"))
        };
        let named = self.preprocessor.clone().map_or_else(beside, Ok)?;
        let fault = |reason: String| format!("preprocessor: {}: {reason}", named.display());
        let text = ModelFiles::text(&named).map_err(fault)?;
        ImagePreprocessor::new(&text, channels).map_err(|error| fault(error.to_string()))
    }

    fn check_columns(&self, checks: &mut Checks, at: &impl Fn(&str) -> String) {
        for (name, paths) in &self.columns {
            let key = at(&format!("columns.{name}"));
            if paths.is_empty() || paths.len() > MAX_LISTED {
                checks.fault(&key, paths.len(), format!("must be 1 to {MAX_LISTED} paths"));
            }
            for (index, path) in paths.iter().enumerate() {
                check_path(checks, &format!("{key}[{index}]"), path);
            }
        }
        let is_read = |path: &String| self.inputs.values().chain(self.columns.values().flatten()).any(|own| own == path);
        for (path, names) in &self.categories {
            let key = at(&format!("categories.{path}"));
            if !is_read(path) {
                checks.fault(&key, path, "is no path of inputs or columns");
            }
            if names.is_empty() || names.len() > MAX_LISTED {
                checks.fault(&key, names.len(), format!("must be 1 to {MAX_LISTED} texts"));
            }
            if let Some((_, twice)) = names.iter().enumerate().find(|(at, name)| names[..*at].contains(name)) {
                checks.fault(&key, twice, "is there twice");
            }
        }
        if self.parameters.len() > MAX_TENSORS {
            checks.fault(&at("parameters"), self.parameters.len(), format!("must be at most {MAX_TENSORS}"));
        }
        self.parameters.keys().for_each(|path| check_path(checks, &at(&format!("parameters.{path}")), path));
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

    fn check_text(&self, checks: &mut Checks, at: &impl Fn(&str) -> String, targets: &BTreeMap<String, ShadowTarget>) {
        for (key, path) in [("text", &self.text), ("text_pair", &self.text_pair)] {
            path.iter().for_each(|path| check_path(checks, &at(key), path));
        }
        checks.optional_range(&at("max_tokens"), self.max_tokens.as_ref(), 8..=32_768);
        if self.text.is_none() {
            let others = [
                ("text_pair", self.text_pair.clone()),
                ("tokenizer", self.tokenizer.as_ref().map(|file| file.display().to_string())),
                ("max_tokens", self.max_tokens.map(|count| count.to_string())),
            ];
            for (key, value) in others {
                value.iter().for_each(|value| checks.fault(&at(key), value, "has no effect without text"));
            }
            return;
        }
        if !checks.is_sound(&at("max_tokens")) {
            return;
        }
        for model in self.models(self.tokenizer.as_ref(), targets) {
            if let Err(reason) = self.encoder(model) {
                checks.fault(&at("tokenizer"), self.tokenizer.as_deref().unwrap_or(Path::new("")).display(), reason);
            }
        }
    }

    /// Whether it says itself where the request has the input of this name.
    pub(crate) fn maps(&self, input: &str) -> bool {
        self.inputs.contains_key(input) || self.columns.contains_key(input)
    }

    /// The tokenizer of the texts that go to the model in `file`, how many tokens each has at most, and who says so.
    ///
    /// # Errors
    ///
    /// The file and why it cannot be used, or where there is none.
    pub(crate) fn encoder(&self, file: &Path) -> Result<(TextEncoder, String), String> {
        let beside = || {
            let found = ModelFiles::beside(file).find("tokenizer.json");
            found.map_err(|places| format!("is required where there is text, because there is no {places}"))
        };
        let tokenizer = self.tokenizer.clone().map_or_else(beside, Ok)?;
        let (max_tokens, source) = match self.max_tokens {
            Some(count) => (count, "max_tokens".to_owned()),
            None => ModelFiles::beside(&tokenizer).max_tokens(&tokenizer),
        };
        let encoder = TextEncoder::load(&tokenizer, max_tokens);
        let encoder = encoder.map_err(|error| format!("{}: {error}", tokenizer.display()))?;
        Ok((encoder, format!("texts are cut to {max_tokens} tokens, by {source}")))
    }
}

/// The file of a model that the engine runs.
fn model_of(target: &ShadowTarget) -> Option<&Path> {
    if let ShadowTarget::Engine(file) = target { Some(file) } else { None }
}

fn check_path(checks: &mut Checks, key: &str, path: &str) {
    if let Err(reason) = ValuePath::parse(path) {
        checks.fault(key, path, reason);
    }
}
