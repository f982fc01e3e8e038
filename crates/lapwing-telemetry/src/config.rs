//! The section `telemetry`: which of its own signals Lapwing sends, where to, and how.

use std::collections::BTreeMap;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use lapwing_attribution::collector::{CollectorOptions, Compression, Signal};
use lapwing_ledger::SamplingThreshold;
use lapwing_net::ClientIdentity;
use lapwing_settings::{Checks, Collector, CollectorEndpoint, Form, Period, Secret, Section, Share, Switch};

/// Whether a signal is sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SignalExport {
    /// It is not.
    #[default]
    Off,
    /// It is.
    On,
}

/// What a point of a counter or a histogram covers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Temporality {
    /// Everything since the start of its series.
    #[default]
    Cumulative,
    /// What came since the last point that the collector took.
    Delta,
}

/// The section `telemetry`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, expecting = "a section of keys")]
pub struct Config {
    /// Whether metrics are sent. Needs an endpoint.
    pub metrics: SignalExport,
    /// Whether traces are sent. Needs an endpoint, and `trace_sampling` other than `off`.
    pub traces: SignalExport,
    /// The collector. Over HTTP `/v1/metrics` and `/v1/traces` are appended.
    pub endpoint: Switch<Collector>,
    /// The endpoint of metrics, if it is another one; nothing is appended.
    pub metrics_endpoint: Switch<CollectorEndpoint>,
    /// The endpoint of traces, likewise.
    pub traces_endpoint: Switch<CollectorEndpoint>,
    /// Headers (gRPC: metadata) that are sent with every request, in printable ASCII.
    pub headers: BTreeMap<String, Secret>,
    /// Whether requests are compressed.
    pub compression: Compression,
    /// How long one of six attempts, in about fifteen seconds, may take.
    pub timeout: Period,
    /// How often metrics are sent.
    pub metrics_interval: Period,
    /// What counters and histograms cover.
    pub temporality: Temporality,
    /// The share of the traces that have no other reason to be sent.
    pub traces_share: Share,
    /// The resource's `service.name`; not empty.
    pub service_name: String,
    /// Further attributes of the resource.
    pub resource_attributes: BTreeMap<String, String>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            metrics: SignalExport::Off,
            traces: SignalExport::Off,
            endpoint: Switch::Off,
            metrics_endpoint: Switch::Off,
            traces_endpoint: Switch::Off,
            headers: BTreeMap::new(),
            compression: Compression::None,
            timeout: Period::from_secs(10),
            metrics_interval: Period::from_secs(60),
            temporality: Temporality::Cumulative,
            traces_share: Share::ONE_PERCENT,
            service_name: "lapwing".to_owned(),
            resource_attributes: BTreeMap::new(),
        }
    }
}

impl Config {
    /// Whether any signal is sent.
    #[must_use]
    pub const fn is_on(&self) -> bool {
        matches!(self.metrics, SignalExport::On) || matches!(self.traces, SignalExport::On)
    }

    /// Where a signal is sent; `None` while it is off, and where no endpoint is given.
    #[must_use]
    pub fn endpoint(&self, signal: Signal) -> Option<CollectorEndpoint> {
        let (is_sent, own) = match signal {
            Signal::Metrics => (self.metrics, &self.metrics_endpoint),
            Signal::Traces => (self.traces, &self.traces_endpoint),
            Signal::Logs => return None,
        };
        if is_sent == SignalExport::Off {
            return None;
        }
        own.on().cloned().or_else(|| Some(self.endpoint.on()?.endpoint(signal.http_path())))
    }

    /// Whether a signal has an endpoint of its own.
    #[must_use]
    pub const fn has_own_endpoint(&self, signal: Signal) -> bool {
        match signal {
            Signal::Metrics => self.metrics_endpoint.is_on(),
            Signal::Traces => self.traces_endpoint.is_on(),
            Signal::Logs => false,
        }
    }

    /// By which traces are sampled that have no reason of their own.
    #[must_use]
    pub fn sampling_threshold(&self) -> SamplingThreshold {
        SamplingThreshold::of_share(self.traces_share.get())
    }

    /// How requests are sent.
    #[must_use]
    pub fn options(&self, identity: &Arc<ClientIdentity>) -> CollectorOptions {
        CollectorOptions {
            headers: self.headers.clone(),
            compression: self.compression,
            timeout: self.timeout.get(),
            identity: identity.clone(),
        }
    }
}

impl Section for Config {
    const FORMS: &'static [(&'static str, Form)] =
        &[("headers", Form::SecretHeaders), ("resource_attributes", Form::Named(&Form::Literal))];

    fn check(&self, checks: &mut Checks) {
        checks.range("timeout", &self.timeout, Period::from_millis(100)..=Period::from_secs(300));
        checks.range("metrics_interval", &self.metrics_interval, Period::from_secs(1)..=Period::from_secs(3600));
        for (key, signal, is_sent) in [("metrics", Signal::Metrics, self.metrics), ("traces", Signal::Traces, self.traces)] {
            if is_sent == SignalExport::On && self.endpoint(signal).is_none() && checks.is_sound("endpoint") {
                checks.fault(key, "on", format!("needs a collector: give telemetry.endpoint, or telemetry.{key}_endpoint"));
            }
        }
        if self.service_name.trim().is_empty() {
            checks.fault("service_name", &self.service_name, "must not be empty");
        }
        if let Some(name) = self.resource_attributes.get("service.name") {
            checks.fault("resource_attributes.service.name", name, "is set by telemetry.service_name");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn faults(config: &Config) -> Vec<String> {
        let mut checks = Checks::new(BTreeSet::new());
        config.check(&mut checks);
        checks.into_faults().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_signal_has_its_own_endpoint_or_that_of_all() {
        let mut config = Config { metrics: SignalExport::On, ..Config::default() };
        assert_eq!(config.endpoint(Signal::Metrics), None);
        assert!(
            faults(&config)[0].starts_with("metrics: on: needs a collector: give telemetry.endpoint"),
            "{:?}",
            faults(&config)
        );
        config.endpoint = Switch::On("http://collector:4318/otlp".parse().unwrap());
        let at = |config: &Config, signal| config.endpoint(signal).map(|to| to.to_string());
        assert_eq!(at(&config, Signal::Metrics).unwrap(), "http://collector:4318/otlp/v1/metrics");
        assert_eq!(at(&config, Signal::Traces), None, "it is off");
        assert!(faults(&config).is_empty());
        config.metrics_endpoint = Switch::On("grpc://other:4317".parse().unwrap());
        assert_eq!(at(&config, Signal::Metrics).unwrap(), "grpc://other:4317");
    }
}
