//! Places received spans: which lie below Lapwing's own span, how deep, when, and which stage each has. Units: nanoseconds from
//! the request's start.

use lapwing_ledger::{SpanId, Stage, TracedSpan};
use lapwing_protocol::servers::ServerReport;

use super::adapters::spans::Resolver;
use super::span::{IncomingSpan, SpanKind};

/// What a span inherits from its ancestors.
#[derive(Clone, Copy)]
struct Ancestors {
    /// The parent's index in the list; `None` below Lapwing's own span, or if the parent never arrived.
    parent: Option<usize>,
    depth: u32,
    /// The start of the nearest ancestor with a stage; `None` if no ancestor has one.
    staged_ns: Option<i64>,
    /// Whether that ancestor is a call that is downstream only because nothing says more of it.
    is_open_call: bool,
    /// Whether the span is another service's, behind the upstream.
    is_called: bool,
    /// The nearest model server's span, by the resolver's numbering.
    server: Option<usize>,
}

/// Places `spans` on the clock that reads zero at `anchor_unix_ns`.
///
/// Each span that descends from `own` is placed, and so is each tree of spans whose topmost parent is not in the list, as if it
/// were a child of `own`; spans in a cycle are not placed.
///
/// A span keeps the stage that it came with. A `CLIENT` or `PRODUCER` without a stage, below no span that has one but calls, is
/// hydration if it calls a store, else downstream. Another service's server is a `SERVER` or `CONSUMER` whose parent is a `CLIENT`
/// or `PRODUCER` of another resource. Below such a downstream call its spans are placed too: what it reports is the inner claim,
/// and the rest of the call remains downstream. Below any other call it is left out with everything below it, because the caller
/// has said what that time is. A span that starts before the nearest ancestor with a stage is moved to that ancestor's start, so
/// that it stays the inner one. The pieces of model servers' spans follow at the end. Also returns what those servers report about
/// the request as a whole, unless they are behind the upstream, and which server the upstream is if its span continues `own`.
#[must_use]
pub(crate) fn below(own: SpanId, anchor_unix_ns: u64, spans: &[IncomingSpan]) -> (Vec<TracedSpan>, ServerReport) {
    let mut resolver = Resolver::default();
    let mut placed = Vec::with_capacity(spans.len());
    let mut is_seen = vec![false; spans.len()];
    let mut by_parent: Vec<usize> = (0..spans.len()).collect();
    by_parent.sort_by_key(|i| spans[*i].parent);
    let children = |id: SpanId| {
        let parent_of = |i: &usize| spans[*i].parent;
        let from = by_parent.partition_point(|i| parent_of(i) < Some(id));
        let count = by_parent[from..].iter().take_while(|i| parent_of(i) == Some(id)).count();
        by_parent[from..from + count].iter().copied()
    };

    let mut ids: Vec<SpanId> = spans.iter().map(|s| s.span).collect();
    ids.sort_unstable();
    let is_top = |s: &IncomingSpan| s.parent.is_none_or(|p| p == own || ids.binary_search(&p).is_err());
    let top = Ancestors { parent: None, depth: 1, staged_ns: None, is_open_call: false, is_called: false, server: None };
    let mut todo: Vec<(usize, Ancestors)> =
        spans.iter().enumerate().rev().filter(|(_, s)| is_top(s)).map(|(i, _)| (i, top)).collect();

    while let Some((i, mut above)) = todo.pop() {
        let span = &spans[i];
        let is_entered = above.parent.is_some_and(|p| is_other_service(&spans[p], span));
        if std::mem::replace(&mut is_seen[i], true) || is_entered && !above.is_open_call {
            continue;
        }
        if is_entered {
            (above.is_called, above.server) = (true, None);
        }
        let is_unsaid = above.staged_ns.is_none() || above.is_open_call;
        let stage = span.stage.or_else(|| if is_unsaid { derived(span) } else { None });
        let (own_start_ns, end_ns) = (offset(span.start_unix_ns, anchor_unix_ns), offset(span.end_unix_ns, anchor_unix_ns));
        let start_ns = above.staged_ns.filter(|at| *at < end_ns).map_or(own_start_ns, |at| at.max(own_start_ns));
        let server = resolver.meet((i, span), above.server, above.depth, above.staged_ns, above.is_called);
        let (name, phase, depth, note) = (span.name.clone(), span.phase, above.depth, span.note());
        placed.push(TracedSpan { name, stage, phase, start_ns, end_ns, depth, note });
        let has_stages = stage.is_some() || span.server.as_ref().is_some_and(|server| !server.pieces.is_empty());
        let staged_ns = if has_stages { Some(start_ns) } else { above.staged_ns };
        let is_open_call = if has_stages { span.stage.is_none() && stage == Some(Stage::Downstream) } else { above.is_open_call };
        let depth = above.depth.saturating_add(1);
        let under = Ancestors { parent: Some(i), depth, staged_ns, is_open_call, is_called: above.is_called, server };
        todo.extend(children(span.span).rev().map(|child| (child, under)));
    }
    let mut report = resolver.finish(spans, |at| offset(at, anchor_unix_ns), &mut placed);
    // a server whose span lies further below is behind the upstream
    let mut topmost = spans.iter().filter(|span| span.parent == Some(own));
    report.server = topmost.find_map(|span| span.server.as_ref()?.report.server);
    (placed, report)
}

fn is_other_service(parent: &IncomingSpan, span: &IncomingSpan) -> bool {
    let calls = matches!(parent.kind, SpanKind::Client | SpanKind::Producer);
    let serves = matches!(span.kind, SpanKind::Server | SpanKind::Consumer);
    calls && serves && parent.service != span.service
}

/// The stage of a call that has none.
fn derived(span: &IncomingSpan) -> Option<Stage> {
    let calls = matches!(span.kind, SpanKind::Client | SpanKind::Producer);
    calls.then_some(if span.is_store_call { Stage::Hydration } else { Stage::Downstream })
}

/// A time by the wall clock on the clock that reads zero at `anchor_unix_ns`.
pub(crate) fn offset(at_unix_ns: u64, anchor_unix_ns: u64) -> i64 {
    let ns = i128::from(at_unix_ns) - i128::from(anchor_unix_ns);
    i64::try_from(ns).unwrap_or(if ns < 0 { i64::MIN } else { i64::MAX })
}

#[cfg(test)]
mod tests;
