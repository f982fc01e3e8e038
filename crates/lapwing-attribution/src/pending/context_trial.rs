//! Which trace context an upstream continues that does not continue `traceparent`: found out by sending others.

use std::sync::Arc;

use super::super::span::{IncomingSpan, SpanKind};
use lapwing_ledger::{Ledger, Stamp};
use lapwing_protocol::trace_context::LearntContexts;
use lapwing_settings::{ContextKind, ContextSet};

/// This many requests without spans, and this many traces that the upstream began itself, make it worthwhile to try other contexts.
const MIN_UNJOINED: u32 = 4;
/// The same where spans have joined before.
const MIN_UNJOINED_AGAIN: u32 = 64;
/// What is tried, one after the other. Servers that read B3 mostly read both ways of it.
const TRIED: [ContextSet; 4] = [
    ContextSet::of(&[ContextKind::B3, ContextKind::B3Multi]),
    ContextSet::of(&[ContextKind::Jaeger]),
    ContextSet::of(&[ContextKind::XRay]),
    ContextSet::of(&[ContextKind::Datadog]),
];

/// Finds out which context an upstream continues that does not continue `traceparent`: while requests get no spans and the
/// upstream begins its own traces, the contexts are tried in turn. The first after which a span joins stays.
#[derive(Debug, Default)]
pub(crate) struct ContextTrial {
    /// Where the data plane reads what to send; `None` if nothing is to be found out.
    learnt: Option<Arc<LearntContexts>>,
    /// How many of [`TRIED`] were sent, the current one included; more than all of them: none was continued.
    tried: usize,
    is_found: bool,
    /// Requests since a span joined, and when the first of them closed.
    requests: u32,
    since: Stamp,
    /// Server spans without a parent since then.
    roots: u32,
}

impl ContextTrial {
    /// Notes there what is found out.
    pub(crate) fn learn(&mut self, learnt: Arc<LearntContexts>) {
        self.learnt = Some(learnt);
    }

    /// A request closed.
    pub(crate) fn closed(&mut self, ledger: &Ledger, now: Stamp) {
        if self.learnt.is_none() || !ledger.traced || ledger.window.is_none() || ledger.is_copy {
            return;
        }
        if self.requests == 0 {
            self.since = now;
        }
        self.requests = self.requests.saturating_add(1);
    }

    /// A span came for a request that is merged.
    pub(crate) const fn came(&mut self) {
        (self.requests, self.roots) = (0, 0);
    }

    /// A span joined: below one of these contexts, or below `traceparent` if there is none.
    pub(crate) fn joined(&mut self, by: ContextSet) {
        self.came();
        let Some(learnt) = self.learnt.as_deref() else { return };
        let sent = learnt.get();
        let stay = if self.is_found { sent.or(by) } else { by };
        if stay != sent {
            learnt.set(stay);
        }
        if stay != sent && !stay.is_empty() {
            tracing::info!(contexts = %stay, "the upstream continues these trace contexts: they are sent with every request");
        }
        self.is_found = true;
    }

    /// A span came that belongs to no request so far.
    pub(crate) fn unmatched(&mut self, span: &IncomingSpan, now: Stamp, grace_ns: u64) {
        let Some(learnt) = &self.learnt else { return };
        if span.parent.is_some() || !matches!(span.kind, SpanKind::Server | SpanKind::Consumer) || self.tried > TRIED.len() {
            return;
        }
        self.roots = self.roots.saturating_add(1);
        let least = if self.is_found { MIN_UNJOINED_AGAIN } else { MIN_UNJOINED };
        if self.roots < least || self.requests < least || now.since(self.since) < grace_ns {
            return;
        }
        let next = TRIED.get(self.tried).copied().unwrap_or_default();
        learnt.set(next);
        (self.tried, self.is_found, self.requests, self.roots) = (self.tried + 1, false, 0, 0);
        if next.is_empty() {
            tracing::warn!(
                "the upstream's spans belong to no request: it continues none of the trace contexts that Lapwing can send"
            );
        } else {
            tracing::info!(contexts = %next, "the upstream's spans continue no request: these trace contexts are sent to it too");
        }
    }
}
