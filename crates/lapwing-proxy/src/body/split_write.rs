//! A response whose head was read and whose body was not there yet: the upstream's peer, which is us, acknowledges the head at once, so
//! that a server with Nagle's algorithm on sends the body now and not 40 ms later.
//!
//! A small share (`proxy.quick_ack_unhelped`) is left as it is, so that the time saved can be measured.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::Context;

use super::upstream::Drive;
use crate::exchange::InFlight;
use lapwing_ledger::Annotation;
use lapwing_metrics::Counter;
use lapwing_settings::Share;

/// The first piece of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FirstPiece {
    /// It was not asked for.
    Unread,
    /// It was asked for, and was not there.
    Awaited,
    /// It was read, or nobody has to know when.
    Read,
}

/// 2^64 over the golden ratio: its multiples modulo 2^64 lie as evenly as any, and in step with nothing.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// Draws a share of what comes, evenly and without chance: of n events it draws n times the share, give or take a few.
#[derive(Debug, Default)]
pub(crate) struct EvenDraw(AtomicU64);

impl EvenDraw {
    /// Returns whether the next event is among `share` of all.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share times 2^64, which saturates")]
    pub(crate) fn draw(&self, share: Share) -> bool {
        let turn = self.0.fetch_add(1, Relaxed).wrapping_add(1);
        turn.wrapping_mul(STEP) < (share.get() * 2_f64.powi(64)) as u64
    }
}

/// The head of the response to `in_flight` was read, and there is nothing to read of its body: asks `connection` to acknowledge the head,
/// unless this is one of those that are left, and notes what was done.
pub(crate) fn on_split_write(connection: &mut dyn Drive, in_flight: &InFlight, cx: &mut Context<'_>) {
    let context = &in_flight.context;
    let may_ask = context.config.quick_ack.is_on() && connection.can_acknowledge();
    let is_unhelped = may_ask && context.unhelped.draw(context.config.quick_ack_unhelped);
    let is_acknowledged = may_ask && !is_unhelped && connection.acknowledge(cx);
    if is_acknowledged {
        context.counters.bump(Counter::QuickAcksUpstream);
    }
    in_flight.with(|ledger| {
        let annotations = &mut ledger.circumstances.annotations;
        annotations.add(Annotation::SplitWrite);
        if is_acknowledged {
            annotations.add(Annotation::QuickAck);
        }
        if is_unhelped {
            annotations.add(Annotation::Unhelped);
        }
    });
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
