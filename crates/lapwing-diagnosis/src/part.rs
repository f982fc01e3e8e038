//! The parts that an exchange's time is split into for a diagnosis: the stages, with those divided that have more than one possible
//! culprit.

use super::bound::LatencyBound;
use lapwing_ledger::Stage;

/// A part of an exchange's time. The parts of an exchange sum to its total.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// The request's bytes come from the client.
    Ingress,
    /// Lapwing classifies and admits.
    Validation,
    /// Lapwing looks for an earlier answer.
    Cache,
    /// Features are looked up.
    Hydration,
    /// Inputs are prepared.
    Preprocessing,
    /// The request waits inside the upstream.
    Queue,
    /// The request waits in Lapwing, behind another one of its connection.
    OwnQueue,
    /// The model runs.
    Forward,
    /// Outputs are worked on.
    Postprocessing,
    /// The handler calls other services.
    Downstream,
    /// The answer is written to the client.
    Egress,
    /// The answer waits for a slow client.
    Backpressure,
    /// Inside a server that reports nothing.
    Undivided,
    /// A connection to the upstream is made, or an attempt fails.
    Connect,
    /// The request is written to the upstream.
    Send,
    /// In the upstream window, before the server's first span or after its last.
    Edge,
    /// Inside the server, between what it reports.
    Unreported,
    /// Between a response's head and its body, where they were written apart and nothing is reported of that time.
    BodyGap,
    /// Lapwing's own time outside its stages.
    Own,
}

/// Nanoseconds, or shares, by part.
pub(crate) type Parts = [f64; Part::COUNT];

impl Part {
    /// How many parts there are.
    pub(crate) const COUNT: usize = 19;

    /// All parts, in the order of their places.
    pub(crate) const ALL: [Self; Self::COUNT] = [
        Self::Ingress,
        Self::Validation,
        Self::Cache,
        Self::Hydration,
        Self::Preprocessing,
        Self::Queue,
        Self::OwnQueue,
        Self::Forward,
        Self::Postprocessing,
        Self::Downstream,
        Self::Egress,
        Self::Backpressure,
        Self::Undivided,
        Self::Connect,
        Self::Send,
        Self::Edge,
        Self::Unreported,
        Self::BodyGap,
        Self::Own,
    ];

    /// The parts inside the upstream window that its server decides.
    pub(crate) const OF_SERVER: [Self; 10] = [
        Self::Hydration,
        Self::Preprocessing,
        Self::Queue,
        Self::Forward,
        Self::Postprocessing,
        Self::Downstream,
        Self::Undivided,
        Self::Edge,
        Self::Unreported,
        Self::BodyGap,
    ];

    /// The stage that the part's time is counted under on every surface.
    pub(crate) const fn stage(self) -> Stage {
        match self {
            Self::Ingress => Stage::Ingress,
            Self::Validation => Stage::Validation,
            Self::Cache => Stage::Cache,
            Self::Hydration => Stage::Hydration,
            Self::Preprocessing => Stage::Preprocessing,
            Self::Queue | Self::OwnQueue => Stage::Queue,
            Self::Forward => Stage::Forward,
            Self::Postprocessing => Stage::Postprocessing,
            Self::Downstream => Stage::Downstream,
            Self::Egress | Self::Backpressure => Stage::Egress,
            Self::Undivided => Stage::Upstream,
            Self::Connect | Self::Send | Self::Edge | Self::Unreported | Self::BodyGap | Self::Own => Stage::Unattributed,
        }
    }

    /// What a route is bound by whose time goes there; `None` if the part does not say it.
    pub(crate) const fn bound(self) -> Option<LatencyBound> {
        match self {
            Self::Hydration => Some(LatencyBound::Feature),
            Self::Preprocessing => Some(LatencyBound::Preprocessing),
            Self::Queue | Self::OwnQueue => Some(LatencyBound::Queue),
            Self::Forward => Some(LatencyBound::Compute),
            Self::Postprocessing => Some(LatencyBound::Postprocessing),
            Self::Downstream => Some(LatencyBound::Downstream),
            Self::Ingress | Self::Egress | Self::Backpressure | Self::Connect | Self::Send | Self::Edge => {
                Some(LatencyBound::Network)
            }
            Self::Validation | Self::Cache | Self::Own => Some(LatencyBound::Proxy),
            Self::Undivided | Self::Unreported | Self::BodyGap => None,
        }
    }
}

/// A set of parts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PartSet(u32);

impl PartSet {
    /// All parts.
    pub(crate) const ALL: Self = Self((1 << Part::COUNT) - 1);

    /// The set of these parts.
    pub(crate) const fn of(parts: &[Part]) -> Self {
        let mut bits = 0;
        let mut at = 0;
        while at < parts.len() {
            bits |= 1 << parts[at] as u32;
            at += 1;
        }
        Self(bits)
    }

    /// Whether the part is in it.
    pub(crate) const fn has(self, part: Part) -> bool {
        self.0 & (1 << part as u32) != 0
    }

    /// Those of it that are not in `other`.
    pub(crate) const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Those in either.
    pub(crate) const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The sum of their values.
    pub(crate) fn sum(self, parts: &Parts) -> f64 {
        Part::ALL.into_iter().filter(|part| self.has(*part)).map(|part| parts[part as usize]).sum()
    }

    /// The part with the largest value; `None` if none of them is above zero.
    pub(crate) fn largest(self, parts: &Parts) -> Option<Part> {
        let own = Part::ALL.into_iter().filter(|part| self.has(*part) && parts[*part as usize] > 0.0);
        own.max_by(|a, b| parts[*a as usize].total_cmp(&parts[*b as usize]))
    }
}

/// The bound under which the time above the budget of each part is counted; `None` where nothing says it.
pub(crate) type PartBounds = [Option<LatencyBound>; Part::COUNT];

/// The bounds of parts where no verdict says otherwise.
pub(crate) fn plain_bounds() -> PartBounds {
    Part::ALL.map(Part::bound)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_follow_the_list_and_sets_add_up() {
        for (at, part) in Part::ALL.into_iter().enumerate() {
            assert_eq!(part as usize, at);
            assert!(PartSet::ALL.has(part));
        }
        let both = PartSet::of(&[Part::Queue, Part::Own]);
        let mut parts = Parts::default();
        (parts[Part::Queue as usize], parts[Part::Own as usize], parts[Part::Edge as usize]) = (2.0, 3.0, 9.0);
        assert_eq!((both.sum(&parts), both.largest(&parts)), (5.0, Some(Part::Own)));
        assert_eq!(both.without(PartSet::of(&[Part::Own])), PartSet::of(&[Part::Queue]));
        assert_eq!(both.largest(&Parts::default()), None);
    }
}
