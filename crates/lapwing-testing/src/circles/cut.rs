//! The order of modules against which the fewest uses go: without these there is no circle.

/// Up to this many modules the order is the best one (2ⁿ·n² steps); of more it is one that no move of a single module betters.
const MAX_EXACT: usize = 16;

/// The order in which the sum of `weights[later][earlier]` is lowest: a module before those that it uses.
pub(crate) fn order(weights: &[Vec<u64>]) -> Vec<usize> {
    match weights.len() {
        0..=MAX_EXACT => exact(weights),
        _ => bettered(weights),
    }
}

/// For each set of modules, the cost of the best order that begins with them, and its last module.
fn exact(weights: &[Vec<u64>]) -> Vec<usize> {
    let all = (1_usize << weights.len()) - 1;
    let mut best = vec![(u64::MAX, 0); all + 1];
    best[0] = (0, 0);
    for set in 0..all {
        for (next, its) in weights.iter().enumerate().filter(|(next, _)| set & (1 << next) == 0) {
            let against: u64 =
                its.iter().enumerate().filter(|(earlier, _)| set & (1 << earlier) != 0).map(|(_, weight)| weight).sum();
            let with = set | (1 << next);
            best[with] = best[with].min((best[set].0 + against, next));
        }
    }
    let mut order = Vec::new();
    let mut set = all;
    while set != 0 {
        let last = best[set].1;
        order.push(last);
        set &= !(1 << last);
    }
    order.reverse();
    order
}

/// Begins with the modules that use most in relation to how much they are used, and moves single ones as long as that helps.
fn bettered(weights: &[Vec<u64>]) -> Vec<usize> {
    let mut left: Vec<usize> = (0..weights.len()).collect();
    let mut order = Vec::new();
    while !left.is_empty() {
        let balance = |module: usize| -> i128 {
            left.iter().map(|other| i128::from(weights[module][*other]) - i128::from(weights[*other][module])).sum()
        };
        let first = (0..left.len()).max_by_key(|at| balance(left[*at])).unwrap_or(0);
        order.push(left.remove(first));
    }
    let mut cost = cost_of(&order, weights);
    loop {
        let mut better = None;
        for from in 0..order.len() {
            for to in (0..order.len()).filter(|to| *to != from) {
                let mut moved = order.clone();
                let module = moved.remove(from);
                moved.insert(to, module);
                let moved_cost = cost_of(&moved, weights);
                if moved_cost < cost {
                    cost = moved_cost;
                    better = Some(moved);
                }
            }
        }
        match better {
            Some(moved) => order = moved,
            None => return order,
        }
    }
}

fn cost_of(order: &[usize], weights: &[Vec<u64>]) -> u64 {
    let against = |at: usize| order[..at].iter().map(move |earlier| weights[order[at]][*earlier]).sum::<u64>();
    (0..order.len()).map(against).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The weights of edges between `n` modules.
    fn weights(n: usize, edges: &[(usize, usize, u64)]) -> Vec<Vec<u64>> {
        let mut weights = vec![vec![0; n]; n];
        for (from, to, weight) in edges {
            weights[*from][*to] = *weight;
        }
        weights
    }

    #[test]
    fn the_lightest_edges_go_against_the_order() {
        // 0 → 1 → 2 → 0 is lightest at 2 → 0; 1 ↔ 2 at 2 → 1
        let weights = weights(3, &[(0, 1, 5), (1, 2, 5), (2, 0, 2), (2, 1, 1)]);
        assert_eq!(exact(&weights), [0, 1, 2]);
        assert_eq!(cost_of(&[0, 1, 2], &weights), 3);
        assert_eq!(bettered(&weights), [0, 1, 2]);
    }

    #[test]
    fn a_large_circle_is_broken_at_its_lightest_edge() {
        let n = 20;
        let ring: Vec<_> = (0..n).map(|i| (i, (i + 1) % n, if i == 7 { 1 } else { 9 })).collect();
        let weights = weights(n, &ring);
        assert_eq!(cost_of(&order(&weights), &weights), 1);
    }
}
