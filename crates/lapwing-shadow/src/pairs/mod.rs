//! Puts the accounts of requests and of their copies together, and keeps what they say of each target.
//!
//! Bounded: so many pairs wait for their other side, each for a limited time; so many cards (target, route, model and cost class).
//! One thread owns it; time is passed in.

mod agreement;
mod card;
mod contention;
mod differing;
mod half;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use self::agreement::Agreements;
pub use self::agreement::OutputResult;
pub(crate) use self::card::Card;
pub use self::card::{RATIO_BOUNDS, RatioHistogram};
use self::contention::Contention;
use self::differing::DifferingPairs;
pub use self::differing::{DifferingPair, SideWaterfall};
pub use self::half::{PairFigure, PairHalf, PairOrder, SideAccount};
use lapwing_compare::ab::{LatencyReport, PairCounts};
use lapwing_ledger::{Exchange, LabelId, PairId, SeriesKey, Stamp};
use lapwing_metrics::Labels;

/// How many pairs may wait for their other side.
const MAX_WAITING: usize = 8192;
/// How much longer than a copy may take its pair waits, for spans and for queues, in nanoseconds.
const SLACK_NS: u64 = 15_000_000_000;
/// How many cards are kept; pairs of further ones are counted only.
const MAX_CARDS: usize = 128;

/// What identifies a card.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct CardKey {
    target: usize,
    route: LabelId,
    model: LabelId,
    class: Option<u8>,
}

/// A pair of which one side, or the comparison of its outputs, is still to come.
#[derive(Debug, Default)]
struct WaitingPair {
    primary: Option<PairHalf>,
    /// By target. A side that came and was recorded is gone.
    copies: SmallVec<[(usize, PairHalf); 1]>,
    /// By target: how the outputs compare.
    outputs: SmallVec<[(usize, OutputResult); 1]>,
}

/// All pairs.
#[derive(Debug)]
pub struct PairTable {
    /// The label of each target.
    targets: Vec<LabelId>,
    waiting: FxHashMap<PairId, WaitingPair>,
    /// In the order of arrival.
    arrivals: VecDeque<(Stamp, PairId)>,
    /// How long a pair waits, in nanoseconds.
    patience_ns: u64,
    /// It waits longer where the upstream takes long: so many times that.
    patience_factor: u32,
    cards: FxHashMap<CardKey, Card>,
    agreements: Agreements,
    contention: Contention,
    differing: DifferingPairs,
    started: Stamp,
    paired: Vec<u64>,
    unpaired: u64,
    overflowed: u64,
}

impl PairTable {
    /// For targets with these labels. A side waits for the other for `patience_ns`.
    #[must_use]
    pub fn new(targets: Vec<LabelId>, patience_ns: u64, started: Stamp) -> Self {
        let paired = vec![0; targets.len()];
        Self {
            targets,
            waiting: FxHashMap::default(),
            arrivals: VecDeque::new(),
            patience_ns,
            patience_factor: 0,
            cards: FxHashMap::default(),
            agreements: Agreements::default(),
            contention: Contention::default(),
            differing: DifferingPairs::default(),
            started,
            paired,
            unpaired: 0,
            overflowed: 0,
        }
    }

    /// A copy may take `factor` times what the upstream took for its request, and pairs wait that long for it.
    #[must_use]
    pub fn with_patience_factor(mut self, factor: u32) -> Self {
        self.patience_factor = factor;
        self
    }

    /// Takes the account of a client's request, copied or not.
    pub fn primary(&mut self, exchange: &Exchange, now: Stamp) {
        self.contention.record(exchange, self.since_start(now));
        let pair = exchange.ledger.pair.filter(|_| exchange.ledger.copied.is_some());
        if let (Some(pair), Some(half)) = (pair, PairHalf::of_primary(exchange)) {
            self.differing.saw(pair, None, &half, Some(exchange));
            // what waits is bounded by its number: no harm if later pairs wait as long
            let longest_ns = exchange.ledger.total_ns.saturating_mul(self.patience_factor.into()).saturating_add(SLACK_NS);
            self.patience_ns = self.patience_ns.max(longest_ns);
            self.primary_half(pair, half, now);
        }
    }

    /// Shows one side of a pair, that of `target` or the primary's, in case its outputs turn out to differ. [`Self::primary`] and
    /// [`Self::copy`] do so themselves. Without its exchange only its figures are known.
    pub fn show_side(&mut self, pair: PairId, target: Option<usize>, half: &PairHalf, exchange: Option<&Exchange>) {
        self.differing.saw(pair, target, half, exchange);
    }

    /// Takes the result that the outputs of a pair differ, by so much: infinite for a difference that is no number.
    pub fn difference(&mut self, pair: PairId, target: usize, greatest_error: f64) {
        self.differing.note(pair, target, greatest_error);
    }

    /// The pairs of a target whose outputs differ most: by route, and within a route those that differ most first.
    #[must_use]
    pub fn differing(&self, target: usize) -> Vec<DifferingPair> {
        self.differing.of(target)
    }

    /// Takes the primary's side of a pair.
    pub fn primary_half(&mut self, pair: PairId, half: PairHalf, now: Stamp) {
        let waiting = self.waiting(pair, now);
        waiting.primary = Some(half);
        let (copies, outputs) = (std::mem::take(&mut waiting.copies), std::mem::take(&mut waiting.outputs));
        for (target, copy) in copies {
            self.copy_half(pair, target, &copy, now);
        }
        for (target, result) in outputs {
            self.outputs(pair, target, result, now);
        }
    }

    /// Takes the account of a copy.
    pub fn copy(&mut self, exchange: &Exchange, now: Stamp) {
        let Some(pair) = exchange.ledger.pair else { return };
        let Some(target) = self.targets.iter().position(|label| *label == exchange.ledger.series.upstream) else { return };
        let half = PairHalf::of_copy(exchange);
        self.differing.saw(pair, Some(target), &half, Some(exchange));
        self.copy_half(pair, target, &half, now);
    }

    /// Takes the side of the copy that went to `target`.
    pub fn copy_half(&mut self, pair: PairId, target: usize, copy: &PairHalf, now: Stamp) {
        let waiting = self.waiting(pair, now);
        let Some(primary) = waiting.primary.clone() else {
            waiting.copies.push((target, copy.clone()));
            return;
        };
        let Some(paired) = self.paired.get_mut(target) else { return };
        *paired += 1;
        if let Some(card) = self.card(target, &primary, now) {
            card.record(&primary, copy);
        }
    }

    /// Takes the result of comparing the outputs of a pair.
    pub fn outputs(&mut self, pair: PairId, target: usize, result: OutputResult, now: Stamp) {
        let waiting = self.waiting(pair, now);
        let Some(primary) = waiting.primary.clone() else {
            waiting.outputs.push((target, result));
            return;
        };
        self.agreements.record(target, &primary, result);
        if let Some(card) = self.card(target, &primary, now) {
            card.record_outputs(result);
        }
    }

    /// Whether the target's answers show that it runs the model that the upstream has for requests of this route and model.
    #[must_use]
    pub fn runs_same_model(&self, target: usize, series: &SeriesKey) -> bool {
        self.agreements.runs_same_model(target, series)
    }

    /// Whether the target answers requests of this route and model as the upstream does, so that it may answer them in its place.
    #[must_use]
    pub fn answers_alike(&self, target: usize, series: &SeriesKey) -> bool {
        self.agreements.answers_alike(target, series)
    }

    fn waiting(&mut self, pair: PairId, now: Stamp) -> &mut WaitingPair {
        if !self.waiting.contains_key(&pair) {
            if self.waiting.len() >= MAX_WAITING {
                self.forget_oldest();
            }
            self.arrivals.push_back((now, pair));
        }
        self.waiting.entry(pair).or_default()
    }

    fn forget_oldest(&mut self) {
        let Some((_, pair)) = self.arrivals.pop_front() else { return };
        if let Some(waiting) = self.waiting.remove(&pair) {
            // a request whose copies were dropped is counted where they were
            self.unpaired += waiting.copies.len() as u64;
        }
    }

    fn card(&mut self, target: usize, primary: &PairHalf, now: Stamp) -> Option<&mut Card> {
        let key = CardKey { target, route: primary.series.route, model: primary.series.model, class: primary.class };
        if !self.cards.contains_key(&key) && self.cards.len() >= MAX_CARDS {
            self.overflowed += 1;
            return None;
        }
        let since = self.since_start(now);
        Some(self.cards.entry(key).or_insert_with(|| Card::new(since)))
    }

    /// Forgets pairs whose other side does not come, and closes blocks of time. To be called about once a second.
    pub fn tick(&mut self, now: Stamp) {
        while self.arrivals.front().is_some_and(|(arrived, _)| now.since(*arrived) > self.patience_ns) {
            self.forget_oldest();
        }
        let since_start = self.since_start(now);
        self.cards.values_mut().for_each(|card| card.tick(since_start));
        self.contention.tick(since_start);
    }

    /// Forgets the cards of routes and models whose names gave way.
    pub fn retain_named(&mut self, labels: &Labels) {
        let is_named = |route, model| labels.routes.holds(route) && labels.models.holds(model);
        self.cards.retain(|key, _| is_named(key.route, key.model));
        self.contention.retain(is_named);
    }

    fn since_start(&self, now: Stamp) -> Duration {
        Duration::from_nanos(now.since(self.started))
    }

    /// How many copies were paired with their request.
    #[must_use]
    pub fn paired(&self, target: usize) -> u64 {
        self.paired.get(target).copied().unwrap_or(0)
    }

    /// How many copies were forgotten because the account of their request never came.
    #[must_use]
    pub const fn unpaired(&self) -> u64 {
        self.unpaired
    }

    /// How many pairs and comparisons were counted only, because all cards are in use.
    #[must_use]
    pub const fn overflowed(&self) -> u64 {
        self.overflowed
    }

    /// The memory that the cards take, in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.cards.values().map(Card::memory_bytes).sum()
    }
}

/// What is known of one target for one route, model and cost class.
#[derive(Clone, Debug)]
pub struct CardSnapshot {
    /// The route.
    pub route: LabelId,
    /// The model.
    pub model: LabelId,
    /// The cost class; `None` where the work is unknown.
    pub class: Option<u8>,
    /// The report of each figure that both sides have; the first is the total.
    pub figures: Vec<(PairFigure, LatencyReport)>,
}

/// What is known of one target.
#[derive(Clone, Debug)]
pub struct TargetSnapshot {
    /// Copies that were paired with their request.
    pub paired: u64,
    /// By route, model and class.
    pub cards: Vec<CardSnapshot>,
}

impl PairTable {
    /// The ratios of the pairs of a target, by route, model and figure, over all cost classes.
    #[must_use]
    pub fn ratios(&self, target: usize) -> BTreeMap<(LabelId, LabelId, PairFigure), RatioHistogram> {
        let mut sums: BTreeMap<_, RatioHistogram> = BTreeMap::new();
        for (key, card) in self.cards.iter().filter(|(key, _)| key.target == target) {
            for (figure, ratios) in card.ratios() {
                let sum = sums.entry((key.route, key.model, figure)).or_default();
                sum.buckets.iter_mut().zip(ratios.buckets).for_each(|(sum, count)| *sum += count);
                sum.sum_millionths = sum.sum_millionths.saturating_add(ratios.sum_millionths);
            }
        }
        sums
    }

    /// Requests that are copied (the candidate) against those that are not, by route, model and cost class: the total alone.
    #[must_use]
    pub fn contention(&self) -> Vec<CardSnapshot> {
        let snapshot =
            |((route, model, class), report)| CardSnapshot { route, model, class, figures: vec![(PairFigure::Total, report)] };
        self.contention.reports().into_iter().map(snapshot).collect()
    }

    /// The counts of a target by figure, over all routes, models and cost classes.
    #[must_use]
    pub fn pooled(&self, target: usize) -> BTreeMap<PairFigure, PairCounts> {
        let mut pooled: BTreeMap<_, PairCounts> = BTreeMap::new();
        for (_, card) in self.cards.iter().filter(|(key, _)| key.target == target) {
            for (figure, counts) in card.counts() {
                pooled.entry(figure).or_default().merge(counts);
            }
        }
        pooled
    }

    /// What is known of the target at this place.
    #[must_use]
    pub fn target(&self, target: usize) -> TargetSnapshot {
        let mut keys: Vec<&CardKey> = self.cards.keys().filter(|key| key.target == target).collect();
        keys.sort();
        let cards = keys.into_iter().map(|key| CardSnapshot {
            route: key.route,
            model: key.model,
            class: key.class,
            figures: self.cards.get(key).map(Card::reports).unwrap_or_default(),
        });
        TargetSnapshot { paired: self.paired(target), cards: cards.collect() }
    }
}

#[cfg(test)]
mod tests;
