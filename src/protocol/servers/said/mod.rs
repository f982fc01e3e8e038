//! What one response (or one span) says, made into one vocabulary: units from the table, never from names; queueing taken
//! out of what contains it. Durations are nanoseconds, 0 to 24 h. Fixed size, no heap.

use arrayvec::ArrayVec;

use super::debug_duration::parse;
use super::row::{Flags, Row, Says, Scale};
use crate::ledger::{Basis, Ledger, Phase, Place, Report, Server, Stage, Unit};

/// How many values one response may say; what comes beyond is not heard.
const VALUES: usize = 16;
/// A longer duration is a mistake, not a measurement: 24 h.
const MAX_NS: f64 = 86_400e9;
/// The whole numbers that a float holds exactly end here; no amount is larger.
const MAX_COUNT: f64 = 9_007_199_254_740_992.0;

/// Collects what a response says, value by value.
#[derive(Clone, Debug, Default)]
pub struct Said {
    /// In the order in which they came; durations in nanoseconds.
    values: ArrayVec<(&'static Row, u64), VALUES>,
    malformed: usize,
}

/// A stage or phase with its duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// The stage.
    pub stage: Stage,
    /// The phase, where it is one.
    pub phase: Option<Phase>,
    /// How long it took.
    pub duration_ns: u64,
    /// What the server rounds it to, in nanoseconds.
    pub resolution_ns: u32,
    /// Of several prompts it is the sum.
    pub is_sum: bool,
}

/// What it all comes to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Told {
    /// Who says so.
    pub server: Option<Server>,
    /// The parts, in the order in which they follow one another; none is in another.
    pub parts: ArrayVec<Part, 8>,
    /// Time to first token, from arrival.
    pub first_token_ns: Option<u64>,
    /// Mean time per output token after the first.
    pub per_output_token_ns: Option<u64>,
    /// Amounts of work.
    pub work: ArrayVec<(Unit, u64), { Unit::COUNT }>,
}

/// A value and what it is rounded to.
#[derive(Clone, Copy)]
struct Value {
    amount: u64,
    resolution_ns: u32,
    includes_queue: bool,
    is_sum: bool,
}

impl Said {
    /// Notes a number, in the row's unit; what is noted again (a stream says it with every chunk) replaces. A number that
    /// can be no such value (negative, NaN, more than 24 h) is counted and not used.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the range is checked first")]
    pub fn note(&mut self, row: &'static Row, value: f64) {
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

    /// Notes a text: a duration as Rust writes it, or a number in the row's unit.
    pub fn note_text(&mut self, row: &'static Row, text: &str) {
        match row.scale {
            Scale::Text => {}
            Scale::RustDebug => match parse(text).filter(|ns| *ns <= MAX_NS as u64) {
                Some(ns) => self.put(row, ns),
                None => self.malformed += 1,
            },
            _ => self.note(row, text.trim().parse().unwrap_or(f64::NAN)),
        }
    }

    /// Whether nothing was noted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// How many values could not be used.
    #[must_use]
    pub const fn malformed(&self) -> usize {
        self.malformed
    }

    fn put(&mut self, row: &'static Row, amount: u64) {
        match self.values.iter_mut().find(|(known, _)| std::ptr::eq(*known, row) || *known == row) {
            Some((_, known)) => *known = amount,
            // no server says so much; one that does is heard as far as there is room
            None => {
                let _ = self.values.try_push((row, amount));
            }
        }
    }

    /// What was said of one thing: the first value, and what adds to it.
    fn get(&self, says: Says) -> Option<Value> {
        let mut found: Option<Value> = None;
        for (row, amount) in self.values.iter().filter(|(row, _)| row.says == says) {
            match &mut found {
                None => {
                    let Flags { includes_queue, summed_over_prompts: is_sum, .. } = row.flags;
                    found = Some(Value { amount: *amount, resolution_ns: row.resolution_ns, includes_queue, is_sum });
                }
                Some(value) if row.flags.adds_up => value.amount = value.amount.saturating_add(*amount),
                Some(_) => {}
            }
        }
        found
    }

    /// Makes one account of it.
    ///
    /// - Prefill is what the server calls so, else the time to first token; with the queue in it, less the queue. Where
    ///   the queue is in it and not known, nothing is called prefill.
    /// - Decode is what the server calls so, else what the total has beyond the first token.
    /// - Forward is told where no phase is, less the queue where that is in it and known.
    /// - The pace is the server's, else decode over the output tokens after the first.
    /// - Means over a batch stay as they are: nothing better is known. Sums over prompts are marked as such: how many
    ///   prompts there were is known only when the exchange is done.
    #[must_use]
    pub fn told(&self) -> Told {
        let mut told = Told { server: self.values.first().map(|(row, _)| row.server), ..Told::default() };
        let stage = |stage| self.get(Says::Stage(stage));
        let (queue, first, total) = (stage(Stage::Queue), self.get(Says::FirstToken), self.get(Says::Total));
        let prefill = self.get(Says::Phase(Phase::Prefill)).or(first).and_then(|value| less(value, queue));
        let rest = |total: Value, first: Value| {
            let amount = total.amount.checked_sub(first.amount).filter(|_| first.includes_queue)?;
            Some(Value { amount, resolution_ns: total.resolution_ns.max(first.resolution_ns), includes_queue: false, ..total })
        };
        let decode = self.get(Says::Phase(Phase::Decode)).or_else(|| rest(total?, first?));

        let mut part = |stage, phase, value: Option<Value>| {
            if let Some(Value { amount, resolution_ns, is_sum, .. }) = value {
                let _ = told.parts.try_push(Part { stage, phase, duration_ns: amount, resolution_ns, is_sum });
            }
        };
        for before in [Stage::Hydration, Stage::Preprocessing, Stage::Queue] {
            part(before, None, stage(before));
        }
        if prefill.is_some() || decode.is_some() {
            part(Stage::Forward, Some(Phase::Prefill), prefill);
            part(Stage::Forward, Some(Phase::Decode), decode);
        } else {
            let forward = stage(Stage::Forward).map(|value| less(value, queue).unwrap_or(value));
            part(Stage::Forward, None, forward.or_else(|| self.rest_of_total(total?, queue)));
        }
        part(Stage::Postprocessing, None, stage(Stage::Postprocessing));

        told.first_token_ns = first.and_then(|first| match queue {
            _ if first.includes_queue => Some(first.amount),
            Some(queue) => Some(first.amount.saturating_add(queue.amount)),
            None => None,
        });
        for unit in Unit::ALL {
            if let Some(value) = self.get(Says::Work(unit)) {
                let _ = told.work.try_push((unit, value.amount));
            }
        }
        told.per_output_token_ns = self.pace().or_else(|| {
            let tokens = self.get(Says::Work(Unit::OutputToken))?.amount;
            decode?.amount.checked_div(tokens.checked_sub(1)?)
        });
        told
    }

    /// The server's own pace, where the first token is not in it.
    fn pace(&self) -> Option<u64> {
        let is_pace = |row: &Row| row.says == Says::PerOutputToken && !row.flags.includes_prefill;
        self.values.iter().find(|(row, _)| is_pace(row)).map(|(_, ns)| *ns)
    }

    /// What the queue leaves of a total that has no other parts but forward.
    fn rest_of_total(&self, total: Value, queue: Option<Value>) -> Option<Value> {
        let is_such = self.values.iter().any(|(row, _)| row.flags.rest_is_forward);
        let queue_ns = queue.map_or(0, |queue| queue.amount);
        is_such.then_some(Value { amount: total.amount.saturating_sub(queue_ns), ..total })
    }

    /// Writes what was said into the ledger: reports, amounts of work that the server did not state otherwise, the pace,
    /// and whose they are. Gives the number of values that could not be used.
    pub fn write(self, place: Place, ledger: &mut Ledger) -> usize {
        let told = self.told();
        for Part { stage, phase, duration_ns, resolution_ns, is_sum } in told.parts.iter().copied() {
            ledger.report(Report { stage, phase, duration_ns, resolution_ns, place, is_sum });
        }
        told.note(ledger);
        self.malformed
    }
}

impl Told {
    /// Writes all but the parts into the ledger, where it is not known better: whose it is, work, and pace.
    pub fn note(&self, ledger: &mut Ledger) {
        ledger.server = ledger.server.or(self.server);
        for (unit, amount) in &self.work {
            // the usage in a body is the same word, said of the whole answer
            if ledger.work.get(*unit).is_none_or(|(_, basis)| basis < Basis::Reported) {
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

/// `value` without the queue; `None` where the queue is in it and not known.
fn less(value: Value, queue: Option<Value>) -> Option<Value> {
    if !value.includes_queue {
        return Some(value);
    }
    let queue = queue?;
    let resolution_ns = value.resolution_ns.max(queue.resolution_ns);
    Some(Value { amount: value.amount.saturating_sub(queue.amount), resolution_ns, includes_queue: false, ..value })
}

#[cfg(test)]
mod tests;
