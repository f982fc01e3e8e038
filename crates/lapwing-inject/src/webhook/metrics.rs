//! What the webhook counts, as OpenMetrics text.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use lapwing_metrics::Counters;
use parking_lot::Mutex;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

/// The upper bounds of a review's time, in seconds: it takes less than a millisecond.
const BOUNDS_S: [f64; 9] = [0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.1, 1.0];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabels {
    result: &'static str,
}

/// The webhook's metrics.
pub struct WebhookMetrics {
    reviews: Family<ResultLabels, Counter>,
    time: Histogram,
    expiry: Gauge<f64, AtomicU64>,
    reload_failures: Counter,
    handshake_failures: Counter,
    /// Where the listener counts its handshakes.
    counters: Arc<Counters>,
    registry: Mutex<Registry>,
}

impl fmt::Debug for WebhookMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WebhookMetrics").finish_non_exhaustive()
    }
}

impl WebhookMetrics {
    /// With the listener's counters.
    #[must_use]
    pub fn new(counters: Arc<Counters>) -> Self {
        let mut registry = Registry::with_prefix("lapwing_webhook");
        let (reviews, time) = (Family::default(), Histogram::new(BOUNDS_S));
        let (expiry, reload_failures, handshake_failures) = (Gauge::default(), Counter::default(), Counter::default());
        registry.register(
            "reviews",
            "Reviews that were answered, by what became of the pod; malformed ones have another form.",
            Family::clone(&reviews),
        );
        registry.register_with_unit(
            "review_duration",
            "Time from a review's last byte to its answer.",
            Unit::Seconds,
            time.clone(),
        );
        registry.register_with_unit(
            "certificate_expiry_timestamp",
            "When the certificate expires, since 1970; 0 without one.",
            Unit::Seconds,
            Gauge::clone(&expiry),
        );
        registry.register(
            "certificate_reload_failures",
            "Certificates that could not be read again; the one before stays in force.",
            Counter::clone(&reload_failures),
        );
        registry.register(
            "tls_handshake_failures",
            "Connections that ended in their handshake: of an API server that does not trust the certificate, or of strangers.",
            Counter::clone(&handshake_failures),
        );
        Self { reviews, time, expiry, reload_failures, handshake_failures, counters, registry: Mutex::new(registry) }
    }

    pub(crate) fn reviewed(&self, result: &'static str, seconds: f64) {
        self.reviews.get_or_create(&ResultLabels { result }).inc();
        self.time.observe(seconds);
    }

    /// When the certificate expires, in seconds since 1970.
    pub fn set_expiry(&self, at_s: u64) {
        self.expiry.set(at_s as f64);
    }

    /// A certificate could not be read again.
    pub fn reload_failed(&self) {
        self.reload_failures.inc();
    }

    /// All as OpenMetrics text.
    #[must_use]
    pub fn text(&self) -> String {
        self.handshake_failures.inner().store(self.counters.get(lapwing_metrics::Counter::TlsFailed), Ordering::Relaxed);
        let mut text = String::new();
        // a String takes all that is written
        let _ = prometheus_client::encoding::text::encode(&mut text, &self.registry.lock());
        text
    }
}
