//! The intervals in which a response waited for a slow client, kept apart up to a bound.

use smallvec::SmallVec;

use lapwing_ledger::Stamp;

/// How many waits are kept apart.
const MAX_WAITS: usize = 8;

/// Disjoint waits, oldest first. Past the bound, the two neighbours with the shortest gap between them are joined: the
/// error is that gap.
#[derive(Debug, Default)]
pub(crate) struct ClientWaits(SmallVec<[(Stamp, Stamp); MAX_WAITS]>);

impl ClientWaits {
    /// Adds a wait that is later than all others.
    pub(crate) fn push(&mut self, from: Stamp, to: Stamp) {
        if self.0.len() == MAX_WAITS {
            let closest = (1..MAX_WAITS).min_by_key(|i| self.0[*i].0.since(self.0[i - 1].1));
            if let Some(i) = closest {
                self.0[i - 1].1 = self.0[i].1;
                self.0.remove(i);
            }
        }
        self.0.push((from, to));
    }

    /// The waits, oldest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Stamp, Stamp)> + '_ {
        self.0.iter().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ns: u64) -> Stamp {
        Stamp::from_ns(ns).unwrap()
    }

    #[test]
    fn past_the_bound_the_closest_neighbours_become_one() {
        let mut waits = ClientWaits::default();
        for i in 1..=MAX_WAITS as u64 {
            waits.push(at(i * 100), at(i * 100 + if i == 3 { 99 } else { 10 }));
        }
        waits.push(at(2_000), at(2_010));
        let kept: Vec<_> = waits.iter().collect();
        assert_eq!(kept.len(), MAX_WAITS);
        assert!(kept.contains(&(at(300), at(410))));
        assert!(kept.windows(2).all(|w| w[0].1 < w[1].0));
    }
}
