//! What is kept exactly beside the histograms: counts, sums and maxima of one series over some stretch of time.
//!
//! All of it merges by addition (maxima by the larger), so slots of time add up to windows. Durations are nanoseconds.

use crate::ledger::{Exchange, Kind, Outcome, Source, Stage};

/// What a histogram of a series is of. Every exchange is in exactly one of `Total`, `Cancelled`, `Failed` and `Stream`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// Totals of requests that the upstream answered.
    Total,
    /// What a stage owned, in answered requests that have the stage.
    Stage(Stage),
    /// Totals of requests that the client gave up.
    Cancelled,
    /// Totals of requests that got no full answer: refused, shed, unreachable, broken, timed out.
    Failed,
    /// Durations of long-lived streams, however they ended.
    Stream,
}

impl Measure {
    /// How many measures a series has.
    pub const COUNT: usize = Stage::COUNT + 4;

    /// The place in arrays by measure, `0..Measure::COUNT`.
    #[must_use]
    pub const fn index(self) -> usize {
        match self {
            Self::Total => 0,
            Self::Stage(stage) => 1 + stage.index(),
            Self::Cancelled => 1 + Stage::COUNT,
            Self::Failed => 2 + Stage::COUNT,
            Self::Stream => 3 + Stage::COUNT,
        }
    }

    /// Where the total of an exchange belongs.
    #[must_use]
    pub const fn of(exchange: &Exchange) -> Self {
        match (exchange.ledger.kind, exchange.ledger.outcome) {
            (Kind::Stream, _) => Self::Stream,
            (Kind::Request, Outcome::Cancelled) => Self::Cancelled,
            (Kind::Request, outcome) if outcome.is_answered() => Self::Total,
            (Kind::Request, _) => Self::Failed,
        }
    }

    /// The name in the tags of HDR logs: a stage's own, else `total`, `cancelled`, `failed` or `stream`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Total => "total",
            Self::Stage(stage) => stage.name(),
            Self::Cancelled => "cancelled",
            Self::Failed => "failed",
            Self::Stream => "stream",
        }
    }

    /// Every measure, in the order of their indices.
    pub fn all() -> impl Iterator<Item = Self> {
        let rest = [Self::Cancelled, Self::Failed, Self::Stream];
        std::iter::once(Self::Total).chain(Stage::ALL.into_iter().map(Self::Stage)).chain(rest)
    }
}

/// Exact count, sum and maximum of the durations of one measure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extent {
    /// How many durations.
    pub count: u64,
    /// Their exact sum.
    pub sum_ns: u64,
    /// The longest, exactly.
    pub max_ns: u64,
}

impl Extent {
    const fn record(&mut self, value_ns: u64) {
        self.count += 1;
        self.sum_ns = self.sum_ns.saturating_add(value_ns);
        if value_ns > self.max_ns {
            self.max_ns = value_ns;
        }
    }

    fn merge(&mut self, other: &Self) {
        self.count += other.count;
        self.sum_ns = self.sum_ns.saturating_add(other.sum_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
    }
}

/// Exact figures of one series over some stretch of time; about 900 bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Every exchange, by how it ended: these sum to [`Self::count`].
    pub outcomes: [u64; Outcome::COUNT],
    /// By [`Measure::index`].
    pub extents: [Extent; Measure::COUNT],
    /// How many answered requests have a stage on whose word: by stage, then by source.
    pub sources: [[u64; Source::COUNT]; Stage::COUNT],
    /// Time claimed inside upstream windows of answered requests.
    pub claimed_ns: u64,
    /// Length of the upstream windows of answered requests.
    pub window_ns: u64,
    /// Reports and spans that were clipped.
    pub clipped: u64,
    /// Bytes that clients sent on streams.
    pub stream_request_bytes: u64,
    /// Bytes that clients got on streams.
    pub stream_response_bytes: u64,
}

impl Figures {
    /// Every exchange, whatever became of it.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.outcomes.iter().sum()
    }

    /// Exchanges with an outcome that counts as an error.
    #[must_use]
    pub fn errors(&self) -> u64 {
        Outcome::ALL.into_iter().filter(|o| o.is_error()).map(|o| self.outcomes[o.index()]).sum()
    }

    /// The exact figures of a measure.
    #[must_use]
    pub const fn extent(&self, measure: Measure) -> &Extent {
        &self.extents[measure.index()]
    }

    /// The share of the upstream windows that reports claim, `0..=1`; `None` where there was no window.
    #[must_use]
    #[allow(clippy::cast_precision_loss, reason = "a ratio")]
    pub fn coverage(&self) -> Option<f64> {
        (self.window_ns > 0).then(|| self.claimed_ns as f64 / self.window_ns as f64)
    }

    /// Adds what happened in another stretch of time.
    pub fn merge(&mut self, other: &Self) {
        add(&mut self.outcomes, &other.outcomes);
        for (mine, theirs) in self.extents.iter_mut().zip(&other.extents) {
            mine.merge(theirs);
        }
        for (mine, theirs) in self.sources.iter_mut().zip(&other.sources) {
            add(mine, theirs);
        }
        self.claimed_ns = self.claimed_ns.saturating_add(other.claimed_ns);
        self.window_ns = self.window_ns.saturating_add(other.window_ns);
        self.clipped += other.clipped;
        self.stream_request_bytes = self.stream_request_bytes.saturating_add(other.stream_request_bytes);
        self.stream_response_bytes = self.stream_response_bytes.saturating_add(other.stream_response_bytes);
    }

    /// Something of each cache line (64 bytes), of no meaning: reading it is the purpose.
    pub(super) fn lines(&self) -> u64 {
        let extents = self.extents.iter().step_by(2).fold(self.outcomes[0], |all, extent| all ^ extent.count);
        self.sources.iter().fold(extents, |all, by_source| all ^ by_source[0]) ^ self.claimed_ns
    }

    /// Adds an exchange, and hands each duration that belongs in a histogram to `each`.
    pub(super) fn record(&mut self, exchange: &Exchange, mut each: impl FnMut(Measure, u64)) {
        let (ledger, measure) = (&exchange.ledger, Measure::of(exchange));
        self.outcomes[ledger.outcome.index()] += 1;
        self.extents[measure.index()].record(ledger.total_ns);
        self.clipped += u64::from(exchange.clipped);
        each(measure, ledger.total_ns);
        match measure {
            Measure::Total => {
                for stage in Stage::ALL {
                    if let Some((ns, source)) = exchange.stage(stage) {
                        self.extents[Measure::Stage(stage).index()].record(ns);
                        self.sources[stage.index()][source.index()] += 1;
                        each(Measure::Stage(stage), ns);
                    }
                }
                if let Some(window) = ledger.window {
                    self.claimed_ns = self.claimed_ns.saturating_add(exchange.claimed_ns);
                    self.window_ns = self.window_ns.saturating_add(window.length_ns());
                }
            }
            Measure::Stream => {
                self.stream_request_bytes = self.stream_request_bytes.saturating_add(ledger.request_bytes);
                self.stream_response_bytes = self.stream_response_bytes.saturating_add(ledger.response_bytes);
            }
            _ => {}
        }
    }
}

fn add<const N: usize>(mine: &mut [u64; N], theirs: &[u64; N]) {
    for (mine, theirs) in mine.iter_mut().zip(theirs) {
        *mine += theirs;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measures_are_numbered_in_order() {
        assert_eq!(Measure::all().count(), Measure::COUNT);
        assert!(Measure::all().enumerate().all(|(i, m)| m.index() == i));
    }
}
