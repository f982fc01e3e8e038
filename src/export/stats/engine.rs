//! The models that this process runs itself, as `/stats` says it: what runs each, and where.

use std::sync::Arc;

use serde::Serialize;

use lapwing_engine::service::{Fallback, Servable};

/// The engine of this process.
#[derive(Debug, Serialize)]
pub(super) struct Engine {
    models: Vec<Model>,
}

#[derive(Debug, Serialize)]
struct Model {
    name: String,
    version: String,
    executor: &'static str,
    device: String,
    device_name: Option<String>,
    precision: &'static str,
    ready: bool,
    fallback: Option<Fell>,
    fault: Option<String>,
}

/// Why it runs on the processor though a GPU was looked for.
#[derive(Debug, Serialize)]
struct Fell {
    reason: &'static str,
    told: String,
}

impl Engine {
    /// `None` where there are no models.
    pub(super) fn of(models: &[Arc<dyn Servable>]) -> Option<Self> {
        let models: Vec<Model> = models.iter().map(|model| Model::of(&**model)).collect();
        (!models.is_empty()).then_some(Self { models })
    }
}

impl Model {
    fn of(served: &dyn Servable) -> Self {
        let (about, standing, ready) = (served.about(), served.standing(), served.is_ready());
        let fell = |fallback: &Fallback| Fell { reason: fallback.reason.label(), told: fallback.told.clone() };
        Self {
            name: about.name.clone(),
            version: about.version.clone(),
            executor: about.executor,
            device: standing.device.clone(),
            device_name: standing.device_name.clone(),
            precision: standing.precision,
            ready,
            fallback: standing.fallback.as_ref().map(fell),
            fault: standing.fault.clone(),
        }
    }
}
