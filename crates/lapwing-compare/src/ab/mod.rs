//! The statistics of latency, baseline against candidate: paired, valid at every moment, and true where requests are not
//! independent of each other. Latencies are nanoseconds; ratios are candidate to baseline, so below 1 the candidate is faster.
//!
//! - `counts`, in `bins`: what is kept of the pairs, in each pod: integers that add up;
//! - `tracking`, `block_variance`: how the counts vary from time block to time block, kept by the reporter;
//! - `evidence`: how strongly counts contradict a probability; its inversion is every interval and every verdict; which of many
//!   routes changed;
//! - `report`: the numbers, the verdicts, and how many more pairs they take; in JSON and in words;
//! - `switchback`: what a lever does that is on in some blocks of time and off in others;
//! - `matching`: pairs from requests that went to one side only; `shares`: how many of them failed.
//!
//! All numbers of one report hold together with 95 % confidence at every moment one looks; [`ASSUMPTIONS`] says on which
//! conditions, and what cannot be concluded.
//!
//! ```
//! use std::time::Duration;
//! use lapwing_compare::ab::{LatencyReport, PairCounts, Tracking, Verdict};
//!
//! let (mut counts, mut tracking) = (PairCounts::default(), Tracking::new());
//! for i in 0..6_000_u64 {
//!     tracking.tick(&counts, Duration::from_millis(10 * i));
//!     let (noise, other) = (i * 7_919 % 1_000, i * 104_729 % 1_000);
//!     counts.record(1_000_000 + 100 * noise, 900_000 + 100 * other);
//! }
//! let report = LatencyReport::new(&counts, &tracking);
//! assert_eq!(report.verdict, Verdict::Faster);
//! ```

mod bins;
mod block_variance;
mod counts;
mod evidence;
mod matching;
mod report;
mod shares;
mod switchback;
mod tracking;

#[cfg(test)]
mod tests;

pub use counts::{PairCounts, PairSide, SnapshotError, SparsePairCounts};
pub use evidence::{CHANGED_ROUTES_CLAIM, changed_routes};
pub use matching::{LifoMatcher, MatchTicket, MatchedPair};
pub use report::{
    ASSUMPTIONS, IntervalEstimate, LatencyReport, MismatchReport, QuantileEstimates, RatioEstimates, Verdict, sentence,
};
pub use shares::WatchedShare;
pub use switchback::EffectTracker;
pub use tracking::Tracking;
