//! A response whose head was read and whose body was not there yet: the upstream's peer, which is us, acknowledges the head at once, so
//! that a server with Nagle's algorithm on sends the body now and not 40 ms later.
//!
//! A small share (`proxy.quick_ack_unhelped`) is left as it is, so that the time saved can be measured.

use std::task::Context;

use super::drive::Drive;
use crate::in_flight::RequestAccount;
use lapwing_ledger::Annotation;
use lapwing_metrics::Counter;

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

/// The head of the response to the request of `account` was read, and there is nothing to read of its body: asks `connection` to acknowledge the head,
/// unless this is one of those that are left, and notes what was done.
pub(crate) fn on_split_write(connection: &mut dyn Drive, account: &RequestAccount, cx: &mut Context<'_>) {
    let context = &account.context;
    let may_ask = context.acknowledges_heads() && connection.can_acknowledge();
    let is_unhelped = may_ask && context.unhelped.draw(context.config.quick_ack_unhelped);
    let is_acknowledged = may_ask && !is_unhelped && connection.acknowledge(cx);
    if is_acknowledged {
        context.counters.bump(Counter::QuickAcksUpstream);
    }
    account.write_ledger(|ledger| {
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
