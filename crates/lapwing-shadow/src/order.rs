//! Which side of a pair goes first: what a reader must know of every figure that compares both.

use super::CopyOrder;

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
