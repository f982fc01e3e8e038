//! One side of a pair: what its exchange took, and how it ended.

use super::figure::PairFigure;
use crate::ledger::{Exchange, Outcome, SeriesKey};

/// How one side ended, as far as a comparison of latencies is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HalfOutcome {
    /// It was answered without an error.
    Answered,
    /// It was answered with an error, or not at all.
    Failed,
}

/// One side of a pair.
#[derive(Clone, Debug)]
pub(super) struct Half {
    pub(super) series: SeriesKey,
    pub(super) class: Option<u8>,
    pub(super) outcome: HalfOutcome,
    /// Nanoseconds by figure, in the order of [`PairFigure::ALL`].
    pub(super) figures: [Option<u64>; PairFigure::ALL.len()],
}

impl Half {
    /// `None` if the client left a request before it was answered: that says nothing of the server.
    pub(super) fn of_primary(exchange: &Exchange) -> Option<Self> {
        (exchange.ledger.outcome != Outcome::Cancelled).then(|| Self::of(exchange))
    }

    /// The side of a copy. One that was given up took too long.
    pub(super) fn of_copy(exchange: &Exchange) -> Self {
        Self::of(exchange)
    }

    fn of(exchange: &Exchange) -> Self {
        let ledger = &exchange.ledger;
        Self {
            series: ledger.series,
            class: ledger.work.class().and_then(|class| u8::try_from(class).ok()),
            outcome: if ledger.outcome == Outcome::Ok { HalfOutcome::Answered } else { HalfOutcome::Failed },
            figures: PairFigure::ALL.map(|figure| figure.of(exchange)),
        }
    }
}
