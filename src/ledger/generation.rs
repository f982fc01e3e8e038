//! Token timing of a generated answer: AIPerf's measures, as the proxy observed them and as the server reports them.
//!
//! Offsets are nanoseconds from the request's start. "Token" means content: a chunk that only names a role does not count.

/// Token timing of one generated answer. Boxed in the ledger, because other requests have none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Generation {
    /// The read that brought the first content; `None` if the answer is not streamed or had no content.
    pub first_ns: Option<u64>,
    /// The read that brought the last content.
    pub last_ns: Option<u64>,
    /// Chunks with content.
    pub chunks: u64,
    /// The gaps between consecutive chunks with content, in microseconds; at most [`Self::GAPS`].
    pub gaps_us: Vec<u32>,
    /// Gaps that were not kept because there was no room.
    pub gaps_dropped: u64,
    /// Time to first token as the server reports it, from arrival there, including the queue.
    pub server_first_token_ns: Option<u64>,
    /// Mean time per output token after the first, as the server reports it.
    pub server_per_output_token_ns: Option<u64>,
}

impl Generation {
    /// The most gaps that one answer keeps: 64 KiB.
    pub const GAPS: usize = 16_384;

    /// Records a chunk with content, `at_ns` from the request's start.
    pub fn content(&mut self, at_ns: u64) {
        self.chunks += 1;
        self.first_ns.get_or_insert(at_ns);
        if let Some(last_ns) = self.last_ns.replace(at_ns) {
            if self.gaps_us.len() < Self::GAPS {
                let gap_us = (at_ns.saturating_sub(last_ns) + 500) / 1_000;
                self.gaps_us.push(u32::try_from(gap_us).unwrap_or(u32::MAX));
            } else {
                self.gaps_dropped += 1;
            }
        }
    }

    /// Marks the content as that of several sequences at once. Gaps between chunks are then not the pace of any sequence, and
    /// neither is the time divided by all tokens, so both are dropped. The first and the last content stay valid.
    pub fn is_of_many(&mut self) {
        self.gaps_us = Vec::new();
        (self.gaps_dropped, self.server_per_output_token_ns) = (0, None);
    }

    /// Time per output token as the proxy observed it: from the first content to the last, divided by the tokens after the first.
    #[must_use]
    pub fn per_output_token_ns(&self, output_tokens: u64) -> Option<u64> {
        let spent_ns = self.last_ns?.saturating_sub(self.first_ns?);
        spent_ns.checked_div(output_tokens.checked_sub(1)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_and_pace() {
        let mut g = Generation::default();
        assert_eq!(g.per_output_token_ns(5), None);
        for at_ns in [1_000_000, 3_000_000, 3_000_400, 9_000_000] {
            g.content(at_ns);
        }
        assert_eq!((g.first_ns, g.last_ns, g.chunks), (Some(1_000_000), Some(9_000_000), 4));
        assert_eq!(g.gaps_us, [2_000, 0, 6_000]);
        assert_eq!(g.per_output_token_ns(5), Some(2_000_000));
        assert_eq!((g.per_output_token_ns(1), g.per_output_token_ns(0)), (None, None));
        g.server_per_output_token_ns = Some(1);
        g.is_of_many();
        let left = Generation { first_ns: Some(1_000_000), last_ns: Some(9_000_000), chunks: 4, ..Generation::default() };
        assert_eq!(g, left);
    }
}
