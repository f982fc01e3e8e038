//! Which stage is to blame for a route's latency, how sure the figures make that, and what to do first.
//!
//! In the order in which an exchange's figures meet it:
//! - `observation` is the record of an exchange, its time split into `part`s;
//! - `block` keeps those of two seconds: the slowest exactly, and a uniform sample of the others; `timeline` counts all arrivals
//!   and ends; `store` has both for one series;
//! - `diagnostician` has all series, bounded, and diagnoses;
//! - `reference` is what requests usually take, `attribution` the time in question by part, and `tail` the same by stage;
//! - `arrivals` and `stalls` examine when requests came and ended; `quantity` measures all that rules speak of;
//! - `rules` are what must be measured for a verdict, as data; `verdict` tries and orders them, `sureness` says how sure they can be at most;
//!   `judgement` puts it together, `summary` in a sentence;
//! - `report` is what is said; `bound` names what may limit a route, and the causes behind it; `evidence` is what is not known;
//! - `fit` says what an upstream window is made of where nothing is reported, and `capacity` how much more the server can take;
//!   `inference` has their figures of a series;
//! - `outcomes` come before all of that: how requests end, and whether enough of them fail that the series does;
//! - `gaps` are what does not arrive or cannot be read, with the one change that brings it; `host` is how busy the processors were;
//! - `notices` are what costs something on every request, whatever the budget;
//! - `tcp` is the state of connections as the kernel sees it;
//! - `config` is the section of the configuration, `window` the windows that may be asked for.
//!
//! - `telemetry_gap` and `failure_kind` are the rows of what may be missing and of the ways to fail; [`cost`] is work against time.
//!
//! Nothing here is on the request path: the aggregator records merged exchanges. It never blames what it could not measure: it says
//! what is missing first. All series together take at most 16 MiB: 257 of them have 117,000 records of 88 bytes, 151 blocks and a
//! timeline of 11 KiB each, and memory is taken as exchanges come. What the fits need is 20 KiB a series more, 5 MiB in all.
//!
//! What upstream windows are made of, where nothing is reported:
//!
//! ```
//! use lapwing_diagnosis::FitStatistics;
//!
//! let mut windows = FitStatistics::default();
//! for i in 0..3_000_u64 {
//!     let work = 100 + i * 7_919 % 900;
//!     windows.record(work, 1, 1_000_000 + 10_000 * work, i * 100_000_000);
//! }
//! let fit = windows.fit().unwrap();
//! assert!((fit.per_unit_ns.value - 10_000.0).abs() < 100.0, "{:?}", fit.per_unit_ns);
//! ```

#![forbid(unsafe_code)]

mod arrivals;
mod attribution;
mod block;
mod bound;
mod capacity;
mod config;
pub mod cost;
mod diagnostician;
mod evidence;
mod failure_kind;
mod fit;
mod gaps;
mod host;
mod inference;
mod judgement;
mod lever;
mod notices;
mod observation;
mod outcomes;
mod part;
mod quantity;
mod random;
mod reference;
mod report;
mod rules;
mod samples;
mod stalls;
mod store;
mod summary;
mod sureness;
mod tail;
mod tcp;
mod telemetry_gap;
mod text;
mod timeline;
mod verdict;
mod window;

#[cfg(test)]
mod tests;

pub use bound::{Cause, LatencyBound};
pub use capacity::{CapacityEstimate, CapacityQuestion, RefusedCapacity};
pub use config::Config;
pub use diagnostician::{BoundTotals, Diagnostician};
pub use failure_kind::FailureKind;
pub use fit::{
    FitRefusal, FitStatistics, FittedStages, FittedValue, FittedWaiting, InferredParts, InferredStage, InferredStages,
    RefusedFit, WindowFit,
};
pub use gaps::{CertificateValidity, TelemetrySettings, TelemetrySources};
pub use host::{HostLoad, HostReading};
pub use inference::{InferredFigures, InferredWaiting, MAX_INFERRED, PendingDiagnosis, UpstreamWindows};
pub use lever::{CacheWorth, LeverAdvice, ReplayedLatencies, thousands, time_to_live};
pub use outcomes::{exceeds_share, share_interval};
pub use report::{
    BoundVerdict, Diagnosis, Evidence, FailureVerdict, MeasuredBudget, Missing, Notice, RouteDiagnosis, RouteOutcomes, Status,
    TailShare,
};
pub use tcp::{ConnectionStates, TcpState};
pub use telemetry_gap::{GapCause, TelemetryGap};
pub use text::duration;
pub use window::DiagnosisWindow;

/// The longest window of a diagnosis, in nanoseconds: five minutes.
pub const MAX_WINDOW_NS: u64 = 300_000_000_000;
/// How many series are kept in addition to the one for all others.
const MAX_SERIES: usize = 256;
/// How many exchanges are kept of all series together, as long as each has three for every block.
const MAX_RECORDS: usize = 117_000;
/// How many exchanges are kept of one series.
const MAX_SERIES_RECORDS: usize = 32_768;
