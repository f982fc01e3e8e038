//! The account of one request: its ledger while it is open. Once that is handed over there is nothing to write to, and what comes then is
//! counted.

use std::fmt::Debug;

use lapwing_ledger::Ledger;
use lapwing_metrics::{Counter, Counters};

/// Called once when a request's ledger closes, before it is handed over: its work is known, and its answer has left. It must be quick,
/// must not wait, and must not touch the request in flight, whose lock is held.
pub(crate) trait OnClose: Debug + Send {
    /// The ledger closes.
    fn on_close(self: Box<Self>, ledger: &mut Ledger);
}

/// A request's ledger, or that it has been handed over.
#[derive(Debug)]
pub(crate) enum Account {
    Open(Box<Ledger>),
    HandedOver,
}

impl Account {
    /// Writes into the ledger. A late event is counted, and `None` returned: the only way to write, so none is lost unseen.
    #[inline]
    pub(crate) fn write<T>(&mut self, counters: &Counters, write: impl FnOnce(&mut Ledger) -> T) -> Option<T> {
        match self {
            Self::Open(ledger) => Some(write(ledger)),
            Self::HandedOver => {
                counters.bump(Counter::LateEvents);
                None
            }
        }
    }

    /// The ledger as it stands, while it is open.
    #[inline]
    pub(crate) fn ledger(&self) -> Option<&Ledger> {
        match self {
            Self::Open(ledger) => Some(ledger),
            Self::HandedOver => None,
        }
    }

    /// Takes the ledger; `None` if it was taken before.
    pub(crate) fn hand_over(&mut self) -> Option<Box<Ledger>> {
        match std::mem::replace(self, Self::HandedOver) {
            Self::Open(ledger) => Some(ledger),
            Self::HandedOver => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lapwing_ledger::{Outcome, Stamp};

    #[test]
    fn what_comes_after_the_hand_over_is_counted_and_written_nowhere() {
        let counters = Counters::default();
        let mut account = Account::Open(Box::new(Ledger::open(Stamp::now(), 0)));
        assert_eq!(account.write(&counters, |ledger| ledger.status = 200), Some(()));
        let ledger = account.hand_over().unwrap();
        assert_eq!((ledger.status, counters.get(Counter::LateEvents)), (200, 0));
        assert!(account.hand_over().is_none() && account.ledger().is_none(), "there is one ledger");
        for late in 1..=2 {
            assert_eq!(account.write(&counters, |ledger| ledger.outcome = Outcome::Broken), None);
            assert_eq!(counters.get(Counter::LateEvents), late);
        }
    }
}
