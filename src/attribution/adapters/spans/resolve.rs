//! What servers' spans say together, once all are there: where a wait ends, which role a model has, and whether a duration
//! without a place of its own gives way to a span that says the same.

use smallvec::SmallVec;

use super::super::super::span::IncomingSpan;
use crate::ledger::{Phase, Stage, TracedSpan, Unit};
use crate::protocol::servers::ServerReport;

/// Follows the walk down a tree of spans.
#[derive(Debug, Default)]
pub(in crate::attribution) struct Resolver {
    entries: Vec<Entry>,
}

/// A server's span, met on the walk.
#[derive(Debug)]
struct Entry {
    /// Its place in the list of spans.
    span: usize,
    /// The nearest server's span above it.
    above: Option<usize>,
    depth: u32,
    /// When the nearest ancestor with a stage started.
    staged_ns: Option<i64>,
    /// Whether it waits for something below it to begin.
    waits: bool,
    /// Where its wait ends.
    waits_until_unix_ns: Option<u64>,
    /// What spans below it say themselves.
    below: SmallVec<[(Stage, Option<Phase>); 4]>,
}

impl Resolver {
    /// Meets span `i` of the list, which has `stage` by a rule, a name or a server's word; `above` is the nearest server's
    /// span above it. Gives the nearest one for spans below it.
    pub(in crate::attribution) fn meet(
        &mut self,
        (i, span): (usize, &IncomingSpan),
        above: Option<usize>,
        depth: u32,
        staged_ns: Option<i64>,
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
        self.entries.push(Entry { span: i, above, depth, staged_ns, waits, waits_until_unix_ns, below: SmallVec::new() });
        Some(self.entries.len() - 1)
    }

    /// Something below says that it is `stage`.
    fn named(&mut self, mut above: Option<usize>, stage: Stage, phase: Option<Phase>) {
        while let Some(at) = above {
            self.entries[at].below.push((stage, phase));
            above = self.entries[at].above;
        }
    }

    /// Something below begins to work: the nearest that waits waits no more.
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

    /// Adds the pieces of servers' spans to `placed`; `offset` puts a time on the request's clock. Gives what the servers
    /// say of the request as a whole: the topmost one's name, the first token's earliest time, all work together.
    pub(in crate::attribution) fn finish(
        self,
        spans: &[IncomingSpan],
        offset: impl Fn(u64) -> i64,
        placed: &mut Vec<TracedSpan>,
    ) -> ServerReport {
        let server = |entry: &Entry| spans.get(entry.span).and_then(|span| span.server.as_deref());
        let mut report = ServerReport::default();
        let mut topmost = u32::MAX;
        for entry in &self.entries {
            let Some(found) = server(entry) else { continue };
            let mut place = |name: &str, stage, phase, start_unix_ns, end_unix_ns| {
                let (start_ns, end_ns) = (offset(start_unix_ns), offset(end_unix_ns));
                let start_ns = entry.staged_ns.filter(|at| *at < end_ns).map_or(start_ns, |at| at.max(start_ns));
                if start_ns < end_ns {
                    let depth = entry.depth.saturating_add(1);
                    placed.push(TracedSpan { name: name.into(), stage: Some(stage), phase, start_ns, end_ns, depth });
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
            if entry.depth < topmost {
                (topmost, report.server) = (entry.depth, found.report.server);
            }
            report.first_token_ns = [report.first_token_ns, found.report.first_token_ns].into_iter().flatten().min();
            report.per_output_token_ns = report.per_output_token_ns.or(found.report.per_output_token_ns);
            found.report.work.iter().for_each(|(unit, amount)| add(&mut report, *unit, *amount));
        }
        report
    }
}

/// A request with several prompts has a span for each.
fn add(report: &mut ServerReport, unit: Unit, amount: u64) {
    match report.work.iter_mut().find(|(known, _)| *known == unit) {
        Some((_, sum)) => *sum = sum.saturating_add(amount),
        None => {
            let _ = report.work.try_push((unit, amount));
        }
    }
}
