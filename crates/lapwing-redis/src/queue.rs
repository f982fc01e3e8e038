//! What waits to be written, bounded in number and bytes. What does not fit is dropped at once: nobody waits for room.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;

/// How much may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueBounds {
    /// How many values.
    pub entries: usize,
    /// The bytes that they have.
    pub bytes: u64,
}

/// A value and for how long it is kept; `None` if it is not worth it any more.
type MakeValue = Box<dyn FnOnce() -> Option<(Bytes, Duration)> + Send>;

/// A value that is written when its turn comes.
pub struct RedisWrite {
    /// Its key.
    pub key: Vec<u8>,
    /// About how many bytes it has: what it takes while it waits.
    pub bytes: u64,
    /// Makes it, in the background, and says for how long it is kept.
    pub make: MakeValue,
}

impl fmt::Debug for RedisWrite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisWrite").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

#[derive(Debug, Default)]
struct Waiting {
    writes: VecDeque<RedisWrite>,
    bytes: u64,
    is_paused: bool,
}

/// Values that wait.
#[derive(Debug)]
pub(crate) struct WriteQueue {
    bounds: QueueBounds,
    waiting: Mutex<Waiting>,
}

impl WriteQueue {
    pub(crate) fn new(bounds: QueueBounds) -> Self {
        Self { bounds, waiting: Mutex::default() }
    }

    /// Adds one; `false` if there is no room for it.
    pub(crate) fn push(&self, write: RedisWrite) -> bool {
        let mut waiting = self.waiting.lock();
        let bytes = waiting.bytes.saturating_add(write.bytes);
        if waiting.is_paused || waiting.writes.len() >= self.bounds.entries || bytes > self.bounds.bytes {
            return false;
        }
        waiting.bytes = bytes;
        waiting.writes.push_back(write);
        true
    }

    /// The next ones: at most so many, of so many bytes, and at least one if there is any.
    pub(crate) fn next(&self, entries: usize, bytes: u64) -> Vec<RedisWrite> {
        let mut waiting = self.waiting.lock();
        let (mut taken, mut taken_bytes) = (Vec::new(), 0_u64);
        while taken.len() < entries {
            let fits = |write: &RedisWrite| taken.is_empty() || taken_bytes.saturating_add(write.bytes) <= bytes;
            if !waiting.writes.front().is_some_and(fits) {
                break;
            }
            let Some(write) = waiting.writes.pop_front() else { break };
            taken_bytes = taken_bytes.saturating_add(write.bytes);
            taken.push(write);
        }
        waiting.bytes = waiting.bytes.saturating_sub(taken_bytes);
        taken
    }

    /// Drops all and takes none until [`Self::resume`]; returns how many it dropped.
    pub(crate) fn pause(&self) -> usize {
        let mut waiting = self.waiting.lock();
        waiting.is_paused = true;
        waiting.bytes = 0;
        std::mem::take(&mut waiting.writes).len()
    }

    /// Takes them again.
    pub(crate) fn resume(&self) {
        self.waiting.lock().is_paused = false;
    }

    /// How many wait, and their bytes.
    pub(crate) fn size(&self) -> (usize, u64) {
        let waiting = self.waiting.lock();
        (waiting.writes.len(), waiting.bytes)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn write(bytes: u64) -> RedisWrite {
        RedisWrite { key: vec![0], bytes, make: Box::new(|| None) }
    }

    #[test]
    fn what_does_not_fit_is_dropped_and_room_comes_back() {
        let queue = WriteQueue::new(QueueBounds { entries: 3, bytes: 100 });
        assert!(queue.push(write(60)) && !queue.push(write(41)) && queue.push(write(40)));
        assert!(queue.push(write(0)) && !queue.push(write(0)), "three are the most");
        assert_eq!(queue.size(), (3, 100));
        assert_eq!(queue.next(9, 10).len(), 1, "one at least, however large");
        assert_eq!(queue.next(9, 40).len(), 2);
        assert!(queue.next(9, 40).is_empty() && queue.size() == (0, 0));
        assert!(queue.push(write(1)));
        assert_eq!(queue.pause(), 1);
        assert!(!queue.push(write(1)));
        queue.resume();
        assert!(queue.push(write(1)));
    }

    proptest! {
        #[test]
        fn it_never_holds_more_than_its_bounds(steps in prop::collection::vec((any::<bool>(), 0_u64..60, 0_usize..4), 0..60)) {
            let queue = WriteQueue::new(QueueBounds { entries: 5, bytes: 100 });
            let mut held = Vec::new();
            for (adds, bytes, entries) in steps {
                if adds {
                    if queue.push(write(bytes)) {
                        held.push(bytes);
                    }
                } else {
                    let taken = queue.next(entries, bytes).len();
                    prop_assert!(taken <= entries);
                    held.drain(..taken);
                }
                prop_assert_eq!(queue.size(), (held.len(), held.iter().sum::<u64>()));
                prop_assert!(held.len() <= 5 && held.iter().sum::<u64>() <= 100);
            }
        }
    }
}
