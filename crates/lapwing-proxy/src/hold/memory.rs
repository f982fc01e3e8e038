//! The memory of held bodies, which is counted from when it is taken until it is given back: a block at a time, as the upstream takes them.
//!
//! A piece of a body is a part of the buffer that it was read into, whose size nobody knows and which it keeps alive. So pieces are
//! copied, into blocks whose size is known.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use http_body::Frame;

use lapwing_metrics::{Counter, Counters};

/// The first block, in bytes, unless the body is known to end before. Each further block is twice as large.
const FIRST_BLOCK: usize = 4 * 1024;
/// The largest block, in bytes, unless one piece needs more.
const MAX_BLOCK: usize = 256 * 1024;

/// What has come of a held body.
#[derive(Debug)]
pub(crate) struct HeldPieces {
    counters: Arc<Counters>,
    budget: u64,
    blocks: VecDeque<Frame<Bytes>>,
    /// The block that is being filled. It stands behind the others.
    open: Option<Block>,
    length: usize,
}

/// A block of memory that is in the budget until it is dropped.
#[derive(Debug)]
struct Block {
    bytes: Vec<u8>,
    /// How many bytes it has room for, and is in the budget with.
    size: usize,
    counters: Arc<Counters>,
}

impl HeldPieces {
    /// Nothing yet. All held bodies whose memory `counters` count may take `budget` bytes together.
    pub(crate) const fn new(counters: Arc<Counters>, budget: u64) -> Self {
        Self { counters, budget, blocks: VecDeque::new(), open: None, length: 0 }
    }

    /// How many bytes of the body have come.
    pub(crate) const fn length(&self) -> usize {
        self.length
    }

    /// Adds a piece, of which a body is left that has `rest` more bytes, if that is known. Returns whether the budget had room for it; if
    /// not, nothing was added.
    #[must_use]
    pub(crate) fn push(&mut self, piece: &[u8], rest: Option<u64>) -> bool {
        let room = self.open.as_ref().map_or(0, |block| block.size - block.bytes.len());
        let (now, later) = piece.split_at(room.min(piece.len()));
        let next = if later.is_empty() {
            None
        } else if let Some(block) = self.next_block(later.len(), rest) {
            Some(block)
        } else {
            return false;
        };
        if let Some(block) = &mut self.open {
            block.bytes.extend_from_slice(now);
        }
        if let Some(mut block) = next {
            block.bytes.extend_from_slice(later);
            self.close_block();
            self.open = Some(block);
        }
        self.length += piece.len();
        true
    }

    /// A block for `needed` bytes and, if the budget has room, some of those that follow.
    fn next_block(&self, needed: usize, rest: Option<u64>) -> Option<Block> {
        let last = self.open.as_ref().map_or(0, |block| block.size);
        let most = rest.map_or(usize::MAX, |rest| usize::try_from(rest).unwrap_or(usize::MAX).saturating_add(needed));
        let wanted = (2 * last).clamp(FIRST_BLOCK, MAX_BLOCK).max(needed).min(most);
        Block::new(wanted, &self.counters, self.budget).or_else(|| Block::new(needed, &self.counters, self.budget))
    }

    fn close_block(&mut self) {
        if let Some(block) = self.open.take() {
            self.blocks.push_back(Frame::data(Bytes::from_owner(block)));
        }
    }

    /// The frames of the body so far. Each is in the budget until it is dropped.
    pub(crate) fn into_frames(mut self) -> VecDeque<Frame<Bytes>> {
        self.close_block();
        self.blocks
    }
}

impl Block {
    fn new(size: usize, counters: &Arc<Counters>, budget: u64) -> Option<Self> {
        let is_reserved = counters.reserve(Counter::HoldBytes, size as u64, budget);
        is_reserved.then(|| Self { bytes: Vec::with_capacity(size), size, counters: counters.clone() })
    }
}

impl AsRef<[u8]> for Block {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        self.counters.sub(Counter::HoldBytes, self.size as u64);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn in_use(counters: &Counters) -> u64 {
        counters.get(Counter::HoldBytes)
    }

    #[test]
    fn a_body_that_comes_at_once_takes_its_own_size_and_gives_it_back_when_it_is_sent() {
        let counters = Arc::<Counters>::default();
        let mut pieces = HeldPieces::new(counters.clone(), 1000);
        assert!(pieces.push(&[1; 700], Some(0)));
        assert_eq!(in_use(&counters), 700);
        let mut other = HeldPieces::new(counters.clone(), 1000);
        assert!(!other.push(&[2; 301], Some(0)) && other.push(&[2; 300], None), "what is left of the budget");
        assert_eq!((in_use(&counters), other.length()), (1000, 300));
        let mut frames = pieces.into_frames();
        assert_eq!((frames.len(), in_use(&counters)), (1, 1000));
        let sent = frames.pop_front();
        assert_eq!(sent.unwrap().into_data().unwrap(), [1; 700][..]);
        assert_eq!(in_use(&counters), 300);
        drop(other);
        assert_eq!(in_use(&counters), 0);
    }

    #[test]
    fn a_slow_body_takes_what_came_of_it_and_not_what_it_announces() {
        let counters = Arc::<Counters>::default();
        let mut pieces = HeldPieces::new(counters.clone(), u64::MAX);
        assert!(pieces.push(b"x", Some(1 << 30)));
        assert_eq!(in_use(&counters), FIRST_BLOCK as u64);
    }

    proptest! {
        /// Bodies in any pieces, held and sent in any order, within any budget.
        #[test]
        fn the_budget_is_never_passed_and_the_bytes_are_those_that_came(
            budget in 0_u64..40_000, steps in prop::collection::vec((0_usize..4, 0_usize..9_000, any::<u8>()), 1..60),
        ) {
            let counters = Arc::<Counters>::default();
            let held = || (HeldPieces::new(counters.clone(), budget), Vec::new());
            let mut bodies: [(HeldPieces, Vec<u8>); 3] = [held(), held(), held()];
            let mut leaving = Vec::new();
            for (which, length, byte) in steps {
                if let Some((pieces, came)) = bodies.get_mut(which) {
                    let piece = vec![byte; length];
                    if pieces.push(&piece, None) {
                        came.extend(piece);
                    }
                    prop_assert_eq!(pieces.length(), came.len());
                } else {
                    let at = length % bodies.len();
                    let (pieces, came) = std::mem::replace(&mut bodies[at], held());
                    let frames: Vec<Bytes> = pieces.into_frames().into_iter().map(|frame| frame.into_data().unwrap()).collect();
                    prop_assert_eq!(frames.concat(), came);
                    leaving.extend(frames);
                    let sent = leaving.len() / 2;
                    leaving.drain(..sent);
                }
                prop_assert!(in_use(&counters) <= budget);
                let kept: usize = leaving.iter().map(Bytes::len).sum::<usize>() + bodies.iter().map(|(_, came)| came.len()).sum::<usize>();
                prop_assert!(in_use(&counters) >= kept as u64, "all that is kept is counted");
            }
            drop((bodies, leaving));
            prop_assert_eq!(in_use(&counters), 0);
        }
    }
}
