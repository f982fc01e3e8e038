//! Whose turn it is between classes: deficit round robin (Shreedhar and Varghese, 1995) in predicted nanoseconds. A class gets time in
//! proportion to its weight while it has something to send, and saves nothing while it has not.

/// The turn among some classes.
#[derive(Clone, Debug)]
pub(crate) struct Turns {
    weights: Box<[u32]>,
    deficits: Box<[f64]>,
    at: usize,
    /// Empty, with room for the classes that have something to send and its cost.
    waiting: Vec<(usize, f64)>,
}

impl Turns {
    /// Each weight at least 1.
    pub(crate) fn new(weights: Box<[u32]>) -> Self {
        Self { deficits: vec![0.0; weights.len()].into(), waiting: Vec::with_capacity(weights.len()), weights, at: 0 }
    }

    /// The class that sends next, of those with a cost in nanoseconds for what they would send; it has paid for it.
    #[allow(clippy::cast_precision_loss, reason = "times below years")]
    pub(crate) fn next(&mut self, costs: impl Fn(usize) -> Option<u64>) -> Option<usize> {
        let mut waiting = std::mem::take(&mut self.waiting);
        waiting.clear();
        waiting.extend((0..self.weights.len()).filter_map(|class| Some((class, costs(class)?.max(1) as f64))));
        let next = self.next_of(&waiting);
        self.waiting = waiting;
        next
    }

    fn next_of(&mut self, waiting: &[(usize, f64)]) -> Option<usize> {
        let count = self.weights.len();
        for class in 0..count {
            if !waiting.iter().any(|(other, _)| *other == class) {
                self.deficits[class] = 0.0;
            }
        }
        if let [(only, _)] = *waiting {
            self.deficits[only] = 0.0;
            self.at = only;
            return Some(only);
        }
        // a round serves at least one of them
        let weight = |class: usize| f64::from(self.weights[class].max(1));
        let rounds = |(class, cost): &(usize, f64)| (cost - self.deficits[*class]).max(0.0) / weight(*class);
        let quantum = waiting.iter().map(rounds).min_by(f64::total_cmp)?;
        if !self.affords(waiting, self.at) {
            for (class, _) in waiting {
                self.deficits[*class] += quantum * f64::from(self.weights[*class].max(1));
            }
        }
        let next = (0..count).map(|step| (self.at + step) % count).find(|class| self.affords(waiting, *class))?;
        let cost = waiting.iter().find(|(class, _)| *class == next)?.1;
        self.deficits[next] -= cost;
        // its turn goes on while it can pay
        self.at = next;
        Some(next)
    }

    fn affords(&self, waiting: &[(usize, f64)], class: usize) -> bool {
        waiting.iter().any(|(other, cost)| *other == class && self.deficits[class] + 1e-6 >= *cost)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_divided_by_weight_whatever_each_request_costs() {
        let mut turns = Turns::new([3, 1, 1].into());
        let costs = [7_000_u64, 1_000, 90_000];
        let mut spent = [0_u64; 3];
        for _ in 0..20_000 {
            let class = turns.next(|class| Some(costs[class])).unwrap();
            spent[class] += costs[class];
        }
        let whole: u64 = spent.iter().sum();
        #[allow(clippy::cast_precision_loss)]
        let shares = spent.map(|one| one as f64 / whole as f64);
        assert!((shares[0] - 0.6).abs() < 0.01 && (shares[1] - 0.2).abs() < 0.01, "{shares:?}");
    }

    #[test]
    fn who_has_nothing_to_send_saves_nothing() {
        let mut turns = Turns::new([1, 1].into());
        assert_eq!(turns.next(|_| None), None);
        for _ in 0..100 {
            assert_eq!(turns.next(|class| (class == 1).then_some(10)), Some(1));
        }
        let first: Vec<_> = (0..10).map(|_| turns.next(|_| Some(10)).unwrap()).collect();
        assert_eq!(first.iter().filter(|class| **class == 0).count(), 5, "{first:?}");
    }
}
