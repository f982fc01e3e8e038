//! The batch sizes for which programs are compiled. A batch runs with the program of the next larger size; the surplus
//! thread blocks exit at once.

use lapwing_plan::plan::{BatchSize, Rows};

/// The largest batch that a program accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Capacity {
    /// Sequences; in a model without, rows.
    pub batch: usize,
    /// Tokens in total.
    pub tokens: usize,
    /// Whether the batch always has exactly this size, so that kernels need no header.
    pub is_exact: bool,
}

impl Capacity {
    /// The smallest capacity that holds a batch of this size.
    #[must_use]
    pub const fn holding(size: BatchSize) -> Self {
        Self { batch: step(size.batch), tokens: step(size.tokens), is_exact: false }
    }

    /// Exactly this size.
    #[must_use]
    pub const fn exactly(size: BatchSize) -> Self {
        Self { batch: size.batch, tokens: size.tokens, is_exact: true }
    }

    /// The most rows that a value can have.
    #[must_use]
    pub const fn rows(&self, rows: Rows) -> usize {
        match rows {
            Rows::Batch => self.batch,
            Rows::Token => self.tokens,
            // before anything is lowered, a plan with a past is refused
            Rows::Past | Rows::Context => 0,
        }
    }
}

/// Rounds up to the next step of 1, 2, 4, 8, 16, 32, 48, 64, 96, 128 …: above 32 at most half as large again.
const fn step(count: usize) -> usize {
    let above = count.next_power_of_two();
    let between = above / 4 * 3;
    if count > 32 && count <= between { between } else { above }
}

#[cfg(test)]
mod tests {
    use super::step;

    #[test]
    fn steps_are_at_most_half_again_as_large() {
        let steps: Vec<usize> = [1, 3, 5, 8, 9, 33, 48, 49, 65, 97, 4096, 4097].map(step).into();
        assert_eq!(steps, [1, 4, 8, 8, 16, 48, 48, 64, 96, 128, 4096, 6144]);
        assert!((33..5000).all(|count| step(count) >= count && 2 * step(count) <= 3 * count + 2));
    }
}
