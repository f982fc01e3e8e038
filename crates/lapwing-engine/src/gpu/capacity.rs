//! The sizes for which programs are made: a batch runs with the program of the next larger one, which costs it a few blocks
//! that end at once.

use crate::plan::{Rows, Size};

/// How large a batch may be that a program takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Capacity {
    /// Sequences; in a model without, rows.
    pub batch: usize,
    /// Tokens of all of them.
    pub tokens: usize,
    /// Whether batches have exactly this size, so that kernels need no header.
    pub is_exact: bool,
}

impl Capacity {
    /// The least that holds a batch of this size.
    #[must_use]
    pub const fn holding(size: Size) -> Self {
        Self { batch: step(size.batch), tokens: step(size.tokens), is_exact: false }
    }

    /// Exactly this size.
    #[must_use]
    pub const fn exactly(size: Size) -> Self {
        Self { batch: size.batch, tokens: size.tokens, is_exact: true }
    }

    /// How many rows such values have at most.
    #[must_use]
    pub const fn rows(&self, rows: Rows) -> usize {
        match rows {
            Rows::Batch => self.batch,
            Rows::Token => self.tokens,
        }
    }
}

/// The next step of 1, 2, 4, 8, 16, 32, 48, 64, 96, 128 …: never more than half again as large above 32.
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
