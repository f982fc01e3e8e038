//! The closed vocabulary: which stage owns a nanosecond, and who says so.

use serde::{Deserialize, Serialize};

/// A stage of an inference request. Closed, so that an account is a fixed array and nothing is hashed per request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stage {
    /// First byte of the request to its last.
    Ingress,
    /// Parse, classify and admit, in the proxy.
    Validation,
    /// Feature lookup.
    Hydration,
    /// Tokenise, resize, normalise; host-to-device copies of inputs.
    Preprocessing,
    /// Waiting for a slot or a batch, in the proxy or in the upstream.
    Queue,
    /// The model itself.
    Forward,
    /// Decode, threshold, calibrate; device-to-host copies of outputs.
    Postprocessing,
    /// Calls that the handler makes to other services after inference.
    Downstream,
    /// Last upstream byte to the last byte written to the client, and waits for a slow client before that.
    Egress,
    /// Claimed by no report.
    Unattributed,
}

impl Stage {
    /// How many stages there are: the length of an account's arrays.
    pub const COUNT: usize = 10;

    /// Every stage, in the order of a request's life.
    pub const ALL: [Self; Self::COUNT] = [
        Self::Ingress,
        Self::Validation,
        Self::Hydration,
        Self::Preprocessing,
        Self::Queue,
        Self::Forward,
        Self::Postprocessing,
        Self::Downstream,
        Self::Egress,
        Self::Unattributed,
    ];

    /// The five that every surface shows first.
    pub const FIRST_FIVE: [Self; 5] = [Self::Ingress, Self::Hydration, Self::Preprocessing, Self::Forward, Self::Postprocessing];

    /// The name on every surface, in lower case.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ingress => "ingress",
            Self::Validation => "validation",
            Self::Hydration => "hydration",
            Self::Preprocessing => "preprocessing",
            Self::Queue => "queue",
            Self::Forward => "forward",
            Self::Postprocessing => "postprocessing",
            Self::Downstream => "downstream",
            Self::Egress => "egress",
            Self::Unattributed => "unattributed",
        }
    }

    /// The place in an account's arrays, `0..Stage::COUNT`.
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// The stage of that name; `None` if there is no such stage.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|s| s.name() == name)
    }
}

/// A part of [`Stage::Forward`] in generative models. A phase owns what it owns within forward, never besides it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// The input is read, and the first output token made.
    Prefill,
    /// The other output tokens are made, one by one.
    Decode,
}

impl Phase {
    /// How many phases there are.
    pub const COUNT: usize = 2;

    /// Both, in order.
    pub const ALL: [Self; Self::COUNT] = [Self::Prefill, Self::Decode];

    /// The name on every surface, in lower case.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Prefill => "prefill",
            Self::Decode => "decode",
        }
    }

    /// The place in arrays by phase.
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }
}

/// Who says how long a stage took, the strongest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// The proxy's own clock.
    Observed,
    /// This response's header, trailer or body field.
    Reported,
    /// An OTLP span joined by trace id.
    Traced,
    /// A statistics delta: an average over a window, an estimate.
    Polled,
    /// No report: the whole upstream window counts as forward.
    Opaque,
}

impl Source {
    /// How many sources there are.
    pub const COUNT: usize = 5;

    /// Every source, the strongest first.
    pub const ALL: [Self; Self::COUNT] = [Self::Observed, Self::Reported, Self::Traced, Self::Polled, Self::Opaque];

    /// The name on every surface, in lower case.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Observed => "observed",
            Self::Reported => "reported",
            Self::Traced => "traced",
            Self::Polled => "polled",
            Self::Opaque => "opaque",
        }
    }

    /// The place in arrays by source, `0..Source::COUNT`.
    #[must_use]
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
