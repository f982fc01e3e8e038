//! What the pairs say, copied out for a report.

use std::collections::BTreeMap;

use super::card::RatioHistogram;
use super::half::PairFigure;
use super::{CardKey, PairTable};
use lapwing_compare::ab::{LatencyReport, PairCounts};
use lapwing_ledger::LabelId;

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
            figures: self.cards.get(key).map(super::Card::reports).unwrap_or_default(),
        });
        TargetSnapshot { paired: self.paired(target), cards: cards.collect() }
    }
}
