//! Whose answer a client was given.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Whose answer a client was given: figures of a model are of those that it made for the very request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ServedBy {
    /// The upstream's, or Lapwing's own where the upstream has none.
    #[default]
    Upstream,
    /// An earlier answer that this process keeps.
    L1,
    /// An earlier answer that a shared Redis keeps.
    L2,
    /// The answer to the same request, which was at the upstream when this one came.
    Coalesced,
}

impl ServedBy {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Upstream, Self::L1, Self::L2, Self::Coalesced];

    /// The name on every surface, in lower case.
    #[must_use]
    #[inline]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Upstream => "upstream",
            Self::L1 => "l1",
            Self::L2 => "l2",
            Self::Coalesced => "coalesced",
        }
    }

    /// Whether the upstream made the answer for this request.
    #[must_use]
    #[inline]
    pub const fn is_upstream(self) -> bool {
        matches!(self, Self::Upstream)
    }
}
