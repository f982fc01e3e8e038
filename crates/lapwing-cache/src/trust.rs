//! Whether an upstream gives the same answer to the same question: shown before anything is answered from here, and looked at
//! ever after.
//!
//! Each time a request comes whose question was answered before, and whose earlier answer would still be good, the upstream's new
//! answer is compared with it. Of a series (a route and a model), requests are answered from here once so many comparisons in a
//! row have found the same; from then on a share of the hits is asked all the same and compared. Too many differences, by the
//! limit, and the series is asked again in all cases, until its generation ends: because somebody purged, the upstream restarted,
//! or the model's version changed.

use parking_lot::RwLock;
use rustc_hash::FxHashMap;

use crate::verify::{HitCheck, HitVerification, StaleLimit};
use lapwing_ledger::{LabelId, SeriesKey};

/// How many series are told apart. Requests of further ones are never answered from here.
const MAX_SERIES: usize = 1_024;

/// What is trusted together: the requests of a route to a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CacheSeries {
    /// The route.
    pub route: LabelId,
    /// The model.
    pub model: LabelId,
}

impl CacheSeries {
    /// Whether it has names of its own; the model's only if it is known.
    pub(crate) fn is_named(self, has_model: bool) -> bool {
        self.route != LabelId::OTHER && !(has_model && self.model == LabelId::OTHER)
    }
}

impl From<SeriesKey> for CacheSeries {
    fn from(key: SeriesKey) -> Self {
        Self { route: key.route, model: key.model }
    }
}

/// How far a series is trusted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TrustState {
    /// It has not been seen often enough to give the same answer.
    #[default]
    Unproven,
    /// It has: requests may be answered from here.
    Proven,
    /// It gave another answer to the same question.
    Refused,
}

impl TrustState {
    /// Its name on every surface.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unproven => "unproven",
            Self::Proven => "proven",
            Self::Refused => "refused",
        }
    }
}

/// What is known of a series.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SeriesTrust {
    /// How far it is trusted.
    pub state: TrustState,
    /// What was compared since its generation began.
    pub seen: HitVerification,
    /// What the upstream takes, in nanoseconds: a mean of which the latest answer is an eighth; 0 if it is not known.
    pub service_ns: u64,
}

/// What is demanded of a series.
#[derive(Clone, Copy, Debug)]
pub struct TrustRules {
    /// How many comparisons have to find the same before requests are answered from here.
    pub proof: u64,
    /// When they are not any more.
    pub limit: StaleLimit,
}

/// How far each series is trusted.
#[derive(Debug, Default)]
pub struct CacheTrust {
    series: RwLock<FxHashMap<CacheSeries, SeriesTrust>>,
}

impl CacheTrust {
    /// How far a series is trusted.
    #[must_use]
    pub fn state(&self, series: CacheSeries, rules: TrustRules) -> TrustState {
        let all = self.series.read();
        match all.get(&series) {
            Some(trust) => trust.state,
            // of one beyond the bound nobody would notice that it says something else
            None if rules.proof == 0 && all.len() < MAX_SERIES => TrustState::Proven,
            None => TrustState::Unproven,
        }
    }

    /// Notes what the upstream took for an answer of a series that is known.
    pub(crate) fn took(&self, series: CacheSeries, ns: u64) {
        if let Some(SeriesTrust { service_ns, .. }) = self.series.write().get_mut(&series) {
            *service_ns = if *service_ns == 0 { ns } else { *service_ns - *service_ns / 8 + ns / 8 };
        }
    }

    /// What the upstream takes for an answer of a series, in nanoseconds, if that is known.
    pub(crate) fn service_ns(&self, series: CacheSeries) -> Option<u64> {
        self.series.read().get(&series).map(|trust| trust.service_ns).filter(|ns| *ns > 0)
    }

    /// Notes a comparison. Whether the series has just lost its trust: then its answers are to be forgotten.
    #[must_use]
    pub fn note(&self, series: CacheSeries, check: HitCheck, rules: TrustRules) -> bool {
        let mut all = self.series.write();
        if all.len() >= MAX_SERIES && !all.contains_key(&series) {
            // names give way, and what was never shown of theirs is no loss
            all.retain(|_, trust| trust.state != TrustState::Unproven);
            if all.len() >= MAX_SERIES {
                return false;
            }
        }
        let trust = all.entry(series).or_default();
        if trust.state == TrustState::Unproven && rules.proof == 0 {
            trust.state = TrustState::Proven;
        }
        let is_off = trust.seen.note(check, rules.limit);
        let was = trust.state;
        trust.state = match was {
            _ if is_off => TrustState::Refused,
            TrustState::Unproven if trust.seen.compared().0 >= rules.proof => TrustState::Proven,
            state => state,
        };
        was == TrustState::Proven && is_off
    }

    /// Forgets what was known of all, or of those of a model: it is shown anew.
    pub fn forget(&self, model: Option<LabelId>) {
        self.series.write().retain(|series, _| model.is_some_and(|model| series.model != model));
    }

    /// What is known of each, in order.
    #[must_use]
    pub fn list(&self) -> Vec<(CacheSeries, SeriesTrust)> {
        let mut all: Vec<_> = self.series.read().iter().map(|(series, trust)| (*series, *trust)).collect();
        all.sort_unstable_by_key(|(series, _)| *series);
        all
    }
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use super::*;
    use lapwing_ledger::LabelTable;

    const RULES: TrustRules = TrustRules { proof: 3, limit: StaleLimit::First };

    /// Of this route, and a model by its number.
    fn series(model: usize) -> CacheSeries {
        static MODELS: LazyLock<LabelTable> = LazyLock::new(|| LabelTable::with_idle(4 * MAX_SERIES, u64::MAX));
        CacheSeries { route: LabelId::OTHER, model: MODELS.intern(&model.to_string()) }
    }

    #[test]
    fn a_series_is_trusted_once_it_has_shown_so_often_that_it_says_the_same() {
        let trust = CacheTrust::default();
        let one = series(1);
        for _ in 0..2 {
            assert!(!trust.note(one, HitCheck::Fresh, RULES));
            assert_eq!(trust.state(one, RULES), TrustState::Unproven);
        }
        assert!(!trust.note(one, HitCheck::Unanswered, RULES));
        assert_eq!(trust.state(one, RULES), TrustState::Unproven, "who failed has shown nothing");
        assert!(!trust.note(one, HitCheck::Fresh, RULES));
        assert_eq!(trust.state(one, RULES), TrustState::Proven);
        assert_eq!(trust.state(series(2), RULES), TrustState::Unproven, "another one has to show it too");
        assert!(trust.note(one, HitCheck::Stale, RULES), "its answers go");
        assert!((0..9).all(|_| !trust.note(one, HitCheck::Fresh, RULES)));
        assert_eq!(trust.state(one, RULES), TrustState::Refused, "until its generation ends");
        trust.forget(Some(series(2).model));
        assert_eq!(trust.state(one, RULES), TrustState::Refused);
        trust.forget(Some(one.model));
        assert_eq!(trust.state(one, RULES), TrustState::Unproven);
    }

    #[test]
    fn who_differs_before_the_proof_is_refused_and_a_share_may_be_allowed() {
        let trust = CacheTrust::default();
        assert!(!trust.note(series(1), HitCheck::Stale, RULES), "nothing was answered from here");
        assert_eq!(trust.state(series(1), RULES), TrustState::Refused);
        let some = TrustRules { proof: 10, limit: StaleLimit::Share(0.2) };
        for at in 0..20 {
            let check = if at % 10 == 9 { HitCheck::Stale } else { HitCheck::Fresh };
            assert!(!trust.note(series(2), check, some));
        }
        assert_eq!(trust.state(series(2), some), TrustState::Proven);
        let none = TrustRules { proof: 0, ..RULES };
        assert_eq!(trust.state(series(3), none), TrustState::Proven, "nobody asked for a proof");
        assert!(trust.note(series(3), HitCheck::Stale, none));
        assert_eq!(trust.state(series(3), none), TrustState::Refused);
    }

    #[test]
    fn series_beyond_the_bound_are_never_trusted() {
        let trust = CacheTrust::default();
        for model in 0..MAX_SERIES + 10 {
            (0..3).for_each(|_| assert!(!trust.note(series(model), HitCheck::Fresh, RULES)));
        }
        assert_eq!(trust.list().len(), MAX_SERIES);
        assert_eq!(trust.state(series(MAX_SERIES + 1), RULES), TrustState::Unproven);
    }
}
