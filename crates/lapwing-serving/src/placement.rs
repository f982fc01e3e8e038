//! Where a model runs, as metrics: one sample for its present placement, none for earlier ones, and a count of its fallbacks. A model
//! does not report when it moves, so the placement is read before metrics are shown. No move is missed, because a model never moves
//! back.

use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family as Samples;
use prometheus_client::metrics::gauge::Gauge;

use lapwing_model::service::{Fallback, Placement, Servable};

/// The labels of a sample: names and values.
pub(crate) type LabelSet = Vec<(&'static str, String)>;

/// What has been shown of one version of one model.
#[derive(Debug)]
pub(crate) struct PlacementMetrics {
    device: Samples<LabelSet, Gauge>,
    fallback: Samples<LabelSet, Counter>,
    last: Mutex<Last>,
}

#[derive(Debug, Default)]
struct Last {
    /// The labels of its sample in `device`.
    labels: Option<LabelSet>,
    /// What was counted last.
    fallback: Option<Fallback>,
}

impl PlacementMetrics {
    /// The placement of a model that was just loaded.
    pub(crate) fn new(device: Samples<LabelSet, Gauge>, fallback: Samples<LabelSet, Counter>, served: &dyn Servable) -> Self {
        let seen = Self { device, fallback, last: Mutex::default() };
        seen.refresh(served);
        seen
    }

    /// Shows the model's placement, and counts a new fallback.
    pub(crate) fn refresh(&self, served: &dyn Servable) {
        let placement = served.placement();
        let Placement { device, device_name, precision, fallback, .. } = &*placement;
        let (name, version) = (&served.about().name, &served.about().version);
        let labels = vec![
            ("model", name.clone()),
            ("version", version.clone()),
            ("device", device.clone()),
            ("name", device_name.clone().unwrap_or_default()),
            ("precision", (*precision).to_owned()),
        ];
        let mut last = self.last.lock();
        if last.labels.as_ref() != Some(&labels) {
            if let Some(old) = last.labels.take() {
                self.device.remove(&old);
            }
            self.device.get_or_create(&labels).set(1);
            last.labels = Some(labels);
        }
        if let Some(new) = fallback.as_ref().filter(|new| last.fallback.as_ref() != Some(new)) {
            let labels = vec![("model", name.clone()), ("reason", new.cause.label().to_owned())];
            self.fallback.get_or_create(&labels).inc();
            last.fallback = Some(new.clone());
        }
    }
}
