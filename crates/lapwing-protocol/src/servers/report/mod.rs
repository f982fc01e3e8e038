//! Summarizes the values that one response or one span reports: the table gives their units, and the queue time is taken out of
//! values that include it. Durations are nanoseconds, 0 to 24 h. Fixed size, no heap.

use arrayvec::ArrayVec;

use super::debug_duration::parse;
use super::field::{Flags, Quantity, ReportedField, Scale};
use lapwing_ledger::{Basis, Ledger, Phase, Report, ReportPlace, Server, ServerEvidence, Stage, Unit};

/// Most values kept of one response; further values are ignored.
const VALUES: usize = 16;
/// Longer durations are treated as mistakes: 24 h.
const MAX_NS: f64 = 86_400e9;
/// The largest amount: above it a float no longer holds every whole number exactly.
const MAX_COUNT: f64 = 9_007_199_254_740_992.0;

/// Collects the values that one response or one span reports.
#[derive(Clone, Debug, Default)]
pub struct ReportedValues {
    /// In order of arrival; durations in nanoseconds.
    values: ArrayVec<(&'static ReportedField, u64), VALUES>,
    malformed: usize,
}

/// A reported stage or phase with its duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReportPart {
    /// The stage.
    pub stage: Stage,
    /// The phase, if the part is one.
    pub phase: Option<Phase>,
    /// Its duration, in nanoseconds.
    pub duration_ns: u64,
    /// The step that the server rounds to, in nanoseconds.
    pub resolution_ns: u32,
    /// Whether it is the sum over several prompts.
    pub is_sum: bool,
}

/// What a server reported about one request, summarized in one vocabulary.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerReport {
    /// The server that reported it.
    pub server: Option<Server>,
    /// The parts, in chronological order; they do not overlap.
    pub parts: ArrayVec<ReportPart, 8>,
    /// Time to first token, from arrival.
    pub first_token_ns: Option<u64>,
    /// Mean time per output token after the first.
    pub per_output_token_ns: Option<u64>,
    /// Amounts of work.
    pub work: ArrayVec<(Unit, u64), { Unit::COUNT }>,
}

/// A value with its resolution.
#[derive(Clone, Copy)]
struct Amount {
    amount: u64,
    resolution_ns: u32,
    includes_queue: bool,
    is_sum: bool,
}

impl ReportedValues {
    /// Records a number in the row's unit. A later number for the same row replaces the earlier one, because streams repeat a
    /// field with every chunk. An impossible number (negative, NaN, more than 24 h) is counted as malformed and not used.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the range is checked first")]
    pub fn note(&mut self, row: &'static ReportedField, value: f64) {
        let (factor, max) = match row.scale {
            Scale::Ns => (1.0, MAX_NS),
            Scale::Us => (1e3, MAX_NS),
            Scale::Ms => (1e6, MAX_NS),
            Scale::S => (1e9, MAX_NS),
            Scale::Count => (1.0, MAX_COUNT),
            Scale::RustDebug | Scale::Text => (f64::NAN, 0.0),
        };
        let scaled = value * factor;
        if (0.0..=max).contains(&scaled) {
            self.put(row, scaled.round() as u64);
        } else {
            self.malformed += 1;
        }
    }

    /// Records a text: a duration as Rust writes it, or a number in the row's unit.
    pub fn note_text(&mut self, row: &'static ReportedField, text: &str) {
        match row.scale {
            Scale::Text => {}
            Scale::RustDebug => match parse(text).filter(|ns| *ns <= MAX_NS as u64) {
                Some(ns) => self.put(row, ns),
                None => self.malformed += 1,
            },
            _ => self.note(row, text.trim().parse().unwrap_or(f64::NAN)),
        }
    }

    /// Whether no value was recorded.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// How many values could not be used.
    #[must_use]
    pub const fn malformed(&self) -> usize {
        self.malformed
    }

    fn put(&mut self, row: &'static ReportedField, amount: u64) {
        match self.values.iter_mut().find(|(known, _)| std::ptr::eq(*known, row) || *known == row) {
            Some((_, known)) => *known = amount,
            // no known server reports so many; values beyond the limit are dropped
            None => {
                let _ = self.values.try_push((row, amount));
            }
        }
    }

    /// The value of one quantity: the first one reported, plus the values that add to it.
    fn get(&self, quantity: Quantity) -> Option<Amount> {
        let mut found: Option<Amount> = None;
        for (row, amount) in self.values.iter().filter(|(row, _)| row.quantity == quantity) {
            match &mut found {
                None => {
                    let Flags { includes_queue, summed_over_prompts: is_sum, .. } = row.flags;
                    found = Some(Amount { amount: *amount, resolution_ns: row.resolution_ns, includes_queue, is_sum });
                }
                Some(value) if row.flags.adds_up => value.amount = value.amount.saturating_add(*amount),
                Some(_) => {}
            }
        }
        found
    }

    /// Summarizes the recorded values.
    ///
    /// - Prefill is the server's prefill time, else its time to first token. If that value includes the queue time, the queue
    ///   time is subtracted; if the queue time is then unknown, no prefill is reported.
    /// - Decode is the server's decode time, else the total minus the time to first token.
    /// - Forward is reported only if no phase is, minus the queue time if the value includes it and it is known.
    /// - The time per output token is the server's, else decode divided by the output tokens after the first.
    /// - Means over a batch are used unchanged, because nothing better is known. Sums over prompts are marked as sums: the
    ///   number of prompts is known only when the exchange ends.
    #[must_use]
    pub fn summarize(&self) -> ServerReport {
        let mut report = ServerReport { server: self.values.first().map(|(row, _)| row.server), ..ServerReport::default() };
        let stage = |stage| self.get(Quantity::Stage(stage));
        let (queue, first, total) = (stage(Stage::Queue), self.get(Quantity::FirstToken), self.get(Quantity::Total));
        let prefill = self.get(Quantity::Phase(Phase::Prefill)).or(first).and_then(|value| without_queue(value, queue));
        let rest = |total: Amount, first: Amount| {
            let amount = total.amount.checked_sub(first.amount).filter(|_| first.includes_queue)?;
            Some(Amount { amount, resolution_ns: total.resolution_ns.max(first.resolution_ns), includes_queue: false, ..total })
        };
        let decode = self.get(Quantity::Phase(Phase::Decode)).or_else(|| rest(total?, first?));

        let mut part = |stage, phase, value: Option<Amount>| {
            if let Some(Amount { amount, resolution_ns, is_sum, .. }) = value {
                let _ = report.parts.try_push(ReportPart { stage, phase, duration_ns: amount, resolution_ns, is_sum });
            }
        };
        for before in [Stage::Hydration, Stage::Preprocessing, Stage::Queue] {
            part(before, None, stage(before));
        }
        if prefill.is_some() || decode.is_some() {
            part(Stage::Forward, Some(Phase::Prefill), prefill);
            part(Stage::Forward, Some(Phase::Decode), decode);
        } else {
            let forward = stage(Stage::Forward).map(|value| without_queue(value, queue).unwrap_or(value));
            part(Stage::Forward, None, forward.or_else(|| self.rest_of_total(total?, queue)));
        }
        part(Stage::Postprocessing, None, stage(Stage::Postprocessing));

        report.first_token_ns = first.and_then(|first| match queue {
            _ if first.includes_queue => Some(first.amount),
            Some(queue) => Some(first.amount.saturating_add(queue.amount)),
            None => None,
        });
        for unit in Unit::ALL {
            if let Some(value) = self.get(Quantity::Work(unit)) {
                let _ = report.work.try_push((unit, value.amount));
            }
        }
        report.per_output_token_ns = self.per_output_token_ns().or_else(|| {
            let tokens = self.get(Quantity::Work(Unit::OutputToken))?.amount;
            decode?.amount.checked_div(tokens.checked_sub(1)?)
        });
        report
    }

    /// The server's own time per output token, if it excludes the first token.
    fn per_output_token_ns(&self) -> Option<u64> {
        let is_usable = |row: &ReportedField| row.quantity == Quantity::PerOutputToken && !row.flags.includes_prefill;
        self.values.iter().find(|(row, _)| is_usable(row)).map(|(_, ns)| *ns)
    }

    /// The total minus the queue, for a total that consists of queue and forward only.
    fn rest_of_total(&self, total: Amount, queue: Option<Amount>) -> Option<Amount> {
        let has_rest = self.values.iter().any(|(row, _)| row.flags.rest_is_forward);
        let queue_ns = queue.map_or(0, |queue| queue.amount);
        has_rest.then_some(Amount { amount: total.amount.saturating_sub(queue_ns), ..total })
    }

    /// Writes the summary into the ledger: reports, amounts of work that are not known better, token timing and the server.
    /// Returns the number of values that could not be used.
    pub fn write(self, place: ReportPlace, ledger: &mut Ledger) -> usize {
        let report = self.summarize();
        for ReportPart { stage, phase, duration_ns, resolution_ns, is_sum } in report.parts.iter().copied() {
            ledger.report(Report { stage, phase, duration_ns, resolution_ns, place, is_sum });
        }
        report.note(ledger, if place == ReportPlace::Body { ServerEvidence::Body } else { ServerEvidence::Head });
        self.malformed
    }
}

impl ServerReport {
    /// Writes everything but the parts into the ledger, unless the ledger knows better: the server, work and token timing.
    pub fn note(&self, ledger: &mut Ledger, evidence: ServerEvidence) {
        if let (None, Some(server)) = (ledger.server, self.server) {
            (ledger.server, ledger.server_evidence) = (Some(server), Some(evidence));
        }
        for (unit, amount) in &self.work {
            // the usage in a body has the same basis, but covers the whole answer
            if !ledger.work.is_reported_by_server(*unit) {
                ledger.work.set(*unit, *amount, Basis::Reported);
            }
        }
        if self.first_token_ns.is_some() || self.per_output_token_ns.is_some() {
            let generation = ledger.generation.get_or_insert_default();
            generation.server_first_token_ns = generation.server_first_token_ns.or(self.first_token_ns);
            generation.server_per_output_token_ns = generation.server_per_output_token_ns.or(self.per_output_token_ns);
        }
    }
}

/// `value` minus the queue; `None` if the value includes the queue and the queue is unknown.
fn without_queue(value: Amount, queue: Option<Amount>) -> Option<Amount> {
    if !value.includes_queue {
        return Some(value);
    }
    let queue = queue?;
    let resolution_ns = value.resolution_ns.max(queue.resolution_ns);
    Some(Amount { amount: value.amount.saturating_sub(queue.amount), resolution_ns, includes_queue: false, ..value })
}

#[cfg(test)]
mod tests;
