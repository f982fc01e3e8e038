//! One side of a pair: its figures, of which those that both sides have are compared, and how it ended; the same as text, for files; and
//! which side goes first, which a reader must know of every such figure.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::config::CopyOrder;
use lapwing_ledger::{CopyCause, Exchange, LabelId, Outcome, Phase, SeriesKey, Source, Stage};
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

/// A figure of a pair. All but [`Self::FromDue`] lie inside the upstream window: what the client's connection does is not the server's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PairFigure {
    /// The whole upstream window.
    Total,
    /// From the time at which a replayed request was due to the last byte of its answer: the window, and before it what waited to be
    /// sent. Only replayed requests have it.
    FromDue,
    /// A stage inside it.
    Stage(Stage),
    /// A phase of forward.
    Phase(Phase),
}

impl PairFigure {
    /// Every figure, in the order of a report.
    pub const ALL: [Self; 10] = [
        Self::Total,
        Self::FromDue,
        Self::Stage(Stage::Hydration),
        Self::Stage(Stage::Preprocessing),
        Self::Stage(Stage::Queue),
        Self::Stage(Stage::Forward),
        Self::Phase(Phase::Prefill),
        Self::Phase(Phase::Decode),
        Self::Stage(Stage::Postprocessing),
        Self::Stage(Stage::Downstream),
    ];

    /// The name on every surface.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Total => "total",
            Self::FromDue => "from_due",
            Self::Stage(stage) => stage.name(),
            Self::Phase(phase) => phase.name(),
        }
    }

    /// The figure of `exchange`, in nanoseconds; `None` if its server did not tell it.
    #[must_use]
    pub fn of(self, exchange: &Exchange) -> Option<u64> {
        match self {
            Self::Total => exchange.ledger.window.map(|window| window.length_ns()),
            // who sends it knows when it was due
            Self::FromDue => None,
            Self::Stage(Stage::Queue) => is_told(exchange.stage(Stage::Queue)).map(|_| exchange.upstream_queue_ns()),
            Self::Stage(stage) => is_told(exchange.stage(stage)),
            Self::Phase(phase) => is_told(exchange.phase(phase)),
        }
    }
}

/// The time, if the server itself told it.
fn is_told(time: Option<(u64, Source)>) -> Option<u64> {
    time.filter(|(_, source)| matches!(source, Source::Reported | Source::Traced)).map(|(ns, _)| ns)
}

/// When the sides of a pair were sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PairOrder {
    /// Each copy was sent once the upstream had answered.
    PrimaryFirst,
    /// Each copy was sent beside its request, which goes first by the time that the hand-over takes.
    Beside,
    /// A replay sent each request to all targets at the same time; each of them is the first equally often.
    InTurn,
    /// A replay against a recording: the other side was measured when the recording was made.
    AfterRecording,
}

impl From<CopyOrder> for PairOrder {
    fn from(order: CopyOrder) -> Self {
        match order {
            CopyOrder::After => Self::PrimaryFirst,
            CopyOrder::Concurrent => Self::Beside,
        }
    }
}

impl PairOrder {
    /// The name in JSON. Those of copies are the values of `shadow.order`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::PrimaryFirst => CopyOrder::After.name(),
            Self::Beside => CopyOrder::Concurrent.name(),
            Self::InTurn => "in_turn",
            Self::AfterRecording => "recorded",
        }
    }

    /// The order in words, for people.
    #[must_use]
    pub const fn in_words(self) -> &'static str {
        match self {
            Self::PrimaryFirst => "every figure: primary first, the copy after the upstream's answer",
            Self::Beside => "every figure: primary first, the copy beside it",
            Self::InTurn => "every figure: all targets at the same time, each first equally often",
            Self::AfterRecording => "every figure: the baseline as it was recorded, the target as replayed",
        }
    }
}
