//! One side of a pair: what its exchange took, and how it ended; and the same as text, for files.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::figure::PairFigure;
use lapwing_ledger::{CopyCause, Exchange, LabelId, Outcome, SeriesKey};
use lapwing_metrics::Labels;

/// How one side ended, as far as a comparison of latencies is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HalfOutcome {
    /// It was answered without an error.
    Answered,
    /// It was answered with an error, or not at all.
    Failed,
}

/// One side of a pair.
#[derive(Clone, Debug, PartialEq)]
pub struct PairHalf {
    pub(crate) series: SeriesKey,
    pub(crate) class: Option<u8>,
    pub(crate) outcome: HalfOutcome,
    /// Why it has copies, if it is the primary's side and that is known.
    pub(crate) copied: Option<CopyCause>,
    /// Nanoseconds by figure, in the order of [`PairFigure::ALL`].
    pub(crate) figures: [Option<u64>; PairFigure::ALL.len()],
}

impl PairHalf {
    /// The side of an exchange. `None` if the client left a request before it was answered: that says nothing of the server.
    #[must_use]
    pub fn of_primary(exchange: &Exchange) -> Option<Self> {
        (exchange.ledger.outcome != Outcome::Cancelled).then(|| Self::of_copy(exchange))
    }

    /// The side of a copy. One that was given up took too long.
    #[must_use]
    pub fn of_copy(exchange: &Exchange) -> Self {
        let ledger = &exchange.ledger;
        Self {
            series: ledger.series,
            class: ledger.work.class().and_then(|class| u8::try_from(class).ok()),
            copied: ledger.copied,
            outcome: if ledger.outcome == Outcome::Ok { HalfOutcome::Answered } else { HalfOutcome::Failed },
            figures: PairFigure::ALL.map(|figure| figure.of(exchange)),
        }
    }

    /// The same side with the time from when it was due, in nanoseconds.
    #[must_use]
    pub fn with_from_due(mut self, ns: u64) -> Self {
        for (figure, known) in PairFigure::ALL.iter().zip(&mut self.figures) {
            if *figure == PairFigure::FromDue {
                *known = Some(ns);
            }
        }
        self
    }

    /// The side as it is written to files.
    #[must_use]
    pub fn account(&self, labels: &Labels) -> SideAccount {
        let figures = PairFigure::ALL.iter().zip(self.figures);
        SideAccount {
            route: labels.routes.text(self.series.route).to_string(),
            model: labels.models.text(self.series.model).to_string(),
            class: self.class,
            is_answered: self.outcome == HalfOutcome::Answered,
            figures_ns: figures.filter_map(|(figure, ns)| Some((figure.name().to_owned(), ns?))).collect(),
        }
    }

    /// The side that was written as `account`. Names of figures that are unknown here are left out.
    #[must_use]
    pub fn of_account(account: &SideAccount, labels: &Labels) -> Self {
        Self {
            series: SeriesKey {
                route: labels.routes.intern(&account.route),
                model: labels.models.intern(&account.model),
                upstream: LabelId::default(),
            },
            class: account.class.filter(|class| *class < 64),
            copied: None,
            outcome: if account.is_answered { HalfOutcome::Answered } else { HalfOutcome::Failed },
            figures: PairFigure::ALL.map(|figure| account.figures_ns.get(figure.name()).copied()),
        }
    }
}

/// One side of a pair as text: in recordings, and in files of pairs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SideAccount {
    /// The route, as `/stats` names it.
    pub route: String,
    /// The model; empty if it is unknown.
    #[serde(default)]
    pub model: String,
    /// The cost class: the exponent of two of its least amount of work; absent if the work is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<u8>,
    /// Whether it was answered without an error.
    pub is_answered: bool,
    /// Nanoseconds by figure: `total` is the upstream window, `from_due` a replayed request's time from when it was due, the others are
    /// stages and phases that the server told.
    pub figures_ns: BTreeMap<String, u64>,
}
