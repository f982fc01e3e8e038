//! Every follower ends exactly once, whatever fails.

use std::collections::{HashMap, HashSet};

use rand::rngs::StdRng;
use rand::seq::IteratorRandom;
use rand::{RngExt, SeedableRng};

use super::*;
use crate::coalesce::{CoalesceBounds, CoalesceRole, Coalescer, FollowerEnd, FollowerId, LeaderEnd, LeaderTicket, WhyAlone};

const BOUNDS: CoalesceBounds = CoalesceBounds { followers: 3, leaders: 4, wait_ns: 100 };

fn follower(role: &CoalesceRole) -> FollowerId {
    let CoalesceRole::Follow { id, .. } = role else { panic!("{role:?} follows nobody") };
    *id
}

fn leader(role: CoalesceRole) -> LeaderTicket {
    let CoalesceRole::Lead(ticket) = role else { panic!("{role:?} does not lead") };
    ticket
}

#[test]
fn those_who_follow_are_answered_with_the_leader() {
    let mut coalescer = Coalescer::new(BOUNDS);
    let lead = leader(coalescer.join(key(1), at(0)));
    let roles = [0, 1, 2].map(|time| coalescer.join(key(1), at(time)));
    assert_eq!(coalescer.join(key(1), at(3)), CoalesceRole::Alone(WhyAlone::Followers));
    assert!(coalescer.leave(follower(&roles[1])) && !coalescer.leave(follower(&roles[1])));
    assert_eq!(coalescer.next_deadline(), Some(at(100)));
    assert_eq!(
        coalescer.finish(lead, LeaderEnd::Shared),
        (FollowerEnd::Answered, vec![follower(&roles[0]), follower(&roles[2])])
    );
    assert_eq!((coalescer.counts(), coalescer.next_deadline()), ((0, 0), None));
    let lead = leader(coalescer.join(key(1), at(4)));
    assert_eq!(coalescer.finish(lead, LeaderEnd::Failed), (FollowerEnd::OnItsOwn, vec![]));
}

#[test]
fn bounds_hold() {
    let mut coalescer = Coalescer::new(BOUNDS);
    let leaders: Vec<_> = (0..4).map(|number| leader(coalescer.join(key(number), at(0)))).collect();
    assert_eq!(coalescer.join(key(9), at(0)), CoalesceRole::Alone(WhyAlone::Leaders));
    let role = coalescer.join(key(0), at(5));
    assert_eq!(coalescer.expire(at(104)), vec![]);
    assert_eq!(coalescer.expire(at(105)), vec![follower(&role)]);
    assert_eq!(coalescer.expire(at(999)), vec![]);
    for lead in leaders {
        assert_eq!(coalescer.finish(lead, LeaderEnd::Shared).1, vec![]);
    }
}

/// What happened to each follower, as somebody outside sees it.
#[derive(Default)]
struct Observed {
    /// Until when each waits.
    waiting: HashMap<FollowerId, Stamp>,
    ended: HashSet<FollowerId>,
}

impl Observed {
    fn end(&mut self, id: FollowerId) -> Stamp {
        assert!(self.ended.insert(id), "{id:?} ended twice");
        self.waiting.remove(&id).expect("only those who wait end")
    }
}

/// Requests come, leaders answer or fail, clients leave and time passes, at random.
#[test]
fn every_follower_ends_exactly_once() {
    for seed in 0..300 {
        let mut rng = StdRng::seed_from_u64(seed);
        let wait_ns = rng.random_range(1..400);
        let mut coalescer = Coalescer::new(CoalesceBounds { wait_ns, ..BOUNDS });
        let (mut observed, mut leaders, mut now) = (Observed::default(), Vec::new(), 0);
        for _ in 0..400 {
            now += rng.random_range(0..20);
            let asked = key(rng.random_range(0..6));
            match rng.random_range(0..10) {
                0..5 => match coalescer.join(asked, at(now)) {
                    CoalesceRole::Lead(ticket) => {
                        assert!(leaders.iter().all(|other: &LeaderTicket| other.key() != ticket.key()), "two lead");
                        leaders.push(ticket);
                    }
                    CoalesceRole::Follow { id, until } => {
                        assert!(until == at(now + wait_ns) && leaders.iter().any(|ticket| *ticket.key() == asked));
                        observed.waiting.insert(id, until);
                    }
                    CoalesceRole::Alone(_) => {}
                },
                5..8 if !leaders.is_empty() => {
                    let ticket = leaders.swap_remove(rng.random_range(0..leaders.len()));
                    let end = if rng.random() { LeaderEnd::Shared } else { LeaderEnd::Failed };
                    coalescer.finish(ticket, end).1.into_iter().for_each(|id| {
                        observed.end(id);
                    });
                }
                8 => {
                    if let Some(id) = observed.waiting.keys().copied().choose(&mut rng) {
                        assert!(coalescer.leave(id));
                        observed.end(id);
                        assert!(!coalescer.leave(id));
                    }
                }
                _ => {
                    let expired = coalescer.expire(at(now));
                    expired.into_iter().for_each(|id| assert!(observed.end(id) <= at(now), "too early"));
                    assert!(observed.waiting.values().all(|until| *until > at(now)), "one waits too long");
                }
            }
            assert_eq!(coalescer.counts(), (leaders.len(), observed.waiting.len()));
            assert_eq!(coalescer.next_deadline(), observed.waiting.values().copied().min());
        }
        for ticket in leaders {
            coalescer.finish(ticket, LeaderEnd::Failed).1.into_iter().for_each(|id| {
                observed.end(id);
            });
        }
        assert!(observed.waiting.is_empty(), "{} wait for ever", observed.waiting.len());
        assert_eq!(coalescer.counts(), (0, 0));
        assert!(observed.ended.len() > 20);
    }
}
