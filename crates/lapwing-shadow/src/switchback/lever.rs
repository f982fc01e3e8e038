//! What a trial turns on and off: settings of the data plane that exist without it. A further lever is a name here and a switch in
//! [`Levers`], which its code reads.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use lapwing_proxy::Levers;
use lapwing_settings::LeverPosition;

/// A lever by its name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TrialLever {
    /// Nothing.
    #[default]
    Off,
    /// `proxy.quick_ack`.
    QuickAck,
    /// `upstream_policy`, not that of a route; off is `round_robin`.
    LeastRequests,
    /// Its reverse.
    RoundRobin,
    /// `dispatch.mode`.
    Dispatch,
    /// `dispatch.hedge.mode`, while requests wait by `dispatch.mode`.
    Hedge,
    /// `cache.mode`, of routes where it is not `off`.
    Cache,
}

impl TrialLever {
    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::QuickAck => "quick_ack",
            Self::LeastRequests => "least_requests",
            Self::RoundRobin => "round_robin",
            Self::Dispatch => "dispatch",
            Self::Hedge => "hedge",
            Self::Cache => "cache",
        }
    }

    /// Whether there is nothing to choose from with a single upstream.
    pub(crate) const fn chooses_upstreams(self) -> bool {
        matches!(self, Self::LeastRequests | Self::RoundRobin)
    }

    /// Turns it on or off, or leaves it to the configuration.
    pub(crate) fn turn(self, levers: &Levers, on: Option<bool>) {
        let position = |on: Option<bool>| match on {
            None => LeverPosition::AsConfigured,
            Some(true) => LeverPosition::On,
            Some(false) => LeverPosition::Off,
        };
        match self {
            Self::Off => {}
            Self::QuickAck => levers.quick_ack.set(position(on)),
            Self::LeastRequests => levers.least_requests.set(position(on)),
            Self::RoundRobin => levers.least_requests.set(position(on.map(|on| !on))),
            Self::Dispatch => levers.dispatch.set(position(on)),
            Self::Hedge => levers.hedge.set(position(on)),
            Self::Cache => levers.cache.set(position(on)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_lever_turns_its_switch_and_lets_it_go() {
        let levers = Levers::default();
        let all = [&levers.quick_ack, &levers.least_requests, &levers.dispatch, &levers.hedge, &levers.cache];
        let stand = || all.map(|lever| [lever.is_on(false), lever.is_on(true)]);
        let (free, off, on) = ([false, true], [false, false], [true, true]);
        for (lever, turned_on, turned_off) in [
            (TrialLever::QuickAck, [on, free, free, free, free], [off, free, free, free, free]),
            (TrialLever::LeastRequests, [free, on, free, free, free], [free, off, free, free, free]),
            (TrialLever::RoundRobin, [free, off, free, free, free], [free, on, free, free, free]),
            (TrialLever::Dispatch, [free, free, on, free, free], [free, free, off, free, free]),
            (TrialLever::Hedge, [free, free, free, on, free], [free, free, free, off, free]),
            (TrialLever::Cache, [free, free, free, free, on], [free, free, free, free, off]),
            (TrialLever::Off, [free; 5], [free; 5]),
        ] {
            lever.turn(&levers, Some(true));
            assert_eq!(stand(), turned_on, "{}", lever.name());
            lever.turn(&levers, Some(false));
            assert_eq!(stand(), turned_off, "{}", lever.name());
            lever.turn(&levers, None);
            assert_eq!(stand(), [free; 5], "{}", lever.name());
        }
    }
}
