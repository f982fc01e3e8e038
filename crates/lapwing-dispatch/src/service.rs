//! What requests take: time by work for each series, and how many requests an upstream works on at once.

use std::fmt;

use lapwing_ledger::{LabelId, SeriesKey, Stamp, Work};
use rustc_hash::{FxHashMap, FxHashSet};

/// Requests of one route and model, whose time follows one line over their work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkSeries {
    /// Method and path.
    pub route: LabelId,
    /// The model.
    pub model: LabelId,
}

impl From<SeriesKey> for WorkSeries {
    fn from(key: SeriesKey) -> Self {
        Self { route: key.route, model: key.model }
    }
}

impl From<WorkSeries> for SeriesKey {
    /// Of no upstream.
    fn from(WorkSeries { route, model }: WorkSeries) -> Self {
        Self { route, model, ..Self::default() }
    }
}

/// By how much service times differ from the line: quantiles of their ratio to it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RatioQuantiles {
    /// As many as `dispatch.hedge.quantile` says are at most this.
    pub hedge: f64,
    /// 99 %.
    pub q99: f64,
}

/// What a request of a series takes once the server works on it: `fixed + per unit × work`.
#[derive(Clone, Debug, PartialEq)]
pub struct ServiceLine {
    /// What every request takes, in nanoseconds.
    pub fixed_ns: f64,
    /// What each unit of work takes, in nanoseconds.
    pub per_unit_ns: f64,
    /// Of how many requests.
    pub samples: usize,
    /// The mean of |time / line − 1|, the twentieth that differs most left out.
    pub unexplained: f64,
    /// By cost class; empty classes have those of all.
    pub ratios: Vec<RatioQuantiles>,
}

/// What one request is expected to take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Prediction {
    /// The mean, in nanoseconds.
    pub service_ns: u64,
    /// What 99 of 100 take at most on top of it, in nanoseconds.
    pub q99_more_ns: u64,
    /// What it may take on top of it before it is sent a second time, in nanoseconds.
    pub hedge_more_ns: u64,
}

/// The cost class of an amount of work; of none, the lowest.
pub(crate) fn class_of(units: u64) -> usize {
    Work::class_of(units).unwrap_or_default()
}

impl ServiceLine {
    /// The mean time for this much work, in nanoseconds; at least a microsecond.
    pub(crate) fn mean_ns(&self, units: f64) -> f64 {
        (self.fixed_ns + self.per_unit_ns * units).max(1e3)
    }

    /// What a request for this much work takes.
    #[must_use]
    #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "times below years")]
    pub fn predict(&self, units: u64) -> Prediction {
        let mean = self.mean_ns(units as f64);
        let ratios = self.ratios.get(class_of(units)).copied().unwrap_or(RatioQuantiles { hedge: 1.0, q99: 1.0 });
        let more = |ratio: f64| (mean * (ratio - 1.0).max(0.0)) as u64;
        Prediction { service_ns: mean as u64, q99_more_ns: more(ratios.q99), hedge_more_ns: more(ratios.hedge) }
    }
}

/// Why requests do not wait in front of an upstream.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum NoWindow {
    /// Too few requests were answered.
    TooFewRequests {
        /// Those there are.
        seen: usize,
        /// Those that it takes.
        needed: usize,
    },
    /// Too few requests met another one, so nobody can tell how many it works on at once.
    NoWaitingSeen {
        /// The share of requests that met another, `0..=1`.
        share: f64,
    },
    /// It does not work on some at a time, one after the other: it batches, or all that are in it share something.
    NotOneByOne {
        /// How far times are from the best that such a server would take: the mean of |time / expected − 1|.
        unexplained: f64,
    },
}

impl NoWindow {
    /// The name on every surface.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::TooFewRequests { .. } => "too_few_requests",
            Self::NoWaitingSeen { .. } => "no_waiting_seen",
            Self::NotOneByOne { .. } => "not_one_by_one",
        }
    }
}

impl fmt::Display for NoWindow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooFewRequests { seen, needed } => write!(f, "it has answered {seen} requests, and it takes {needed}"),
            Self::NoWaitingSeen { share } => {
                write!(f, "{:.0} % of its requests met another one, too few to tell how many it works on at once", share * 100.0)
            }
            Self::NotOneByOne { unexplained } => write!(
                f,
                "it does not work on some at a time, one after the other: with any number of slots, times are {:.0} % off in the mean, or end together",
                unexplained * 100.0
            ),
        }
    }
}

/// How many requests an upstream works on at once, and how fast it is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SlotsOf {
    /// The upstream, by its place.
    pub upstream: usize,
    /// Its slots, or why that is not known.
    pub slots: Result<u32, NoWindow>,
    /// How fast it works: 1 is the mean of all upstreams, 2 takes half the time.
    pub speed: f64,
}

/// What is known of all series and upstreams.
#[derive(Clone, Debug, Default)]
pub struct ServiceModels {
    /// When it was made.
    pub made: Stamp,
    /// Lines that hold.
    pub lines: FxHashMap<WorkSeries, ServiceLine>,
    /// Upstreams that answered requests of these lines.
    pub upstreams: Vec<SlotsOf>,
    /// Series whose requests the spare upstream answers as the others do.
    pub agreeing: FxHashSet<WorkSeries>,
}

impl ServiceModels {
    /// What is known of an upstream.
    #[must_use]
    pub fn of(&self, upstream: usize) -> Option<&SlotsOf> {
        self.upstreams.iter().find(|one| one.upstream == upstream)
    }
}
