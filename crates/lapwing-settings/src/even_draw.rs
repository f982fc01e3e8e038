//! Draws a share of events evenly and without chance.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::Share;

/// 2^64 over the golden ratio: its multiples modulo 2^64 lie as evenly as any, and in step with nothing.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// Draws a share of what comes, evenly and without chance: of n events it draws n times the share, give or take a few.
#[derive(Debug, Default)]
pub struct EvenDraw(AtomicU64);

impl EvenDraw {
    /// Returns whether the next event is among `share` of all.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share times 2^64, which saturates")]
    pub fn draw(&self, share: Share) -> bool {
        let turn = self.0.fetch_add(1, Relaxed).wrapping_add(1);
        turn.wrapping_mul(STEP) < (share.get() * 2_f64.powi(64)) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_even_draw_takes_its_share_and_in_step_with_nothing() {
        for (share, every) in [("0", 1), ("1%", 1), ("1%", 7), ("1%", 100), ("25%", 4), ("1", 1)] {
            let (draw, share): (_, Share) = (EvenDraw::default(), share.parse().unwrap());
            // of events that come in turns, each kind gets its share
            let drawn = (0..100_000).filter(|at| draw.draw(share) && at % every == 0).count();
            let expected = share.get() * 100_000.0 / f64::from(every);
            assert!((drawn as f64 - expected).abs() <= 0.1 * expected + 2.0, "{share} of every {every}: {drawn}");
        }
    }
}
