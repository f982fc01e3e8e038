//! Resolves what servers' spans report together, once all spans are there: where a wait ends, which role a model has, and whether
//! a duration without a known time is dropped in favour of a span that reports the same stage.

use smallvec::SmallVec;

use super::super::super::span::IncomingSpan;
use lapwing_ledger::{Phase, Stage, TracedSpan, Unit};
use lapwing_protocol::servers::ServerReport;

/// Follows a walk down a tree of spans.
#[derive(Debug, Default)]
pub(crate) struct Resolver {
    entries: Vec<Entry>,
}

/// A server's span, visited on the walk.
#[derive(Debug)]
struct Entry {
    /// Its index in the list of spans.
    span: usize,
    /// The nearest server's span above it.
    above: Option<usize>,
    depth: u32,
    /// The start of the nearest ancestor with a stage.
    staged_ns: Option<i64>,
    /// Whether its server is behind the upstream, so that it knows nothing about the request as a whole.
    is_called: bool,
    /// Whether it waits for something below it to begin.
    waits: bool,
    /// The end of its wait.
    waits_until_unix_ns: Option<u64>,
    /// The stages that spans below it report.
    below: SmallVec<[(Stage, Option<Phase>); 4]>,
}

impl Resolver {
    /// Visits span `i` of the list. `stage` is its stage from a rule, a name or the server; `above` is the nearest server's span
    /// above it. Returns the nearest server's span for the spans below it.
    pub(crate) fn meet(
        &mut self,
        (i, span): (usize, &IncomingSpan),
        above: Option<usize>,
        depth: u32,
        staged_ns: Option<i64>,
        is_called: bool,
    ) -> Option<usize> {
        if let Some(stage) = span.stage {
            self.named(above, stage, span.phase);
        }
        let Some(server) = &span.server else { return above };
        server.pieces.iter().for_each(|piece| self.named(above, piece.stage, piece.phase));
        if let Some(begins) = server.begins_unix_ns {
            self.begins(above, begins);
        }
        let (waits, waits_until_unix_ns) = (server.waits_from_unix_ns.is_some(), None);
        self.entries.push(Entry {
            span: i,
            above,
            depth,
            staged_ns,
            is_called,
            waits,
            waits_until_unix_ns,
            below: SmallVec::new(),
        });
        Some(self.entries.len() - 1)
    }

    /// Records that a span below reports `stage`.
    fn named(&mut self, mut above: Option<usize>, stage: Stage, phase: Option<Phase>) {
        while let Some(at) = above {
            self.entries[at].below.push((stage, phase));
            above = self.entries[at].above;
        }
    }

    /// Records that a span below begins to work, which ends the wait of the nearest waiting span.
    fn begins(&mut self, mut above: Option<usize>, at_unix_ns: u64) {
        while let Some(at) = above {
            let entry = &mut self.entries[at];
            if entry.waits {
                let until = entry.waits_until_unix_ns.map_or(at_unix_ns, |until| until.min(at_unix_ns));
                entry.waits_until_unix_ns = Some(until);
                return;
            }
            above = entry.above;
        }
    }

    /// Adds the pieces of servers' spans to `placed`; `offset` converts a time to the request's clock. Returns what the servers
    /// report about the request as a whole: the earliest first token, and the sum of the work.
    pub(crate) fn finish(
        self,
        spans: &[IncomingSpan],
        offset: impl Fn(u64) -> i64,
        placed: &mut Vec<TracedSpan>,
    ) -> ServerReport {
        let server = |entry: &Entry| spans.get(entry.span).and_then(|span| span.server.as_deref());
        let mut report = ServerReport::default();
        for entry in &self.entries {
            let Some(found) = server(entry) else { continue };
            let mut place = |name: &str, stage, phase, start_unix_ns, end_unix_ns| {
                let (start_ns, end_ns) = (offset(start_unix_ns), offset(end_unix_ns));
                let start_ns = entry.staged_ns.filter(|at| *at < end_ns).map_or(start_ns, |at| at.max(start_ns));
                if start_ns < end_ns {
                    let depth = entry.depth.saturating_add(1);
                    let note = spans.get(entry.span).map(IncomingSpan::note).unwrap_or_default();
                    placed.push(TracedSpan { name: name.into(), stage: Some(stage), phase, start_ns, end_ns, depth, note });
                }
            };
            if let Some((from, until)) = found.waits_from_unix_ns.zip(entry.waits_until_unix_ns) {
                place("queue", Stage::Queue, None, from, until);
            }
            let role = || entry.above.and_then(|above| server(self.entries.get(above)?)?.role);
            for piece in &found.pieces {
                let is_same = |(stage, phase): &(Stage, Option<Phase>)| {
                    *stage == piece.stage && (phase.is_none() || piece.phase.is_none() || *phase == piece.phase)
                };
                if !(found.is_laid && entry.below.iter().any(is_same)) {
                    let stage = role().filter(|_| piece.takes_role).unwrap_or(piece.stage);
                    place(piece.name, stage, piece.phase, piece.start_unix_ns, piece.end_unix_ns);
                }
            }
            if entry.is_called {
                continue;
            }
            report.first_token_ns = [report.first_token_ns, found.report.first_token_ns].into_iter().flatten().min();
            report.per_output_token_ns = report.per_output_token_ns.or(found.report.per_output_token_ns);
            found.report.work.iter().for_each(|(unit, amount)| add(&mut report, *unit, *amount));
        }
        report
    }
}

/// Adds an amount: a request with several prompts has a span for each.
fn add(report: &mut ServerReport, unit: Unit, amount: u64) {
    match report.work.iter_mut().find(|(known, _)| *known == unit) {
        Some((_, sum)) => *sum = sum.saturating_add(amount),
        None => {
            let _ = report.work.try_push((unit, amount));
        }
    }
}
