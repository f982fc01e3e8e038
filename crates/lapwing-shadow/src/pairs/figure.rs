//! The figures of a pair, of which those that both sides have are compared; and which side goes first, which a reader must know of
//! every such figure.

use crate::CopyOrder;
use lapwing_ledger::{Exchange, Phase, Source, Stage};

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
