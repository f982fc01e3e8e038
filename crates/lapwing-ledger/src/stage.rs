//! The closed vocabulary of stages and sources: what owns a nanosecond, and how that is known.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A stage of an inference request. The set is closed, so an account is a fixed array and nothing is hashed per request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Stage {
    /// From the first byte of the request to its last.
    Ingress,
    /// Parse, classify and admit, in the proxy.
    Validation,
    /// Lapwing looks whether an earlier answer may be given again, and gives it.
    Cache,
    /// Feature lookup.
    Hydration,
    /// Tokenise, resize, normalise; host-to-device copies of inputs.
    Preprocessing,
    /// Waiting for a slot or a batch, in the proxy or in the upstream.
    Queue,
    /// The model itself, as the server or the engine reports it.
    Forward,
    /// Decode, threshold, calibrate; device-to-host copies of outputs.
    Postprocessing,
    /// Calls that the handler makes to other services after inference.
    Downstream,
    /// From the last upstream byte to the last byte written to the client, plus earlier waits for a slow client.
    Egress,
    /// Inside the server, undivided: the window of a request of which the server reported nothing.
    Upstream,
    /// Time inside the server that no report claims, of a request of which something was reported; and the proxy's own time
    /// outside its stages.
    Unattributed,
}

impl Stage {
    /// How many stages there are: the length of an account's arrays.
    pub const COUNT: usize = 12;

    /// Every stage, in the order of a request's life.
    pub const ALL: [Self; Self::COUNT] = [
        Self::Ingress,
        Self::Validation,
        Self::Cache,
        Self::Hydration,
        Self::Preprocessing,
        Self::Queue,
        Self::Forward,
        Self::Postprocessing,
        Self::Downstream,
        Self::Egress,
        Self::Upstream,
        Self::Unattributed,
    ];

    /// The five stages that every surface shows first.
    pub const FIRST_FIVE: [Self; 5] = [Self::Ingress, Self::Hydration, Self::Preprocessing, Self::Forward, Self::Postprocessing];

    /// The name on every surface, in lower case.
    #[must_use]
    #[inline]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ingress => "ingress",
            Self::Validation => "validation",
            Self::Cache => "cache",
            Self::Hydration => "hydration",
            Self::Preprocessing => "preprocessing",
            Self::Queue => "queue",
            Self::Forward => "forward",
            Self::Postprocessing => "postprocessing",
            Self::Downstream => "downstream",
            Self::Egress => "egress",
            Self::Upstream => "upstream",
            Self::Unattributed => "unattributed",
        }
    }

    /// The place in an account's arrays, `0..Stage::COUNT`.
    #[must_use]
    #[inline]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Whether only Lapwing's own clock gives the stage its time, so that no report and no rule may name it.
    #[must_use]
    #[inline]
    pub const fn is_observed_only(self) -> bool {
        matches!(self, Self::Ingress | Self::Cache | Self::Egress | Self::Upstream)
    }

    /// The stage of that name; `None` if there is no such stage.
    #[must_use]
    #[inline]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|s| s.name() == name)
    }
}

/// A part of a stage: of [`Stage::Forward`] in generative models, or of [`Stage::Queue`] while Lapwing itself holds the request. The time of a
/// phase is always part of the time of its stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// The model reads the input and produces the first output token.
    Prefill,
    /// The model produces the other output tokens, one by one.
    Decode,
    /// Lapwing holds a request that has come whole, and decides where it goes.
    Dispatch,
    /// The same request is at the upstream already, and its answer is waited for.
    Coalesced,
}

impl Phase {
    /// How many phases there are.
    pub const COUNT: usize = 4;

    /// Every phase: those of forward in order, then those of queue.
    pub const ALL: [Self; Self::COUNT] = [Self::Prefill, Self::Decode, Self::Dispatch, Self::Coalesced];

    /// The phases of forward, in order.
    pub const FORWARD: [Self; 2] = [Self::Prefill, Self::Decode];

    /// The name on every surface, in lower case.
    #[must_use]
    #[inline]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Prefill => "prefill",
            Self::Decode => "decode",
            Self::Dispatch => "dispatch",
            Self::Coalesced => "coalesced",
        }
    }

    /// The place in arrays by phase.
    #[must_use]
    #[inline]
    pub const fn index(self) -> usize {
        self as usize
    }
}

/// How the time of a stage is known, the strongest source first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// The proxy's own clock.
    Observed,
    /// A header, trailer or body field of this response.
    Reported,
    /// An OTLP span joined by trace id.
    Traced,
}

impl Source {
    /// How many sources there are.
    pub const COUNT: usize = 3;

    /// Every source, the strongest first.
    pub const ALL: [Self; Self::COUNT] = [Self::Observed, Self::Reported, Self::Traced];

    /// The name on every surface, in lower case.
    #[must_use]
    #[inline]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Observed => "observed",
            Self::Reported => "reported",
            Self::Traced => "traced",
        }
    }

    /// The place in arrays by source, `0..Source::COUNT`.
    #[must_use]
    #[inline]
    pub const fn index(self) -> usize {
        self as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indices_and_names_agree_with_the_lists() {
        for (i, stage) in Stage::ALL.into_iter().enumerate() {
            assert_eq!(stage.index(), i);
            assert_eq!(Stage::from_name(stage.name()), Some(stage));
        }
        for (i, source) in Source::ALL.into_iter().enumerate() {
            assert_eq!(source.index(), i);
        }
        assert_eq!(Stage::from_name("Forward"), None);
    }
}
