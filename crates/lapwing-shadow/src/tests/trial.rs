//! One candidate by one protocol, through the same calls as live copies.

use super::candidates::{Candidate, Change, Upstream};
use super::protocols::{Said, WireProtocol};
use crate::gates::{GateInputs, check_all};
use crate::{OutputAccounts, PairFigure, PairHalf, PairTable, SideAccount};
use lapwing_compare::ab::{Verdict, sentence};
use lapwing_compare::outputs::{AnswerReading, Asked, Comparer, Comparison, Config, OutputsVerdict};
use lapwing_ledger::{CopyCause, LabelId, PairId, Stamp, TraceId};
use lapwing_metrics::Labels;
use lapwing_protocol::OutputKind;

/// Requests of a trial.
const REQUESTS: u64 = 120;
/// The time between two of them: 40 s in all, which suffice for a verdict on latency.
const GAP_NS: u64 = 333_000_000;
/// Those for which the upstream is asked twice.
const REPEATS: u64 = 30;
/// Numbers in an answer.
const NUMBERS: u64 = 12;
const ROUTE: &str = "POST /x";

/// What is said of a candidate.
#[derive(Debug)]
pub(crate) struct Verdicts {
    pub(crate) outputs: OutputsVerdict,
    pub(crate) latency: Verdict,
    /// Whether `mismatch<=0.01` lets a build pass.
    pub(crate) holds_gate: bool,
    pub(crate) sentence: String,
    pub(crate) summary: String,
}

pub(crate) struct Trial {
    candidate: &'static Candidate,
    protocol: WireProtocol,
    comparer: Comparer,
    outputs: OutputAccounts,
    pairs: PairTable,
    labels: Labels,
    began: Stamp,
}

impl Trial {
    pub(crate) fn run(candidate: &'static Candidate, protocol: WireProtocol) -> Verdicts {
        let (comparer, labels, began) = (Comparer::new(&Config::default()), Labels::new(8, 8, 8), Stamp::now());
        let target = labels.upstreams.intern("t");
        let mut trial = Self {
            candidate,
            protocol,
            outputs: OutputAccounts::new(comparer.clone(), candidate.asked_twice),
            comparer,
            pairs: PairTable::new(vec![target], u64::MAX, began),
            labels,
            began,
        };
        (0..REQUESTS).for_each(|request| trial.request(request));
        trial.verdicts(target)
    }

    fn request(&mut self, n: u64) {
        let now = self.began.plus(n * GAP_NS);
        self.pairs.tick(now);
        let first = self.upstream(n, 0);
        let copy = self.changed(n, &first);
        let asked = Asked { model: "m", may_be_drawn: self.candidate.upstream == Upstream::Drawn };
        let comparison = self.compare(&first, &copy, n);
        let verdict = self.outputs.record(0, ROUTE, CopyCause::Share, &comparison, TraceId([1; 16]), asked);
        if self.candidate.asked_twice && n < REPEATS {
            let comparison = self.compare(&first, &self.upstream(n, 1), n);
            self.outputs.record_repeat(0, ROUTE, CopyCause::Share, &comparison, TraceId([1; 16]), asked);
        }
        let Some(pair) = PairId::new(n + 1) else { return };
        // an error in 200 is a failure, as the ledger has it
        let is_answered = !matches!(copy, Said::Error | Said::Status(_));
        let time = 1e7 * (1.0 + 0.05 * random(n, 90));
        let side = |time: f64, is_answered| {
            let figures_ns = [("total".to_owned(), time as u64)].into();
            let side = SideAccount { route: ROUTE.into(), model: "m".into(), class: None, is_answered, figures_ns };
            PairHalf::of_account(&side, &self.labels)
        };
        let copy_time = self.candidate.time * 1e7 * (1.0 + 0.05 * random(n, 91));
        let sides = [side(time, true), side(copy_time, is_answered)];
        self.pairs.primary_half(pair, sides[0].clone(), now);
        self.pairs.copy_half(pair, 0, &sides[1], now);
        self.pairs.outputs(pair, 0, verdict.result, now);
    }

    fn compare(&self, first: &Said, other: &Said, n: u64) -> Comparison {
        let scales = self.outputs.scales(0, ROUTE, CopyCause::Share, "m");
        let readings = [AnswerReading::Protocol(self.protocol.kind()); 2];
        let [p, c] = [(first, 2 * n), (other, 2 * n + 1)].map(|(said, draw)| self.protocol.answer(said, draw));
        self.comparer.compare_as(ROUTE, readings, &scales, &p.as_finished(), &c.as_finished())
    }

    /// What the upstream answers the `draw`th time.
    fn upstream(&self, n: u64, draw: u64) -> Said {
        let exact = || (0..NUMBERS).map(|at| 0.55 + 0.4 * random(n, at));
        Said::Output(match self.candidate.upstream {
            Upstream::Exact => exact().collect(),
            Upstream::Noisy(noise) => {
                exact().zip(0..).map(|(x, at)| x * (1.0 + noise * random(n, 100 + 20 * draw + at))).collect()
            }
            Upstream::Drawn => (0..NUMBERS).map(|at| random(n, 500 + 20 * draw + at)).collect(),
            Upstream::Scaled(scale) => exact().map(|x| x * scale).collect(),
            Upstream::NotFinite => [f64::NEG_INFINITY, f64::NAN].into_iter().chain(exact().skip(2)).collect(),
            Upstream::Broken(of) if n.is_multiple_of(of) => return Said::Broken(n),
            Upstream::Broken(_) => exact().collect(),
        })
    }

    /// What the candidate answers.
    fn changed(&self, n: u64, first: &Said) -> Said {
        // a server of its own draws for itself
        let numbers = match self.upstream(n, 2) {
            Said::Output(numbers) => numbers,
            broken if self.candidate.change == Change::OtherBroken && matches!(broken, Said::Broken(_)) => {
                return Said::Broken(n + 7_000);
            }
            _ => return first.clone(),
        };
        let map = |change: &dyn Fn(f64) -> f64| Said::Output(numbers.iter().map(|x| change(*x)).collect());
        let with = |at: usize, number: f64| {
            let mut numbers = numbers.clone();
            numbers[at] = number;
            Said::Output(numbers)
        };
        match self.candidate.change {
            Change::Nothing | Change::OtherBroken => Said::Output(numbers),
            Change::Times(factor) => map(&|x| x * factor),
            Change::TimesInOneOf(of, factor) => map(&|x| if n % of == of / 2 { x * factor } else { x }),
            // a text is the same or not
            Change::Noise(noise) if noise < 1e-3 && self.protocol.kind() == OutputKind::GeneratedText => Said::Output(numbers),
            Change::Noise(noise) => {
                Said::Output(numbers.iter().zip(0..).map(|(x, at)| x * (1.0 + noise * random(n, 900 + at))).collect())
            }
            Change::All(number) => map(&|_| number),
            Change::First(number) => with(0, number),
            Change::Last(number) => with(numbers.len() - 1, number),
            Change::Reversed => Said::Output(numbers.into_iter().rev().collect()),
            Change::Half => Said::Output(numbers[..numbers.len() / 2].to_vec()),
            Change::Twice => Said::Output(numbers.repeat(2)),
            Change::OtherModel => Said::Output((0..NUMBERS).map(|at| random(n, 700 + at)).collect()),
            Change::ErrorBody => Said::Error,
            Change::CutOff => Said::CutOff(numbers),
            Change::Empty => Said::Empty,
            Change::Html => Said::Html,
            Change::Status(status) => Said::Status(status),
        }
    }

    fn verdicts(mut self, _: LabelId) -> Verdicts {
        self.pairs.tick(self.began.plus(REQUESTS * GAP_NS));
        let snapshot = self.pairs.target(0);
        let report = &snapshot.cards[0].figures[0].1;
        let gate = ["mismatch<=0.01".parse().unwrap()];
        let pairs = self.pairs.pooled(0);
        assert!(pairs.contains_key(&PairFigure::Total));
        let known = GateInputs { pairs: &pairs, requests: Some(REQUESTS), lateness_p99_ns: None };
        let outputs = self.outputs.of(0, CopyCause::Share).remove(ROUTE).unwrap();
        Verdicts {
            outputs: outputs.verdict,
            latency: report.verdict,
            holds_gate: check_all(&gate, "t", &known)[0].holds,
            sentence: sentence("t", &[("total", report)]),
            summary: outputs.summary,
        }
    }
}

/// From −1 to 1, by the request and the place.
fn random(n: u64, at: u64) -> f64 {
    let mut x = (n + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (at + 1).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 30)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((x ^ (x >> 31)) >> 40) as f64 / f64::from(1 << 23) - 1.0
}
