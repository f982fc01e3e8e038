//! An open ledger that several owners write into until one of them closes it.

use parking_lot::Mutex;

use super::account::Account;
use super::claim::{Claim, conserve};
use super::clock::Stamp;
use super::record::Ledger;

/// A ledger until it is handed over. The first to close it gets it; later writers get none, and see that.
#[derive(Debug)]
pub struct OpenLedger(Mutex<Option<Box<Ledger>>>);

impl OpenLedger {
    /// Opens a ledger.
    #[must_use]
    pub const fn new(ledger: Box<Ledger>) -> Self {
        Self(Mutex::new(Some(ledger)))
    }

    /// Reads or writes the ledger; `None` once it is closed.
    pub fn with<T>(&self, write: impl FnOnce(&mut Ledger) -> T) -> Option<T> {
        self.0.lock().as_mut().map(|ledger| write(ledger))
    }

    /// Closes the ledger at `now`: `finish` writes what is known only at the end. `None` if it is closed already.
    pub fn close(&self, now: Stamp, finish: impl FnOnce(&mut Ledger)) -> Option<Box<Ledger>> {
        let mut ledger = self.0.lock().take()?;
        finish(&mut ledger);
        ledger.total_ns = now.since(ledger.started);
        Some(ledger)
    }

    /// The time of each stage as far as it is observed, from the start to `now`; `None` once it is closed.
    #[must_use]
    pub fn observed_until(&self, now: Stamp) -> Option<Account> {
        self.with(|ledger| {
            let claims: smallvec::SmallVec<[Claim; 16]> = ledger.spans.iter().map(|span| Claim::of(*span)).collect();
            conserve(ledger.offset(now), &claims)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ObservedEvent, Stage};

    #[test]
    fn it_is_handed_over_once_and_then_there_is_nothing_to_write_into() {
        let started = Stamp::default().plus(1_000);
        let open = OpenLedger::new(Box::new(Ledger::open(started, 0)));
        let mark = |from: u64, to: u64| {
            open.with(|l| l.observe(Stage::Forward, ObservedEvent::Marked, started.plus(from), started.plus(to)))
        };
        assert_eq!(mark(10, 30), Some(()));
        let seen = open.observed_until(started.plus(40)).unwrap();
        assert_eq!((seen.stage_ns(Stage::Forward), seen.stage_ns(Stage::Unattributed)), (20, 20));
        let closed = open.close(started.plus(50), |ledger| ledger.status = 200).unwrap();
        assert_eq!((closed.total_ns, closed.status, closed.spans.len()), (50, 200, 1));
        assert_eq!(mark(40, 45), None);
        assert!(open.close(started.plus(60), |_| ()).is_none() && open.observed_until(started).is_none());
    }
}
