//! Accounts of several pods added up.

use super::{Differences, Differing, canonical};

impl Differences {
    /// Adds the account of another pod. The result is that of all answers together, in any order of adding; only where a bound was
    /// passed may it depend on the order which fields and sets are told apart.
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
            self.keep(*trace, sample);
        }
    }
}
