//! In how many time blocks outputs differed: mismatches come in bursts, and then the blocks count, not the requests.

/// Blocks with comparisons, and those of them with a mismatch.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::shadow::ab) struct MismatchBlocks {
    /// Closed blocks in which outputs were compared.
    pub(in crate::shadow::ab) compared: u64,
    /// Those with at least one mismatch.
    pub(in crate::shadow::ab) with_mismatch: u64,
    mismatches_before: u64,
    comparisons_before: u64,
}

impl MismatchBlocks {
    pub(super) fn close_block(&mut self, mismatches: u64, comparisons: u64) {
        self.compared += u64::from(comparisons > self.comparisons_before);
        self.with_mismatch += u64::from(mismatches > self.mismatches_before);
        (self.mismatches_before, self.comparisons_before) = (mismatches, comparisons);
    }
}
