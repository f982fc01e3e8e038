//! Accounts of several pods added up.

use super::{DifferenceSet, Differences, canonical};

impl Differences {
    /// Adds the account of another pod. The result is that of all answers together, in any order of adding; only where a bound was
    /// passed may it depend on the order which fields and sets are told apart.
    pub fn merge(&mut self, other: &Self) {
        let ids: Vec<u16> = other.fields.iter().map(|field| self.field(&field.name)).collect();
        for (id, field) in ids.iter().zip(&other.fields) {
            let own = &mut self.fields[usize::from(*id)];
            for (own, other) in own.sides.iter_mut().zip(&field.sides) {
                own.kinds.iter_mut().zip(other.kinds).for_each(|(a, b)| *a += b);
                own.numbers.add(&other.numbers);
                own.texts.add(&other.texts);
                other.worst.iter().for_each(|case| own.add_worst(case.clone()));
            }
        }
        for (own, other) in self.sides.iter_mut().zip(&other.sides) {
            own.same += other.same;
            own.different += other.different;
            own.with_numbers += other.with_numbers;
            own.other_sets += other.other_sets;
            own.incomparable.iter_mut().zip(other.incomparable).for_each(|(a, b)| *a += b);
            own.exceeding.iter_mut().zip(other.exceeding).for_each(|(a, b)| *a += b);
            for (set, answers) in &other.sets {
                let set: DifferenceSet = set.iter().map(|(field, kinds)| (ids[usize::from(*field)], *kinds)).collect();
                own.count_set(canonical(set), *answers);
            }
        }
        for (trace, sample) in &other.samples {
            self.keep(*trace, sample);
        }
    }
}
