//! In how many time blocks outputs differed: mismatches come in bursts, and then the blocks count, not the requests.

/// Blocks with comparisons, and those of them with a mismatch.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct MismatchBlocks {
    /// Closed blocks in which outputs were compared.
    pub(crate) compared: u64,
    /// Those with at least one mismatch.
    pub(crate) with_mismatch: u64,
    mismatches_before: u64,
    comparisons_before: u64,
}

impl MismatchBlocks {
    pub(crate) fn close_block(&mut self, mismatches: u64, comparisons: u64) {
        self.compared += u64::from(comparisons > self.comparisons_before);
        self.with_mismatch += u64::from(mismatches > self.mismatches_before);
        (self.mismatches_before, self.comparisons_before) = (mismatches, comparisons);
    }
}
