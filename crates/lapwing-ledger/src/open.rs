//! An open ledger, which one owner hands over once. Those that share it keep it behind their own lock, with whatever else that lock guards.

use super::account::Account;
use super::clock::Stamp;
use super::merge::{Claim, conserve};
use super::record::Ledger;

/// A ledger until it is handed over. Afterwards there is nothing to write into, and what comes then is counted.
#[derive(Debug)]
pub struct OpenLedger(Option<Box<Ledger>>);

impl OpenLedger {
    /// Opens a ledger.
    #[must_use]
    #[inline]
    pub const fn new(ledger: Box<Ledger>) -> Self {
        Self(Some(ledger))
    }

    /// Writes into the ledger. Once it is handed over, calls `count_late` and returns `None`: the only way to write, so no late event is
    /// lost unseen.
    #[inline]
    pub fn write<T>(&mut self, count_late: impl FnOnce(), write: impl FnOnce(&mut Ledger) -> T) -> Option<T> {
        match &mut self.0 {
            Some(ledger) => Some(write(ledger)),
            None => {
                count_late();
                None
            }
        }
    }

    /// The ledger as it stands; `None` once it is handed over.
    #[must_use]
    #[inline]
    pub fn ledger(&self) -> Option<&Ledger> {
        self.0.as_deref()
    }

    /// Takes the ledger; `None` if it was taken before.
    #[must_use]
    #[inline]
    pub const fn hand_over(&mut self) -> Option<Box<Ledger>> {
        self.0.take()
    }

    /// The time of each stage as far as it is observed, from the start to `now`; `None` once it is handed over.
    #[must_use]
    pub fn observed_until(&self, now: Stamp) -> Option<Account> {
        let ledger = self.ledger()?;
        let claims: smallvec::SmallVec<[Claim; 16]> = ledger.spans.iter().map(|span| Claim::of(*span)).collect();
        Some(conserve(ledger.offset(now), &claims))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ObservedEvent, Stage};

    #[test]
    fn it_is_handed_over_once_and_what_comes_then_is_counted() {
        let started = Stamp::default().plus(1_000);
        let mut open = OpenLedger::new(Box::new(Ledger::open(started, 0)));
        let mut late = 0;
        let mut mark = |open: &mut OpenLedger, from: u64, to: u64| {
            let write = |l: &mut Ledger| l.observe(Stage::Forward, ObservedEvent::Marked, started.plus(from), started.plus(to));
            (open.write(|| late += 1, write), late)
        };
        assert_eq!(mark(&mut open, 10, 30), (Some(()), 0));
        let seen = open.observed_until(started.plus(40)).unwrap();
        assert_eq!((seen.stage_ns(Stage::Forward), seen.stage_ns(Stage::Unattributed)), (20, 20));
        let closed = open.hand_over().unwrap();
        assert_eq!(closed.spans.len(), 1);
        assert_eq!(mark(&mut open, 40, 45), (None, 1));
        assert_eq!(mark(&mut open, 40, 45), (None, 2));
        assert!(open.hand_over().is_none() && open.ledger().is_none() && open.observed_until(started).is_none());
        assert_eq!(closed.spans.len(), 1, "nothing was written into it");
    }
}
