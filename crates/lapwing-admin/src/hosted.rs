//! The models that this process serves itself, as `/stats` shows them: what runs each, and where.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Serialize;

/// A model that this process serves itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct HostedModel {
    /// The name under which it is served.
    pub name: String,
    /// Its version.
    pub version: String,
    /// What runs it: `plan`, `tabular`, `onnxruntime` or `rten`.
    pub executor: &'static str,
    /// The device: `cpu`, or `cuda:0` and so on.
    pub device: String,
    /// The GPU's name as its driver gives it; `None` on the CPU.
    pub device_name: Option<String>,
    /// The number format of its products: `fp32`, `tf32`, `fp16` or `int8`.
    pub precision: &'static str,
    /// Whether it is warm and can run.
    pub ready: bool,
    /// Why it runs on the CPU although a GPU was looked for.
    pub fallback: Option<HostedFallback>,
    /// The device error that ended it; `None` while it can run.
    pub fault: Option<String>,
}

/// Why a model runs on the CPU although a GPU was looked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct HostedFallback {
    /// The label of the cause, as in metrics.
    pub reason: &'static str,
    /// The cause in words.
    pub told: String,
}

/// Lists the models of this process in the order in which `/stats` shows them; empty where it serves none.
pub type HostedModels = Arc<dyn Fn() -> Vec<HostedModel> + Send + Sync>;

/// The section `engine` of `/stats`.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Engine {
    models: Vec<HostedModel>,
}

impl Engine {
    /// `None` where this process serves no models.
    pub(crate) fn of(models: &HostedModels) -> Option<Self> {
        let models = models();
        (!models.is_empty()).then_some(Self { models })
    }
}
