//! The number that a request and its copies have in common, and why it has copies.

use std::num::NonZeroU64;

/// Says which copies belong to which request of a client, in one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PairId(NonZeroU64);

impl PairId {
    /// The id of this number; `None` for 0.
    #[must_use]
    pub const fn new(number: u64) -> Option<Self> {
        match NonZeroU64::new(number) {
            Some(number) => Some(Self(number)),
            None => None,
        }
    }

    /// The number, at least 1.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0.get()
    }
}

/// Why a client's request has copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CopyCause {
    /// The share drew it, or it carries the header that asks for copies. Such requests are in proportion to the traffic.
    Share,
    /// The share did not draw it, and the quota of its route had room for its cost class. Rare classes are over-represented.
    Quota,
}

impl CopyCause {
    /// Every cause.
    pub const ALL: [Self; 2] = [Self::Share, Self::Quota];

    /// The name on every surface.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Share => "share",
            Self::Quota => "quota",
        }
    }
}
