//! Some of the upstreams, and the policy that chooses one of them.

use std::sync::atomic::Ordering::Relaxed;

use http::HeaderMap;
use parking_lot::Mutex;

use super::candidates::{Candidate, Candidates};
use lapwing_dispatch::{Affinity, Home, Homes, MAX_UPSTREAMS, PlacementPolicy};
use lapwing_protocol::BodyPointer;
use lapwing_settings::LeverSwitch;

/// One of all candidates, by its place among them, and its weight.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WeightedPlace {
    pub(crate) place: usize,
    pub(crate) weight: u32,
}

/// Some of the upstreams.
#[derive(Debug)]
pub(crate) struct Pool {
    members: Box<[WeightedPlace]>,
    policy: PlacementPolicy,
    /// May turn it to `least_requests`, or `round_robin`.
    least_requests: LeverSwitch,
    /// Which requests go to the same member.
    homes: Option<Homes>,
    /// For each member: how far it is behind its share. They add up to zero.
    behind: Mutex<Box<[i64]>>,
}

impl Pool {
    /// A pool of these members.
    pub(crate) fn new(members: Box<[WeightedPlace]>, policy: PlacementPolicy) -> Self {
        let behind = Mutex::new(vec![0; members.len()].into());
        Self { members, policy, least_requests: LeverSwitch::default(), homes: None, behind }
    }

    /// The same pool, whose policy `least_requests` may turn.
    pub(crate) fn turned_by(self, least_requests: &LeverSwitch) -> Self {
        Self { least_requests: least_requests.clone(), ..self }
    }

    /// The same pool, where requests with the same key go to the same member.
    pub(crate) fn with_homes(self, affinity: Option<&Affinity>) -> Self {
        Self { homes: affinity.map(Homes::new), ..self }
    }

    /// Whether the choice looks at how much requests ask for.
    pub(crate) fn counts_work(&self) -> bool {
        self.policy == PlacementPolicy::LeastWork
    }

    /// Whether requests with the same key go to the same member.
    pub(crate) const fn has_homes(&self) -> bool {
        self.homes.is_some()
    }

    /// Where the key is, if a body has it.
    pub(crate) fn key_in_body(&self) -> Option<&BodyPointer> {
        self.homes.as_ref()?.in_body()
    }

    /// The member that requests with the key of this one go to; `None` without a key.
    pub(crate) fn home(&self, all: &[Candidate], headers: &HeaderMap, in_body: Option<&[u8]>) -> Option<usize> {
        let homes = self.members.iter().map(|member| {
            let known = all.get(member.place).map(|one| (one.name, one.active.load(Relaxed), !one.health.is_away()));
            let (name, active, is_open) = known.unwrap_or_default();
            Home { name, weight: member.weight, active, is_open }
        });
        let at = self.homes.as_ref()?.choose(headers, in_body, homes)?;
        self.members.get(at).map(|member| member.place)
    }

    /// The places of its members.
    pub(crate) fn places(&self) -> impl Iterator<Item = usize> {
        self.members.iter().map(|member| member.place)
    }

    /// The policy in force.
    fn policy(&self) -> PlacementPolicy {
        match (self.least_requests.is_turned(), self.least_requests.is_on(false)) {
            (false, _) => self.policy,
            (true, true) => PlacementPolicy::LeastRequests,
            (true, false) => PlacementPolicy::RoundRobin,
        }
    }

    /// Chooses a member for a request that asks for so much, if that is known: one that takes connections, and is not the one `without`; if none
    /// is known to, any: it may be back. `None` if there is no other.
    pub(crate) fn choose(&self, candidates: &Candidates, without: Option<usize>, work: Option<u64>) -> Option<usize> {
        let of = |at: usize| self.members.get(at).and_then(|member| Some((*member, candidates.all.get(member.place)?)));
        let eligible = |is_known: bool| {
            (0..self.members.len()).filter(move |at| {
                of(*at).is_some_and(|(member, one)| Some(member.place) != without && !(is_known && one.health.is_away()))
            })
        };
        let is_known = eligible(true).next().is_some();
        let works = match self.policy() {
            PlacementPolicy::RoundRobin => return self.next_in_turn(eligible(is_known)),
            PlacementPolicy::LeastRequests => None,
            PlacementPolicy::LeastWork => Some(self.own_and_mean_work(&candidates.all, work)),
        };
        // equal shares are equal numbers: a quotient is rounded in one way
        let load = |at: usize| {
            let (member, one) = of(at)?;
            let weight = f64::from(member.weight.max(1));
            let Some((own, mean)) = works else { return Some((f64::from(one.active.load(Relaxed)) + 1.0) / weight) };
            let (asked, _, others) = one.asked();
            Some((asked + others * mean + own) / (weight * candidates.speeds.of(member.place)))
        };
        // each is looked at once: other workers place requests meanwhile, and then nobody might have the least any more
        let mut loads = [None; MAX_UPSTREAMS];
        for at in eligible(is_known) {
            loads.get_mut(at).into_iter().for_each(|of_one| *of_one = load(at));
        }
        let least = loads.iter().flatten().copied().min_by(f64::total_cmp);
        self.next_in_turn(eligible(is_known).filter(|at| least.is_some() && loads.get(*at) == Some(&least)))
    }

    /// What a request asks for, and what those ask for in the mean whose work is not known: as the others in flight at its members.
    #[allow(clippy::cast_precision_loss, reason = "below 2^52")]
    fn own_and_mean_work(&self, all: &[Candidate], own: Option<u64>) -> (f64, f64) {
        let own = own.map(|own| own as f64);
        let in_flight = self.members.iter().filter_map(|member| all.get(member.place)).map(Candidate::asked);
        let (asked, known) = in_flight
            .fold((own.unwrap_or(0.0), f64::from(u8::from(own.is_some()))), |(asked, known), one| (asked + one.0, known + one.1));
        // where nothing is known, requests count
        let mean = if known > 0.0 { asked / known } else { 1.0 };
        (own.unwrap_or(mean), mean)
    }

    /// Whose turn it is of some: smooth weighted round robin, as nginx has it. Each gets its weight, and who has most pays what all got.
    fn next_in_turn(&self, among: impl Iterator<Item = usize>) -> Option<usize> {
        let mut behind = self.behind.lock();
        let (mut got, mut first) = (0, None::<(usize, i64)>);
        for at in among {
            let (Some(member), Some(own)) = (self.members.get(at), behind.get_mut(at)) else { continue };
            let weight = i64::from(member.weight);
            *own += weight;
            got += weight;
            if first.is_none_or(|(_, most)| *own > most) {
                first = Some((at, *own));
            }
        }
        let (at, _) = first?;
        if let Some(own) = behind.get_mut(at) {
            *own -= got;
        }
        self.members.get(at).map(|member| member.place)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use std::sync::Arc;

    use super::*;
    use crate::health::UpstreamHealth;
    use crate::{PlacedUpstream, PoolMember};
    use lapwing_ledger::LabelId;
    use lapwing_net::{ConnectError, Target};

    fn candidates(number: usize) -> Candidates {
        let one = |at| PoolMember {
            upstream: PlacedUpstream { target: Target::Tcp(format!("m:{at}")), protocol: None, health: Arc::default() },
            name: format!("m{at}"),
            label: LabelId::OTHER,
        };
        Candidates::of(&(0..number).map(one).collect::<Vec<_>>())
    }

    /// A pool of as many members as there are weights.
    fn pool(weights: &[u32], policy: PlacementPolicy) -> Pool {
        Pool::new(weights.iter().enumerate().map(|(place, weight)| WeightedPlace { place, weight: *weight }).collect(), policy)
    }

    fn leaves(health: &UpstreamHealth) {
        let refused = ConnectError::Io(std::io::ErrorKind::ConnectionRefused.into());
        health.on_failed(&Target::Tcp("m:1".into()), &refused);
    }

    #[test]
    fn weights_are_kept_and_turns_are_spread() {
        let (all, pool) = (candidates(3), pool(&[5, 1, 1], PlacementPolicy::RoundRobin));
        let turns: Vec<_> = (0..7).map(|_| pool.choose(&all, None, None).unwrap()).collect();
        assert_eq!(turns, [0, 0, 1, 0, 2, 0, 0]);
    }

    #[test]
    fn who_is_away_is_passed_over_while_another_is_there() {
        let (all, both) = (candidates(2), pool(&[1, 1], PlacementPolicy::RoundRobin));
        leaves(&all.all[0].health);
        assert!((0..10).all(|_| both.choose(&all, None, None) == Some(1)));
        leaves(&all.all[1].health);
        let chosen: Vec<_> = (0..4).filter_map(|_| both.choose(&all, None, None)).collect();
        assert!(chosen.contains(&0) && chosen.contains(&1), "none is known to be there: both are tried, {chosen:?}");
        all.all[0].health.on_connected(&Target::Tcp("m:1".into()));
        assert!((0..10).all(|_| both.choose(&all, None, None) == Some(0)));
        assert_eq!(both.choose(&all, Some(0), None), Some(1), "what failed just now is not tried again");
        assert_eq!(pool(&[1], PlacementPolicy::RoundRobin).choose(&all, Some(0), None), None);
    }

    #[test]
    fn a_busy_upstream_gets_fewer() {
        let (all, pool) = (candidates(2), pool(&[2, 1], PlacementPolicy::LeastRequests));
        let mut taken = [0; 2];
        for _ in 0..9 {
            let at = pool.choose(&all, None, None).unwrap();
            all.all[at].begin(None);
            taken[at] += 1;
        }
        assert_eq!(taken, [6, 3], "all are still in flight");
        all.all[0].active.store(0, Relaxed);
        assert!((0..4).all(|_| {
            all.all[0].begin(None);
            pool.choose(&all, None, None) == Some(0)
        }));
    }

    #[test]
    fn an_upstream_of_whom_much_is_asked_gets_less() {
        let (all, pool) = (candidates(3), pool(&[4, 2, 1], PlacementPolicy::LeastWork));
        let place = |work: Option<u64>| {
            let at = pool.choose(&all, None, work).unwrap();
            all.all[at].begin(work);
            at
        };
        // of nothing that is known, the mean of what is: 19.8 of five, so that the second goes where 46.8 / 2 are and not 99.6 / 4
        let works = [(60, 0), (8, 1), (9, 1), (12, 2), (10, 1)].map(|(work, at)| (Some(work), at));
        let works = works.into_iter().chain([(None, 0), (None, 1)]);
        for (work, at) in works.clone() {
            assert_eq!(place(work), at, "{work:?}");
        }
        works.for_each(|(work, at)| all.all[at].end(work));
        assert!(all.all.iter().all(|one| one.asked() == (0.0, 0.0, 0.0)));
        // nothing is known of any: they count as requests
        let mut taken = [0; 3];
        (0..7).for_each(|_| taken[place(None)] += 1);
        assert_eq!(taken, [4, 2, 1]);
    }

    #[test]
    fn a_lever_turns_the_policy() {
        use lapwing_settings::LeverPosition;

        let (all, lever) = (candidates(2), LeverSwitch::default());
        let pool = pool(&[1, 1], PlacementPolicy::RoundRobin).turned_by(&lever);
        all.all[0].active.store(9, Relaxed);
        let turns = || (0..4).filter_map(|_| pool.choose(&all, None, None)).sum::<usize>();
        assert_eq!(turns(), 2, "in turn");
        lever.set(LeverPosition::On);
        assert_eq!(turns(), 4, "the one that is not busy");
        lever.set(LeverPosition::Off);
        assert_eq!(turns(), 2);
    }

    proptest! {
        #[test]
        fn each_gets_its_share_to_within_one_round(weights in prop::collection::vec(1_u32..50, 2..16), rounds in 1_usize..20) {
            let (all, pool) = (candidates(weights.len()), pool(&weights, PlacementPolicy::RoundRobin));
            let whole: u32 = weights.iter().sum();
            let mut taken = vec![0_u32; weights.len()];
            for _ in 0..rounds * whole as usize {
                taken[pool.choose(&all, None, None).unwrap()] += 1;
            }
            for (taken, weight) in taken.iter().zip(&weights) {
                prop_assert_eq!(*taken, weight * u32::try_from(rounds).unwrap());
            }
        }
    }
}
