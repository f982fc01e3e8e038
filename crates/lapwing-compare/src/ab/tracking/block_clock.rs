//! When blocks end. The schedule depends on time alone, never on the data.

use std::time::Duration;

/// The ends of blocks: the length doubles after every 64 blocks until it is 64 s, so that there are many blocks early and long
/// ones late.
#[derive(Clone, Debug)]
pub(crate) struct BlockClock {
    elapsed: Duration,
    end: Duration,
    length: Duration,
    closed: u64,
}

impl BlockClock {
    /// The default length of the first blocks.
    pub(crate) const FIRST: Duration = Duration::from_secs(1);
    /// The greatest length.
    const LONGEST: Duration = Duration::from_secs(64);
    /// After how many blocks the length doubles.
    const GROW_AFTER: u64 = 64;

    /// A clock at 0, whose first block has `length`, within 1 ms and 64 s.
    pub(crate) fn new(length: Duration) -> Self {
        let length = length.clamp(Duration::from_millis(1), Self::LONGEST);
        Self { elapsed: Duration::ZERO, end: length, length, closed: 0 }
    }

    /// Sets the time, and returns whether a block has ended since the last call.
    pub(crate) fn advance(&mut self, elapsed: Duration) -> bool {
        self.elapsed = elapsed;
        let has_ended = elapsed >= self.end;
        while elapsed >= self.end {
            self.closed += 1;
            if self.closed.is_multiple_of(Self::GROW_AFTER) {
                self.length = (2 * self.length).min(Self::LONGEST);
            }
            self.end += self.length;
        }
        has_ended
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.elapsed
    }
}
