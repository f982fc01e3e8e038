//! A map from small numbers to values of which few occur, kept in the order of arrival and found through a table of one byte
//! each.
//!
//! A series has some sixty measures and uses a dozen or two; a dense array would be kept for each slot of time.

/// At most `N` values, `N` below 256; a number that never occurred costs one byte.
#[derive(Clone, Debug)]
pub(crate) struct Sparse<T, const N: usize> {
    /// By number: the position in `list` plus 1, or 0.
    places: [u8; N],
    list: Vec<T>,
}

impl<T, const N: usize> Default for Sparse<T, N> {
    fn default() -> Self {
        const { assert!(N < 256, "a place is one byte") };
        Self { places: [0; N], list: Vec::new() }
    }
}

impl<T: Default, const N: usize> Sparse<T, N> {
    /// An empty map with room for what this one holds, so that the next slot of time need not grow again.
    pub(crate) fn emptied(&self) -> Self {
        Self { places: [0; N], list: Vec::with_capacity(self.list.len()) }
    }

    /// The value of `number`, if it occurred; a number of `N` or more never does.
    pub(crate) fn get(&self, number: usize) -> Option<&T> {
        self.list.get(usize::from(*self.places.get(number)?).checked_sub(1)?)
    }

    /// The value of `number`, which must be below `N`; zero if it did not occur yet.
    pub(crate) fn at(&mut self, number: usize) -> &mut T {
        if self.places[number] == 0 {
            self.list.push(T::default());
            self.places[number] = self.list.len() as u8; // at most N
        }
        let place = usize::from(self.places[number]) - 1;
        &mut self.list[place]
    }

    /// Adds the values of `other` to those of the same number.
    pub(crate) fn merge(&mut self, other: &Self, merge: impl Fn(&mut T, &T)) {
        for (number, place) in other.places.iter().enumerate().filter(|(_, place)| **place > 0) {
            merge(self.at(number), &other.list[usize::from(*place) - 1]);
        }
    }

    /// The values in the order of arrival.
    pub(crate) fn list(&self) -> &[T] {
        &self.list
    }

    /// Reads from the table; the result has no meaning.
    pub(crate) fn line(&self) -> u64 {
        u64::from(self.places.first().copied().unwrap_or_default())
    }
}

/// Equal by number; the order of arrival does not matter.
impl<T: PartialEq + Default, const N: usize> PartialEq for Sparse<T, N> {
    fn eq(&self, other: &Self) -> bool {
        (0..N).all(|number| self.get(number) == other.get(number))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_is_a_map(mine in proptest::collection::vec((0..9_usize, 1..99_u32), 0..20), theirs in proptest::collection::vec((0..9_usize, 1..99_u32), 0..20)) {
            let mut map = BTreeMap::new();
            let mut of = |list: &[(usize, u32)]| {
                let mut sparse = Sparse::<u32, 9>::default();
                for (number, n) in list {
                    *sparse.at(*number) += n;
                    *map.entry(*number).or_insert(0) += n;
                }
                sparse
            };
            let (mut mine, theirs) = (of(&mine), of(&theirs));
            mine.merge(&theirs, |a, b| *a += b);
            for number in 0..12 {
                prop_assert_eq!(mine.get(number), map.get(&number));
            }
            prop_assert_eq!(mine.list().len(), map.len());
            prop_assert!(mine.emptied() == Sparse::default() && mine == mine.clone());
        }
    }
}
