//! What does not arrive, or arrives and cannot be read: spans without their request, exports that are refused, answers in a compression
//! that is not read. Each is named with how many of how many, and with the one change that mends it. A diagnosis says it first, because
//! its other figures lack it; the log says each cause once.
//!
//! - `table` are the causes that counters show, as data; `watch` reads them and what the series count;
//! - `history` is what the counters were, so that a window has its own counts.

mod history;
mod table;
mod watch;

use std::sync::Arc;

pub(crate) use super::telemetry_gap::{GapCause, TelemetryGap};
pub(crate) use watch::{GapWatch, SeriesGaps};

use lapwing_attribution::otlp::OtlpRefusals;
use lapwing_metrics::Counters;
use lapwing_settings::ConfigHandle;

/// What of the configuration decides what can arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TelemetrySettings {
    /// Whether a receiver of spans listens.
    pub receives_spans: bool,
    /// Whether requests get a trace: `trace_sampling` is not off.
    pub samples_traces: bool,
    /// Whether bodies are read.
    pub reads_bodies: bool,
}

/// When a certificate of Lapwing's is valid, in seconds since 1970.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateValidity {
    /// The section that names its file, as in `tls.listen`.
    pub section: String,
    /// From then on.
    pub from_s: u64,
    /// Until then.
    pub until_s: u64,
}

/// Where what is missing shows.
#[derive(Clone, Debug)]
pub struct TelemetrySources {
    /// The process's counters.
    pub counters: Arc<Counters>,
    /// What the configuration lets arrive.
    pub settings: ConfigHandle<TelemetrySettings>,
    /// The certificates that Lapwing shows.
    pub certificates: ConfigHandle<Vec<CertificateValidity>>,
    /// What the latest refused exports had.
    pub refusals: Arc<OtlpRefusals>,
}

#[cfg(test)]
mod tests;
