//! What an API makes of a model's output before it answers, as it is configured.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::model_files::ModelFiles;
use lapwing_compare::outputs::{MappedOutput, OutputActivation, Pooling, Postprocessing, Selection, TensorPort, ValuePath};
use lapwing_settings::{Checks, Form, Record};

/// The most labels that are listed; a `config.json` may have more.
const MAX_LABELS: usize = 4096;

/// A value of `postprocessing`.
pub(crate) const POSTPROCESSING: Record = Record {
    what: "what an API makes of an output: output, pooling, activation, normalize, select, labels or id2label, order",
    keys: &[
        ("output", Form::Text),
        ("pooling", Form::Text),
        ("activation", Form::Text),
        ("normalize", Form::Text),
        ("select", Form::Text),
        ("labels", Form::Texts),
        ("id2label", Form::Text),
        ("order", Form::Text),
    ],
    stand_in: &[],
};

/// To what length vectors are scaled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum VectorNorm {
    /// The root of the sum of squares is 1.
    L2,
}

/// What the API makes of a model's output, in this order: pooling, activation, normalize, select.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, expecting = "a section of keys")]
#[schemars(title = "postprocessing")]
pub struct PostprocessingRule {
    /// The model's output that it is made of; without it, the one of the same name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
    /// What makes one vector of those of a text's tokens, without those that fill it up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pooling: Option<Pooling>,
    /// What is computed over the last axis.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub activation: Option<OutputActivation>,
    /// To what length rows of the last axis are scaled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub normalize: Option<VectorNorm>,
    /// What remains of the last axis: `argmax` (the index, or its label), `max`, or the element at an index.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub select: Option<String>,
    /// The names of the last axis' elements. With `argmax` the answer has one; without `select`, numbers by label:
    /// `{"cat": 0.9, "dog": 0.1}`, or `[{"label": "cat", "score": 0.9}, …]` in any order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<String>,
    /// The model's `config.json`, whose `id2label` has the labels.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<lapwing_settings::File>")]
    pub id2label: Option<PathBuf>,
    /// Where the answer has the index in the request of each of its rows, if they are sorted otherwise: `$[].index`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub order: Option<String>,
}

impl PostprocessingRule {
    /// Reports what is wrong with it; `path` is where it stands.
    pub(crate) fn check(&self, checks: &mut Checks, path: &str, has_texts: bool) {
        let at = |key: &str| format!("{path}.{key}");
        if self.pooling.is_some() && !has_texts {
            checks.fault(&at("pooling"), "", "has no effect without text, whose tokens it is over");
        }
        let selection = self.select.as_deref().map(Selection::parse);
        if let (Some(None), Some(select)) = (selection, &self.select) {
            checks.fault(&at("select"), select, "must be argmax, max, or the index of an element");
        }
        if self.labels.len() > MAX_LABELS {
            checks.fault(&at("labels"), self.labels.len(), format!("must be at most {MAX_LABELS}"));
        }
        if let Some(twice) = self.labels.iter().enumerate().find(|(at, label)| self.labels[..*at].contains(label)) {
            checks.fault(&at("labels"), twice.1, "is there twice");
        }
        if let Some(file) = &self.id2label {
            if !self.labels.is_empty() {
                checks.fault(&at("id2label"), file.display(), "has no effect where there are labels");
            } else if let Err(reason) = ModelFiles::labels(file) {
                checks.fault(&at("id2label"), file.display(), reason);
            }
        }
        let has_labels = !self.labels.is_empty() || self.id2label.is_some();
        if has_labels && matches!(selection, Some(Some(Selection::Max | Selection::Column(_)))) {
            checks.fault(&at("labels"), "", "have no effect with select, unless that is argmax");
        }
        if let Some(order) = &self.order
            && let Err(reason) = ValuePath::parse(order)
        {
            checks.fault(&at("order"), order, reason);
        }
    }

    /// The field `name` of an answer at `path`, made of an output of the model.
    ///
    /// # Errors
    ///
    /// Why it cannot be: the key, and the reason.
    pub(crate) fn output(&self, name: &str, path: ValuePath, ports: &[TensorPort]) -> Result<MappedOutput, String> {
        let of = self.output.as_deref().unwrap_or(name);
        let unknown = || {
            let names = ports.iter().map(|port| port.name.as_str()).collect::<Vec<_>>().join(", ");
            format!("outputs.{of}: is no output of the model; its outputs are {names}")
        };
        let port = ports.iter().find(|port| port.name == of).ok_or_else(unknown)?;
        let at = |key: &str, reason: String| format!("postprocessing.{name}.{key}: {reason}");
        let labels = match &self.id2label {
            Some(file) => ModelFiles::labels(file).map_err(|reason| at("id2label", format!("{}: {reason}", file.display())))?,
            None => self.labels.clone(),
        };
        let order = self.order.as_deref().map(ValuePath::parse).transpose();
        let steps = Postprocessing {
            pooling: self.pooling,
            activation: self.activation,
            is_normalised: self.normalize.is_some(),
            selection: self.select.as_deref().and_then(Selection::parse),
            labels,
        };
        let order = order.map_err(|reason| at("order", reason.to_owned()))?;
        MappedOutput::new(name, path, port, steps, order).map_err(|reason| format!("postprocessing.{name}: {reason}"))
    }
}
