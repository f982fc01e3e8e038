//! Why a connection is no longer read. Its bytes pass on.

/// Why a connection is no longer read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unread {
    /// What came is not in the protocol.
    Malformed,
    /// A reply nests too deeply.
    TooDeep,
    /// An answer came that nobody had asked for.
    Unasked,
    /// Too much was open at once.
    TooMany,
    /// The connection watches what others do (`MONITOR`).
    Monitor,
    /// The connection is of a replica.
    Replication,
    /// It changed to another protocol, or is a tunnel.
    Upgraded,
}

impl Unread {
    /// All reasons.
    pub(crate) const ALL: [Self; 7] =
        [Self::Malformed, Self::TooDeep, Self::Unasked, Self::TooMany, Self::Monitor, Self::Replication, Self::Upgraded];

    /// The name on every surface.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Malformed => "malformed",
            Self::TooDeep => "too_deep",
            Self::Unasked => "unasked",
            Self::TooMany => "too_many",
            Self::Monitor => "monitor",
            Self::Replication => "replication",
            Self::Upgraded => "upgraded",
        }
    }
}
