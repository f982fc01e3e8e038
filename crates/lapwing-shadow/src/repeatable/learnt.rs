//! What was learnt of routes: how many exchanges in a row were those of a known protocol.

use std::collections::BTreeMap;

/// After so many recognised exchanges in a row a route is repeatable.
pub(crate) const LEARNT_AFTER: u32 = 3;
/// How many routes are kept. One that is not repeatable makes room for one that is recognised.
const MAX_ROUTES: usize = 128;

/// Whether a route is repeatable now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It is.
    Repeatable,
    /// Not yet: too few recognised exchanges. With the number of times that learning began anew.
    Learning(u64),
}

/// A route and what was learnt of it, for surfaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteStanding {
    /// The route, as `/stats` names it.
    pub route: String,
    /// Whether it is repeatable now.
    pub is_repeatable: bool,
    /// Exchanges that were recognised.
    pub recognised: u64,
    /// Requests that were not, or whose answer was not.
    pub not_recognised: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Learnt {
    /// Recognised exchanges since the last one that was not.
    in_a_row: u32,
    restarts: u64,
    recognised: u64,
    not_recognised: u64,
}

/// All routes that were looked at.
#[derive(Debug, Default)]
pub(crate) struct LearntRoutes(BTreeMap<String, Learnt>);

impl LearntRoutes {
    /// How a route stands.
    pub(crate) fn standing(&self, route: &str) -> Standing {
        self.0.get(route).map_or(Standing::Learning(0), Learnt::standing)
    }

    /// An exchange was that of a known protocol. Returns how its route stands then.
    pub(crate) fn recognise(&mut self, route: &str) -> Standing {
        let Some(learnt) = self.entry(route, true) else { return Standing::Learning(0) };
        learnt.in_a_row = learnt.in_a_row.saturating_add(1);
        learnt.recognised += 1;
        learnt.standing()
    }

    /// A request, or a good answer, was not: the route is to be learnt anew.
    pub(crate) fn unlearn(&mut self, route: &str) {
        if let Some(learnt) = self.entry(route, false) {
            learnt.in_a_row = 0;
            learnt.restarts += 1;
            learnt.not_recognised += 1;
        }
    }

    /// The entry of a route, if there is room for it.
    fn entry(&mut self, route: &str, is_recognised: bool) -> Option<&mut Learnt> {
        if !self.0.contains_key(route) && self.0.len() >= MAX_ROUTES {
            let other = self.0.iter().find(|(_, learnt)| learnt.in_a_row == 0).map(|(route, _)| route.clone());
            self.0.remove(&other.filter(|_| is_recognised)?);
        }
        Some(self.0.entry(route.to_owned()).or_default())
    }

    /// Every route, by name.
    pub(crate) fn all(&self) -> Vec<RouteStanding> {
        let standing = |(route, learnt): (&String, &Learnt)| RouteStanding {
            route: route.clone(),
            is_repeatable: learnt.standing() == Standing::Repeatable,
            recognised: learnt.recognised,
            not_recognised: learnt.not_recognised,
        };
        self.0.iter().map(standing).collect()
    }
}

impl Learnt {
    const fn standing(&self) -> Standing {
        if self.in_a_row >= LEARNT_AFTER { Standing::Repeatable } else { Standing::Learning(self.restarts) }
    }
}
