//! Leaves a target alone for a while when it fails repeatedly.

use std::time::Duration;

use parking_lot::Mutex;

use lapwing_ledger::Stamp;

/// How many failures in a row open the circuit.
const FAILURES: u32 = 5;
/// How long it stays open; then one copy tries the target.
const OPEN_NS: u64 = 10_000_000_000;

/// A circuit breaker.
#[derive(Debug, Default)]
pub(crate) struct Breaker(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// In a row.
    failures: u32,
    /// Until when nothing is sent.
    open_until: Option<Stamp>,
}

impl Breaker {
    /// Whether a copy may be sent `now`. After a pause the first caller may, and the others wait for what becomes of it.
    pub(crate) fn allows(&self, now: Stamp) -> bool {
        let state = &mut *self.0.lock();
        match state.open_until {
            Some(until) if now < until => false,
            Some(_) => {
                state.open_until = Some(now.plus(OPEN_NS));
                true
            }
            None => true,
        }
    }

    /// Whether nothing would be sent `now`.
    pub(crate) fn is_open(&self, now: Stamp) -> bool {
        self.0.lock().open_until.is_some_and(|until| now < until)
    }

    /// A copy was answered, or was not. Returns for how long nothing is sent if the circuit opens now.
    pub(crate) fn on_result(&self, is_answered: bool, now: Stamp) -> Option<Duration> {
        let state = &mut *self.0.lock();
        if is_answered {
            *state = State::default();
            return None;
        }
        state.failures = state.failures.saturating_add(1);
        if state.failures < FAILURES {
            return None;
        }
        let opens = state.failures == FAILURES;
        state.open_until = Some(now.plus(OPEN_NS));
        opens.then_some(Duration::from_nanos(OPEN_NS))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_opens_after_failures_in_a_row_and_one_copy_tries_again() {
        let (breaker, now) = (Breaker::default(), Stamp::now());
        for n in 1..FAILURES {
            assert!(breaker.allows(now) && breaker.on_result(false, now).is_none(), "{n}");
        }
        breaker.on_result(true, now);
        for n in 1..=FAILURES {
            assert_eq!(breaker.on_result(false, now).is_some(), n == FAILURES);
        }
        assert!(!breaker.allows(now.plus(OPEN_NS - 1)) && breaker.is_open(now.plus(OPEN_NS - 1)));
        let later = now.plus(OPEN_NS);
        assert!(!breaker.is_open(later), "one may try");
        assert!(breaker.allows(later) && !breaker.allows(later), "one copy only");
        breaker.on_result(true, later);
        assert!(breaker.allows(later) && !breaker.is_open(later));
    }
}
