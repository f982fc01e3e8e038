//! The merge: turns the proxy's observations, the response's reports and the received spans into one account that sums to the
//! total. Units: nanoseconds from the request's start.
//!
//! The law of time: every instant of a request has exactly one owner. Where claims overlap or nest, the innermost claim owns the
//! instant: the one that started last, then the deeper one, then the one that ends first. An observation of the proxy outranks
//! every other claim on the same instant; the window as a whole (`upstream`) is no observation in this sense, because nobody divided
//! it. Time that nothing claims is `unattributed`.
//!
//! What each source may claim:
//! - observations of the proxy are used unchanged and outrank everything;
//! - a traced span claims its part of the upstream window, if it has a stage that no in-band report names;
//! - in-band reports have no start. They are placed end to end, in the order given, ending at the response head, into the time
//!   of the window that no observation and no traced span owns, so that they take no other claim's time; one report may thus become
//!   several claims. Reports in trailers and bodies end at the head if all reports fit before it, else at the window's end. If
//!   several places of the response report the same stage, the body wins over the trailer, and the trailer over the head. If one
//!   place reports a stage twice, the durations are added;
//! - in a streamed generated answer decode ends at the window's end, and everything before it at the first content;
//! - an outbound call is an observation inside the window. In-band reports of its stage say what includes it, so they claim only what
//!   they have beyond it;
//! - what a handler marked itself divides the window as a report does: the rest of it is `unattributed`;
//! - if nothing was reported, the window is the stage `upstream`, undivided, except what the proxy observed inside it. A streamed
//!   answer is no exception: its content is timed, but what the server did meanwhile is unknown.
//!
//! The upstream's statistics are means over many requests, so they claim nothing here.
//!
//! The usual request causes no allocation: up to 16 observed spans, 5 reports and no traced spans.

use smallvec::SmallVec;

use super::account::Account;
use super::exchange::{ClippedReports, Exchange, TracedSpan};
use super::observed_event::ObservedEvent;
use super::record::{Ledger, Report, ReportPlace, Span, UpstreamWindow};
use super::stage::{Phase, Source, Stage};

/// Placed claims; up to 32 without allocation.
pub type Claims = SmallVec<[Claim; 32]>;

/// Pieces of time in ascending order, disjoint.
type Pieces = SmallVec<[(u64, u64); 8]>;

/// Merges a closed ledger and its spans into an exchange whose stages sum to `ledger.total_ns`, whatever the reports and spans
/// contain.
///
/// `claimed_ns` counts the window's instants that a report or a span owns. An instant that the proxy itself observed inside the
/// window (egress of a slow client, the client's own pace) counts as claimed too, since no upstream could report it. If nothing
/// was reported of this request, nothing is claimed.
///
/// ```
/// use lapwing_ledger::{Ledger, Report, ReportPlace, Stage, Stamp, UpstreamWindow, merge};
///
/// let mut ledger = Ledger::open(Stamp::default(), 0);
/// ledger.total_ns = 1_000;
/// ledger.window = Some(UpstreamWindow { start_ns: 100, head_ns: 900, end_ns: 950 });
/// ledger.report(Report::of(Stage::Forward, 600, ReportPlace::Head));
///
/// let exchange = merge(ledger, Vec::new());
/// assert_eq!(exchange.account.stage_ns(Stage::Forward), 600);
/// assert_eq!(exchange.account.stage_ns(Stage::Unattributed), 400);
/// assert_eq!(exchange.account.total_ns(), exchange.ledger.total_ns);
/// ```
#[must_use]
pub fn merge(ledger: impl Into<Box<Ledger>>, traced: Vec<TracedSpan>) -> Exchange {
    let ledger = ledger.into();
    let placing = Placing::of(&ledger, &traced);
    let window = ledger.bounded_window();
    let mut account = Account::default();
    let mut claimed_ns = 0;
    each_instant(0, ledger.total_ns, &placing.claims, |from, to, owner| {
        let (stage, source) = owner.map_or((Stage::Unattributed, Source::Observed), |c| (c.stage, c.source));
        account.add(stage, source, to - from);
        if let Some(phase) = owner.and_then(|c| c.phase) {
            account.add_phase(phase, source, to - from);
        }
        if stage != Stage::Unattributed {
            claimed_ns += to.min(window.end_ns).saturating_sub(from.max(window.start_ns));
        }
    });
    if !placing.is_said {
        claimed_ns = 0;
    }
    Exchange { account, claimed_ns, clipped: placing.clipped, is_incomplete: false, ledger, traced, optimal_forward: None }
}

/// The claims that [`merge`] divides the time among, and the number of reports and spans that had to be clipped. Observed spans
/// come first, in the ledger's order; then the accepted traced spans; then the pieces of the reports, or the window
/// as `upstream`.
#[must_use]
pub fn placed(ledger: &Ledger, traced: &[TracedSpan]) -> (Claims, ClippedReports) {
    let placing = Placing::of(ledger, traced);
    (placing.claims, placing.clipped)
}

/// The first content of a streamed generated answer, inside the window.
fn first_content_ns(ledger: &Ledger, window: UpstreamWindow) -> Option<u64> {
    Some(ledger.generation.as_ref()?.first_ns?.clamp(window.start_ns, window.end_ns))
}

/// Claims while they are being placed.
pub(crate) struct Placing {
    pub(crate) claims: Claims,
    /// For each accepted traced span, its index in the given list.
    pub(crate) accepted: SmallVec<[usize; 16]>,
    clipped: ClippedReports,
    /// A report or span that does not fit by this much or less is clipped, but is no fault.
    tolerance_ns: u64,
    /// Whether anything was reported of this request.
    is_said: bool,
}

impl Placing {
    pub(crate) fn of(ledger: &Ledger, traced: &[TracedSpan]) -> Self {
        let window = ledger.bounded_window();
        let mut placing = Self {
            claims: Claims::new(),
            accepted: SmallVec::new(),
            clipped: ClippedReports::default(),
            tolerance_ns: window.tolerance_ns(),
            is_said: false,
        };
        placing.claims.extend(ledger.spans.iter().map(|span| Claim::of(*span)));
        let mut named = [false; Stage::COUNT];
        ledger.reports.iter().for_each(|r| named[r.stage.index()] = true);
        for (i, span) in traced.iter().enumerate() {
            if let Some(stage) = span.stage.filter(|s| names_time(*s) && !named[s.index()]) {
                placing.trace(window, i, span, stage);
            }
        }
        let is_reported = ledger.reports.iter().any(says);
        if is_reported {
            let first_content_ns = first_content_ns(ledger, window);
            match beyond_calls(ledger) {
                None => placing.report(window, first_content_ns, &ledger.reports),
                Some(reports) => placing.report(window, first_content_ns, &reports),
            }
        }
        let is_marked = || ledger.spans.iter().any(|s| s.event == ObservedEvent::Marked && names_time(s.stage));
        placing.is_said = is_reported || !placing.accepted.is_empty() || is_marked();
        if !placing.is_said && window.length_ns() > 0 {
            placing.claim(Stage::Upstream, None, Source::Observed, window.start_ns, window.end_ns, 0);
        }
        placing
    }

    fn claim(&mut self, stage: Stage, phase: Option<Phase>, source: Source, start_ns: u64, end_ns: u64, depth: u32) {
        self.claims.push(Claim { stage, phase, source, start_ns, end_ns, depth });
    }

    /// Claims the part of a traced span that is inside the window.
    fn trace(&mut self, window: UpstreamWindow, i: usize, span: &TracedSpan, stage: Stage) {
        let clip = |at: i64| u64::try_from(at).unwrap_or(0).clamp(window.start_ns, window.end_ns);
        let (start_ns, end_ns) = (clip(span.start_ns), clip(span.end_ns));
        self.count_clipped(window, span);
        if start_ns < end_ns {
            self.claim(stage, span.phase, Source::Traced, start_ns, end_ns, span.depth);
            self.accepted.push(i);
        }
    }

    /// Counts a span that lies outside the window by more than the tolerance.
    fn count_clipped(&mut self, window: UpstreamWindow, span: &TracedSpan) {
        let wide = i128::from;
        let tolerance_ns = i128::from(self.tolerance_ns);
        let length_ns = wide(span.end_ns) - wide(span.start_ns);
        let before_ns = i128::from(window.start_ns) - wide(span.start_ns);
        let after_ns = wide(span.end_ns) - i128::from(window.end_ns);
        if length_ns < 0 || before_ns.max(after_ns) <= tolerance_ns {
            return;
        }
        let cause = if length_ns > i128::from(window.length_ns()) + tolerance_ns {
            &mut self.clipped.too_long
        } else if before_ns > after_ns {
            &mut self.clipped.before
        } else {
            &mut self.clipped.after
        };
        *cause += 1;
    }

    /// Places the reports in the window's free time.
    fn report(&mut self, window: UpstreamWindow, first_content_ns: Option<u64>, reports: &[Report]) {
        let mut latest = [ReportPlace::Head; Stage::COUNT];
        reports.iter().for_each(|r| latest[r.stage.index()] = latest[r.stage.index()].max(r.place));
        let valid = || reports.iter().filter(|r| says(r) && r.place == latest[r.stage.index()]);
        let free = self.free(window);
        if let Some(first_ns) = first_content_ns {
            let is_decode = |r: &&Report| r.phase == Some(Phase::Decode);
            let left = self.lay(free, valid().rev().filter(is_decode));
            let before = within(&left, window.start_ns, first_ns);
            self.lay(before, valid().rev().filter(|r| !is_decode(r)));
            return;
        }
        let head = || valid().filter(|r| r.place == ReportPlace::Head);
        let tail = || valid().filter(|r| r.place != ReportPlace::Head);
        let before = within(&free, window.start_ns, window.head_ns);
        let sum_ns = head().chain(tail()).fold(0_u64, |sum, r| sum.saturating_add(r.duration_ns));
        if sum_ns <= before.iter().map(|(from, to)| to - from).sum() {
            self.lay(before, tail().rev().chain(head().rev()));
        } else {
            let mut left = self.lay(before, head().rev());
            left.extend(within(&free, window.head_ns, window.end_ns));
            self.lay(left, tail().rev());
        }
    }

    /// The window's time that no claim placed so far owns.
    fn free(&self, window: UpstreamWindow) -> Pieces {
        let mut free = Pieces::new();
        each_instant(window.start_ns, window.end_ns, &self.claims, |from, to, owner| match (owner, free.last_mut()) {
            (Some(_), _) => {}
            (None, Some((_, end))) if *end == from => *end = to,
            (None, _) => free.push((from, to)),
        });
        free
    }

    /// Places `reports` backwards into `free`, the last report first; returns the time that remains free.
    fn lay<'a>(&mut self, mut free: Pieces, reports: impl Iterator<Item = &'a Report>) -> Pieces {
        for report in reports {
            let mut left_ns = report.duration_ns;
            while left_ns > 0 {
                let Some((from, to)) = free.pop() else {
                    self.clipped.too_long += u32::from(left_ns > self.tolerance_ns);
                    break;
                };
                let start_ns = to.saturating_sub(left_ns).max(from);
                self.claim(report.stage, report.phase, Source::Reported, start_ns, to, 0);
                left_ns -= to - start_ns;
                if from < start_ns {
                    free.push((from, start_ns));
                }
            }
        }
        free
    }
}

/// The reports less what was observed of their stages in outbound calls; `None` where there are none of these.
fn beyond_calls(ledger: &Ledger) -> Option<SmallVec<[Report; 4]>> {
    let calls = || ledger.spans.iter().filter(|span| span.event == ObservedEvent::OutboundCall);
    calls().next()?;
    let mut observed_ns = [0_u64; Stage::COUNT];
    calls().for_each(|span| observed_ns[span.stage.index()] += span.end_ns.saturating_sub(span.start_ns));
    // of several places that report a stage, one is used: each says all of it
    let mut left_ns = [observed_ns; 3];
    let mut reports = ledger.reports.clone();
    for report in &mut reports {
        let left_ns = &mut left_ns[report.place as usize][report.stage.index()];
        let taken_ns = report.duration_ns.min(*left_ns);
        (report.duration_ns, *left_ns) = (report.duration_ns - taken_ns, *left_ns - taken_ns);
    }
    Some(reports)
}

/// Whether a report claims time; one that maps to unattributed does not.
fn says(report: &Report) -> bool {
    names_time(report.stage)
}

/// Whether a report or span of that stage has a meaning: the rest of the window and the whole of it cannot be reported.
fn names_time(stage: Stage) -> bool {
    !matches!(stage, Stage::Unattributed | Stage::Upstream)
}

/// The parts of `pieces` inside `start_ns..end_ns`.
fn within(pieces: &[(u64, u64)], start_ns: u64, end_ns: u64) -> Pieces {
    pieces.iter().map(|(from, to)| (*from.max(&start_ns), *to.min(&end_ns))).filter(|(from, to)| from < to).collect()
}

/// A claim on a piece of a request's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The stage that would own the time.
    pub stage: Stage,
    /// The phase of the stage, if it has one.
    pub phase: Option<Phase>,
    /// The source of the claim.
    pub source: Source,
    /// Start; a claim that ends before it starts claims nothing.
    pub start_ns: u64,
    /// End, exclusive.
    pub end_ns: u64,
    /// The depth of the span in its trace; zero if the claim does not come from a span.
    pub depth: u32,
}

impl Claim {
    /// The claim of an observed span.
    #[must_use]
    pub const fn of(span: Span) -> Self {
        let Span { stage, event, start_ns, end_ns } = span;
        Self { stage, phase: event.phase(), source: Span::SOURCE, start_ns, end_ns, depth: 0 }
    }

    /// Whether it outranks claims that are no observation.
    fn outranks(&self) -> bool {
        self.source == Source::Observed && self.stage != Stage::Upstream
    }
}

/// Divides `total_ns` among `claims`. The stages of the result sum to `total_ns` exactly, whatever the claims are.
#[must_use]
pub fn conserve(total_ns: u64, claims: &[Claim]) -> Account {
    let mut account = Account::default();
    each_instant(0, total_ns, claims, |from, to, owner| match owner {
        Some(claim) => account.add(claim.stage, claim.source, to - from),
        None => account.add(Stage::Unattributed, Source::Observed, to - from),
    });
    account
}

/// Walks `start_ns..end_ns` in order and calls `piece` for each stretch with one owner or none.
///
/// This is a sweep: claims are opened in order of rank among those that started, so the owner is always the claim opened last
/// that has not ended. The cost is that of the sort. Up to 32 claims are handled without allocation.
pub fn each_instant(start_ns: u64, end_ns: u64, claims: &[Claim], mut piece: impl FnMut(u64, u64, Option<&Claim>)) {
    let mut order: SmallVec<[u32; 32]> = SmallVec::new();
    let touches = |c: &Claim| c.start_ns < c.end_ns && c.start_ns < end_ns && c.end_ns > start_ns;
    order.extend((0_u32..).zip(claims).filter(|(_, c)| touches(c)).map(|(i, _)| i));
    let claim = |i: &u32| &claims[*i as usize];
    order.sort_unstable_by(|a, b| {
        let (x, y) = (claim(a), claim(b));
        // equal in every respect: the first in the list is opened last
        x.start_ns.cmp(&y.start_ns).then(x.depth.cmp(&y.depth)).then(y.end_ns.cmp(&x.end_ns)).then(b.cmp(a))
    });
    let mut to_open = order.iter().map(claim).peekable();
    let mut observed: SmallVec<[&Claim; 16]> = SmallVec::new();
    let mut said: SmallVec<[&Claim; 32]> = SmallVec::new();
    let mut at = start_ns;
    while at < end_ns {
        while let Some(opened) = to_open.next_if(|c| c.start_ns <= at) {
            if opened.outranks() { observed.push(opened) } else { said.push(opened) }
        }
        let owner = innermost(&mut observed, at).or_else(|| innermost(&mut said, at));
        let next_ns = to_open.peek().map_or(end_ns, |c| c.start_ns);
        let until = owner.map_or(end_ns, |o| o.end_ns).min(next_ns).min(end_ns);
        piece(at, until, owner);
        at = until;
    }
}

/// The claim opened last of those that have not ended at `at`.
fn innermost<'a, const N: usize>(open: &mut SmallVec<[&'a Claim; N]>, at: u64) -> Option<&'a Claim> {
    while open.last().is_some_and(|c| c.end_ns <= at) {
        open.pop();
    }
    open.last().copied()
}

#[cfg(test)]
mod tests;
