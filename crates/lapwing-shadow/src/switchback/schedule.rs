//! When a lever is on: a fair coin for each block, except that the second one is not like the first, and that another kind follows four alike. So
//! neither side starves, and in fourteen of fifteen blocks a coin decides. In pairs of one block each it would be in one of two: the fewer coins, the
//! longer until anything can be proved.

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

/// How many blocks alike may follow one another.
const MAX_ALIKE: u32 = 4;

/// What the next block is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockDraw {
    pub(crate) is_on: bool,
    /// Whether the coin decided.
    pub(crate) is_coin: bool,
}

/// Draws blocks.
#[derive(Debug)]
pub(crate) struct BlockSchedule {
    coins: StdRng,
    last: Option<bool>,
    alike: u32,
    drawn: u64,
}

impl BlockSchedule {
    /// Draws the blocks of `seed`.
    pub(crate) fn new(seed: u64) -> Self {
        Self { coins: StdRng::seed_from_u64(seed), last: None, alike: 0, drawn: 0 }
    }

    pub(crate) fn next(&mut self) -> BlockDraw {
        let is_coin = self.drawn != 1 && self.alike < MAX_ALIKE;
        self.drawn += 1;
        let is_on = if is_coin { self.coins.random() } else { self.last != Some(true) };
        self.alike = if self.last == Some(is_on) { self.alike + 1 } else { 1 };
        self.last = Some(is_on);
        BlockDraw { is_on, is_coin }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn coins_are_fair_and_neither_side_starves() {
        let mut schedule = BlockSchedule::new(7);
        let blocks: Vec<_> = (0..7_000).map(|_| schedule.next()).collect();
        assert!(blocks[0].is_coin && !blocks[1].is_coin && blocks[0].is_on != blocks[1].is_on);
        for five in blocks[1..].windows(5) {
            let on = five.iter().filter(|block| block.is_on).count();
            assert!((1..=4).contains(&on));
            assert!(five[4].is_coin || five[..4].iter().all(|block| block.is_on != five[4].is_on));
        }
        let coins: Vec<_> = blocks.iter().filter(|block| block.is_coin).collect();
        let on = coins.iter().filter(|block| block.is_on).count();
        assert!(coins.len() > 6_400 && on.abs_diff(coins.len() / 2) < 200, "{on} of {}", coins.len());
        let mut again = BlockSchedule::new(7);
        assert!(blocks.iter().all(|block| *block == again.next()));
    }
}
