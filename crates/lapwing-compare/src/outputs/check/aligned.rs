//! The edit distance of two sequences of tokens, with a bound on its cost.
//!
//! Landau and Vishkin's furthest-reaching diagonals: with `d` edits it takes O(d²) steps, and as many as there are equal tokens to pass,
//! so nearly equal texts of any size are cheap. Texts that are large and different end at the budget, with a lower bound.

/// A distance in insertions, removals and replacements of one token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EditDistance {
    Exact(usize),
    /// The budget was spent: the distance is at least this.
    AtLeast(usize),
}

/// The distance of two sequences. Each step is taken from `budget`.
pub(crate) fn edit_distance(a: &[u64], b: &[u64], budget: &mut u64) -> EditDistance {
    let prefix = a.iter().zip(b).take_while(|(a, b)| a == b).count();
    let (a, b) = (&a[prefix..], &b[prefix..]);
    let suffix = a.iter().rev().zip(b.iter().rev()).take_while(|(a, b)| a == b).count();
    let (a, b) = (&a[..a.len() - suffix], &b[..b.len() - suffix]);
    if a.is_empty() || b.is_empty() {
        return EditDistance::Exact(a.len().max(b.len()));
    }
    let at_least = unshared(a, b);
    let (n, m) = (a.len(), b.len());
    // reached[d + edits + 1] is how far into `a` diagonal `d` (the place in `b` less that in `a`) came; 0 is "not yet", else one more
    let mut reached: Vec<usize> = vec![0; 3];
    for edits in 0..=n.max(m) {
        let width = 2 * edits + 1;
        if !spend(budget, width) {
            return EditDistance::AtLeast(edits.max(at_least));
        }
        let mut next = vec![0; width + 2];
        for slot in 0..width {
            // diagonal = slot - edits; `reached` has one edit less, so its slot of the same diagonal is one less
            let before = |offset: usize| (slot + offset).checked_sub(1).and_then(|at| reached.get(at)).copied().unwrap_or(0);
            // of `reached`, with its margin of one: insertion came from diagonal - 1, replacement from the same, removal from + 1
            let start = if edits == 0 {
                1
            } else {
                let (inserted, replaced, removed) = (before(0), before(1), before(2));
                inserted.max(if replaced > 0 { replaced + 1 } else { 0 }).max(if removed > 0 { removed + 1 } else { 0 })
            };
            if start == 0 {
                continue;
            }
            let mut i = (start - 1).min(n);
            let Some(mut j) = (i + slot).checked_sub(edits).filter(|j| *j <= m) else { continue };
            let from = i;
            while i < n && j < m && a[i] == b[j] {
                (i, j) = (i + 1, j + 1);
            }
            if i == n && j == m {
                return EditDistance::Exact(edits);
            }
            next[slot + 1] = i + 1;
            if !spend(budget, i - from) {
                return EditDistance::AtLeast(edits.max(at_least));
            }
        }
        reached = next;
    }
    EditDistance::Exact(n.max(m))
}

/// Takes steps from the budget. Returns whether it had that many; otherwise nothing is left.
fn spend(budget: &mut u64, steps: usize) -> bool {
    let left = budget.checked_sub(steps as u64);
    *budget = left.unwrap_or(0);
    left.is_some()
}

/// How many tokens of the longer sequence have no equal in the other, in any order: a lower bound of the distance.
fn unshared(a: &[u64], b: &[u64]) -> usize {
    let (mut a, mut b) = (a.to_vec(), b.to_vec());
    a.sort_unstable();
    b.sort_unstable();
    let (mut i, mut j, mut shared) = (0, 0, 0);
    while let (Some(x), Some(y)) = (a.get(i), b.get(j)) {
        shared += usize::from(x == y);
        i += usize::from(x <= y);
        j += usize::from(y <= x);
    }
    a.len().max(b.len()) - shared
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The textbook's table.
    fn by_table(a: &[u64], b: &[u64]) -> usize {
        let mut row: Vec<usize> = (0..=b.len()).collect();
        for (i, x) in a.iter().enumerate() {
            let mut diagonal = std::mem::replace(&mut row[0], i + 1);
            for (j, y) in b.iter().enumerate() {
                let best = (diagonal + usize::from(x != y)).min(row[j] + 1).min(row[j + 1] + 1);
                diagonal = std::mem::replace(&mut row[j + 1], best);
            }
        }
        row[b.len()]
    }

    proptest! {
        #[test]
        fn the_distance_is_that_of_the_table(
            a in prop::collection::vec(0_u64..4, 0..40),
            b in prop::collection::vec(0_u64..4, 0..40),
            budget in prop_oneof![Just(u64::MAX), 0_u64..300],
        ) {
            let expected = by_table(&a, &b);
            let mut left = budget;
            match edit_distance(&a, &b, &mut left) {
                EditDistance::Exact(distance) => prop_assert_eq!(distance, expected),
                EditDistance::AtLeast(bound) => {
                    prop_assert!(bound <= expected && budget < u64::MAX && left == 0, "{} {}", bound, expected);
                }
            }
        }
    }

    #[test]
    fn large_texts_end_at_the_budget() {
        let a: Vec<u64> = (0..500_000).collect();
        let b: Vec<u64> = (1_000_000..1_500_000).collect();
        let mut budget = 100_000;
        // no token is shared, which is known without an alignment
        assert_eq!(edit_distance(&a, &b, &mut budget), EditDistance::AtLeast(500_000));
        // one edit in half a million tokens is exact
        let mut near = a.clone();
        near[250_000] = 7;
        near.remove(400_000);
        assert_eq!(edit_distance(&a, &near, &mut 2_000_000), EditDistance::Exact(2));
    }
}
