//! The candidates: how the upstream answers, what they change, and what is right to say of them.

use lapwing_compare::ab::Verdict::{self, Faster, Same, Slower};
use lapwing_compare::outputs::OutputsVerdict::{self, Agree, CannotBeCompared, Differ};

/// How the upstream answers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Upstream {
    /// The same each time.
    Exact,
    /// Each number within so much of its own, relative.
    Noisy(f64),
    /// Anew each time.
    Drawn,
    /// Like `Exact`, all numbers so many times as large.
    Scaled(f64),
    /// Like `Exact`, with NaN and −∞ among its numbers.
    NotFinite,
    /// Bodies that nobody can parse, in one of so many answers.
    Broken(u64),
}

/// What the candidate does with what the upstream would answer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Change {
    Nothing,
    /// Numbers times this.
    Times(f64),
    /// The same in one of so many answers.
    TimesInOneOf(u64, f64),
    /// Numbers with noise of their own, relative.
    Noise(f64),
    /// All numbers are this.
    All(f64),
    /// The first number is this.
    First(f64),
    /// The last number is this.
    Last(f64),
    /// In reverse order.
    Reversed,
    /// The first half only.
    Half,
    /// All of it twice.
    Twice,
    /// Another model: numbers that have nothing to do with the upstream's.
    OtherModel,
    /// An error as the body of a 200.
    ErrorBody,
    /// JSON or a message that is cut off.
    CutOff,
    /// An empty body.
    Empty,
    /// A page of HTML with status 200.
    Html,
    /// This status.
    Status(u16),
    /// Another broken body than the upstream's.
    OtherBroken,
}

/// A row of the table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate {
    pub(crate) name: &'static str,
    pub(crate) upstream: Upstream,
    pub(crate) change: Change,
    /// Whether the upstream is asked twice.
    pub(crate) asked_twice: bool,
    /// Its time over the upstream's.
    pub(crate) time: f64,
    /// What is right to say of its outputs.
    pub(crate) outputs: OutputsVerdict,
    /// And of its latency.
    pub(crate) latency: Verdict,
}

const fn row(name: &'static str, upstream: Upstream, change: Change, outputs: OutputsVerdict) -> Candidate {
    Candidate { name, upstream, change, asked_twice: true, time: 1.0, outputs, latency: Same }
}

const fn once(candidate: Candidate) -> Candidate {
    Candidate { asked_twice: false, ..candidate }
}

const fn taking(time: f64, latency: Verdict, candidate: Candidate) -> Candidate {
    Candidate { time, latency, ..candidate }
}

use Upstream::{Broken, Drawn, Exact, Noisy, NotFinite, Scaled};

pub(crate) const CANDIDATES: &[Candidate] = &[
    row("right", Exact, Change::Nothing, Agree),
    once(row("right, the upstream asked once", Exact, Change::Nothing, Agree)),
    row("right by other kernels", Exact, Change::Noise(1e-5), Agree),
    row("off by 2×", Exact, Change::Times(2.0), Differ),
    once(row("off by 2×, the upstream asked once", Exact, Change::Times(2.0), Differ)),
    row("off by 100×", Exact, Change::Times(100.0), Differ),
    row("off by a half", Exact, Change::Times(0.5), Differ),
    row("off by a tenth", Exact, Change::Times(1.1), Differ),
    row("negated", Exact, Change::Times(-1.0), Differ),
    row("zeros", Exact, Change::All(0.0), Differ),
    row("a constant", Exact, Change::All(0.5), Differ),
    row("small probabilities, right", Scaled(1e-4), Change::Nothing, Agree),
    row("zeros for small probabilities", Scaled(1e-4), Change::All(0.0), Differ),
    once(row("zeros for small probabilities, asked once", Scaled(1e-4), Change::All(0.0), Differ)),
    row("large numbers off by a tenth", Scaled(1e6), Change::Times(1.1), Differ),
    row("noisy", Exact, Change::Noise(0.2), Differ),
    row("NaN everywhere", Exact, Change::All(f64::NAN), Differ),
    row("one NaN", Exact, Change::First(f64::NAN), Differ),
    row("one infinity", Exact, Change::First(f64::INFINITY), Differ),
    row("one wrong number", Exact, Change::Last(9.0), Differ),
    row("reversed", Exact, Change::Reversed, Differ),
    taking(0.5, Faster, row("truncated, and quicker for it", Exact, Change::Half, Differ)),
    row("twice as long", Exact, Change::Twice, Differ),
    row("another model", Exact, Change::OtherModel, Differ),
    row("wrong in one of ten", Exact, Change::TimesInOneOf(10, 2.0), Differ),
    row("wrong in one of fifty", Exact, Change::TimesInOneOf(50, 2.0), Differ),
    taking(1e-2, Slower, row("an error in 200, at once", Exact, Change::ErrorBody, Differ)),
    taking(1e-2, Slower, once(row("an error in 200, at once, asked once", Exact, Change::ErrorBody, Differ))),
    taking(1e-2, Slower, row("500, at once", Exact, Change::Status(500), Differ)),
    taking(1.0, Slower, row("422", Exact, Change::Status(422), Differ)),
    row("a cut-off body", Exact, Change::CutOff, Differ),
    row("an empty body", Exact, Change::Empty, Differ),
    row("a page of HTML", Exact, Change::Html, Differ),
    taking(2.0, Slower, row("right and slower", Exact, Change::Nothing, Agree)),
    taking(0.5, Faster, row("right and faster", Exact, Change::Nothing, Agree)),
    row("right, of a noisy upstream", Noisy(0.04), Change::Nothing, Agree),
    row("off by 100×, of a noisy upstream", Noisy(0.04), Change::Times(100.0), Differ),
    row("off by 2×, of a noisy upstream", Noisy(0.04), Change::Times(2.0), Differ),
    row("zeros, of a noisy upstream", Noisy(0.04), Change::All(0.0), Differ),
    row("another model, of a noisy upstream", Noisy(0.04), Change::OtherModel, Differ),
    row("drawn anew", Drawn, Change::Nothing, CannotBeCompared),
    row("drawn anew by another model", Drawn, Change::OtherModel, CannotBeCompared),
    taking(1.0, Slower, row("an error in 200, of an upstream that draws", Drawn, Change::ErrorBody, Differ)),
    taking(1.0, Slower, row("500, of an upstream that draws", Drawn, Change::Status(500), Differ)),
    row("NaN where the upstream has NaN", NotFinite, Change::Nothing, Agree),
    once(row("another number beside NaN", NotFinite, Change::Last(9.0), Differ)),
    row("∞ where the upstream has −∞", NotFinite, Change::First(f64::INFINITY), Differ),
    row("the same broken bodies", Broken(1), Change::Nothing, Agree),
    row("other broken bodies", Broken(1), Change::OtherBroken, CannotBeCompared),
    row("right where the upstream is not broken", Broken(2), Change::OtherBroken, CannotBeCompared),
];
