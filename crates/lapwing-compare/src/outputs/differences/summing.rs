//! The account summed up to what is shown of it, by what is known about the noise now; and accounts of several pods added up.

use std::collections::BTreeMap;

use super::super::comparison::{DifferenceKind, ERROR_STEPS, Incomparable, KindSet};
use super::bins::magnitude;
use super::noise::{Judgement, Z_SHOWN, wilson};
use super::snapshot::{
    DifferencesSnapshot, ErrorStepSnapshot, FieldSnapshot, KindSnapshot, MismatchSnapshot, NumberSnapshot, OutputsVerdict,
    RepeatSnapshot, SampleSnapshot, SetSnapshot, TextSnapshot, UnjudgedSnapshot,
};
use super::tally::{FieldTally, NumberTally};
use super::{DifferenceSet, Differences, Differing, OtherSets, canonical};

impl Differences {
    /// The account as it is.
    #[must_use]
    pub fn snapshot(&self) -> DifferencesSnapshot {
        let [candidate, itself] = &self.sides;
        let incomparable: BTreeMap<_, _> =
            Incomparable::ALL.into_iter().map(Incomparable::name).zip(candidate.incomparable).collect();
        let mut fields: Vec<FieldSnapshot> = (0..).zip(&self.fields).map(|(id, field)| self.field_snapshot(id, field)).collect();
        let differing = |field: &FieldSnapshot| field.kinds.iter().map(|kind| kind.answers).max().unwrap_or(0);
        let key = |field: &FieldSnapshot| (std::cmp::Reverse(differing(field)), field.field.clone(), field.model.clone());
        fields.sort_by_cached_key(key);
        let judged = self.judged();
        let pairs = candidate.compared() + candidate.incomparable.iter().sum::<u64>();
        let unjudged = UnjudgedSnapshot::new(judged.unjudged(), &incomparable, pairs);
        let mismatches = self.mismatches(judged.mismatches, judged.excused, pairs);
        let mut snapshot = DifferencesSnapshot {
            verdict: OutputsVerdict::of(mismatches.answers, &unjudged, pairs),
            summary: String::new(),
            tolerance: self.tolerance,
            compared: candidate.compared(),
            same: candidate.same,
            different: candidate.different,
            incomparable,
            repeats: RepeatSnapshot { compared: itself.compared(), different: itself.different },
            mismatches,
            unjudged,
            errors: self.errors(),
            fields,
            sets: self.sets(),
            sets_left_out: candidate.other_sets.total(),
            samples: self
                .samples
                .iter()
                .map(|(trace, payloads)| SampleSnapshot { trace: *trace, payloads: payloads.clone() })
                .collect(),
        };
        snapshot.summary = snapshot.summary();
        snapshot
    }

    fn mismatches(&self, answers: u64, excused: u64, pairs: u64) -> MismatchSnapshot {
        let candidate = &self.sides[0];
        let mut kinds = BTreeMap::new();
        for (set, count) in &candidate.sets {
            let blamed = |one: &&Differing| self.noise(one.field).judge(one.size, one.hint) == Judgement::Mismatch;
            let of_set = set.iter().filter(blamed).fold(KindSet::default(), |kinds, one| kinds.union(one.kinds));
            of_set.iter().for_each(|kind| *kinds.entry(kind.name()).or_insert(0) += count);
        }
        let judged = candidate.same + excused + answers;
        let (low, high) = wilson((answers, judged), Z_SHOWN);
        MismatchSnapshot {
            answers,
            excused,
            excused_share: excused as f64 / pairs.max(1) as f64,
            judged,
            rate: (judged > 0).then(|| answers as f64 / judged as f64),
            interval: [low, high],
            kinds,
        }
    }

    fn errors(&self) -> Vec<ErrorStepSnapshot> {
        let [candidate, itself] = &self.sides;
        let elements = |step: usize| self.fields.iter().map(|field| field.sides[0].numbers.exceeding[step]).sum();
        let snapshot = |(step, above): (usize, f64)| ErrorStepSnapshot {
            above,
            answers: candidate.exceeding[step],
            answers_with_numbers: candidate.with_numbers,
            elements: elements(step),
            repeats: itself.exceeding[step],
        };
        ERROR_STEPS.into_iter().enumerate().map(snapshot).collect()
    }

    fn field_snapshot(&self, id: u16, field: &FieldTally) -> FieldSnapshot {
        let [candidate, itself] = &field.sides;
        let noise = self.noise(id);
        let mut judged = [OtherSets::default(); DifferenceKind::ALL.len()];
        for (one, answers) in self.sides[0].sets.iter().flat_map(|(set, answers)| set.iter().zip(std::iter::repeat(*answers))) {
            for kind in one.kinds.iter().filter(|_| one.field == id) {
                judged[kind as usize].add(noise.judge(one.size, one.hint), answers);
            }
        }
        let kind = |kind: DifferenceKind| {
            let (answers, repeats) = (candidate.kinds[kind as usize], itself.kinds[kind as usize]);
            let OtherSets { mismatches: blamed, unjudged, .. } = judged[kind as usize];
            let unjudged = unjudged.iter().sum();
            (answers + repeats > 0).then_some(KindSnapshot {
                kind,
                answers,
                repeats,
                blamed,
                unjudged,
                is_noise: blamed == 0 && repeats > 0,
            })
        };
        FieldSnapshot {
            field: field.name.clone(),
            model: self.models[field.model].name.clone(),
            kinds: DifferenceKind::ALL.into_iter().filter_map(kind).collect(),
            scale: field.magnitudes.quantile(0.5).map(magnitude),
            excused_size: noise.excused_size(),
            is_time: field.is_stamped,
            numbers: NumberSnapshot::of(&candidate.numbers, &itself.numbers),
            repeated_numbers: NumberSnapshot::of(&itself.numbers, &NumberTally::default()),
            texts: TextSnapshot::of(&candidate.texts),
            worst: candidate.worst.clone(),
            repeated_worst: itself.worst.clone(),
        }
    }

    /// The sets of both sides, the most frequent first.
    fn sets(&self) -> Vec<SetSnapshot> {
        // sizes are left out
        let mut sums: BTreeMap<Vec<(String, DifferenceKind)>, [u64; 2]> = BTreeMap::new();
        let named = |set: &DifferenceSet| -> Vec<(String, DifferenceKind)> {
            let kinds = set.iter().flat_map(|one| one.kinds.iter().map(move |kind| (one.field, kind)));
            let mut named: Vec<_> = kinds.map(|(field, kind)| (self.fields[usize::from(field)].name.clone(), kind)).collect();
            named.sort_unstable();
            named
        };
        for (side, tally) in self.sides.iter().enumerate() {
            tally.sets.iter().for_each(|(set, answers)| sums.entry(named(set)).or_default()[side] += answers);
        }
        let set = |(differs, [answers, repeats]): (_, [u64; 2])| SetSnapshot { differs, answers, repeats };
        let mut sets: Vec<SetSnapshot> = sums.into_iter().map(set).collect();
        sets.sort_by(|a, b| b.answers.cmp(&a.answers).then(b.repeats.cmp(&a.repeats)).then_with(|| a.differs.cmp(&b.differs)));
        sets
    }
}

impl UnjudgedSnapshot {
    fn new(of_noise: impl Iterator<Item = (&'static str, u64)>, incomparable: &BTreeMap<&'static str, u64>, pairs: u64) -> Self {
        let all = of_noise.chain(incomparable.iter().map(|(reason, count)| (*reason, *count)));
        let reasons: BTreeMap<_, _> = all.filter(|(_, count)| *count > 0).collect();
        let unjudged = reasons.values().sum();
        Self { pairs: unjudged, share: unjudged as f64 / pairs.max(1) as f64, reasons }
    }
}

impl Differences {
    /// Adds the account of another pod. The result is that of all answers together, in any order of adding; only where a bound was
    /// exceeded may the order decide which fields and sets are distinguished.
    pub fn merge(&mut self, other: &Self) {
        self.is_noise_measured |= other.is_noise_measured;
        let models: Vec<usize> = other.models.iter().map(|model| self.model(&model.name)).collect();
        for (at, model) in models.iter().zip(&other.models) {
            self.models[*at].compared.iter_mut().zip(model.compared).for_each(|(a, b)| *a += b);
        }
        let ids: Vec<u16> = other.fields.iter().map(|field| self.field(models[field.model], &field.name)).collect();
        for (id, field) in ids.iter().zip(&other.fields) {
            let own = &mut self.fields[usize::from(*id)];
            own.magnitudes.merge(&field.magnitudes);
            own.is_stamped |= field.is_stamped;
            for (own, other) in own.sides.iter_mut().zip(&field.sides) {
                own.kinds.iter_mut().zip(other.kinds).for_each(|(a, b)| *a += b);
                own.sizes.merge(&other.sizes);
                own.numbers.add(&other.numbers);
                own.texts.add(&other.texts);
                other.worst.iter().for_each(|case| own.add_worst(case.clone()));
            }
        }
        for (own, other) in self.sides.iter_mut().zip(&other.sides) {
            own.same += other.same;
            own.different += other.different;
            own.with_numbers += other.with_numbers;
            own.other_sets.merge(&other.other_sets);
            own.incomparable.iter_mut().zip(other.incomparable).for_each(|(a, b)| *a += b);
            own.exceeding.iter_mut().zip(other.exceeding).for_each(|(a, b)| *a += b);
        }
        for (side, other) in other.sides.iter().enumerate() {
            for (set, answers) in &other.sets {
                let own = |one: &Differing| Differing { field: ids[usize::from(one.field)], ..*one };
                self.count_set(side, canonical(set.iter().map(own).collect()), *answers);
            }
        }
        for (trace, sample) in &other.samples {
            self.keep_sample(*trace, sample);
        }
    }
}
