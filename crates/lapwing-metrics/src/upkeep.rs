//! What a recorder does between the exchanges of two rounds: windows advance, and series whose names gave way go with them.

use lapwing_ledger::Stamp;

use super::labels::Labels;

/// How often the windows advance, in nanoseconds.
const ROTATE_NS: u64 = 2_000_000_000;

/// What is due in a round of recording.
#[derive(Debug)]
pub struct RegistryUpkeep {
    rotated: Stamp,
    /// How many names had given way in the round before.
    evicted: u64,
}

impl RegistryUpkeep {
    /// The first round is at `now`.
    #[must_use]
    pub const fn new(now: Stamp) -> Self {
        Self { rotated: now, evicted: 0 }
    }

    /// Whether names gave way since the round before, so that their series are to be retired.
    #[must_use]
    pub fn names_gave_way(&mut self, labels: &Labels) -> bool {
        let evicted = labels.evicted();
        std::mem::replace(&mut self.evicted, evicted) != evicted
    }

    /// Whether the windows are to advance now: every 2 s.
    #[must_use]
    pub const fn is_rotation_due(&mut self, now: Stamp) -> bool {
        let is_due = now.since(self.rotated) >= ROTATE_NS;
        if is_due {
            self.rotated = now;
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_advance_every_two_seconds() {
        let at = |ms: u64| Stamp::default().plus(ms * 1_000_000);
        let mut upkeep = RegistryUpkeep::new(at(0));
        let due = [0, 1_999, 2_000, 2_001, 3_999, 5_000, 7_000].map(|ms| upkeep.is_rotation_due(at(ms)));
        assert_eq!(due, [false, false, true, false, false, true, true]);
    }

    #[test]
    fn names_that_gave_way_are_told_once() {
        let labels =
            Labels::bounded_by(&crate::Config { max_models: 1, idle_after: "0s".parse().unwrap(), ..Default::default() }, 1);
        let mut upkeep = RegistryUpkeep::new(Stamp::default());
        assert!(!upkeep.names_gave_way(&labels));
        labels.models.intern("a");
        labels.models.intern("b");
        assert_eq!([upkeep.names_gave_way(&labels), upkeep.names_gave_way(&labels)], [labels.evicted() > 0, false]);
    }
}
