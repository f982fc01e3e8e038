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
    /// The gaps between consecutive tokens, in microseconds; at most [`Self::GAPS`]. Of a chunk that brings several tokens, as far as
    /// the server says so, each has an equal part of the gap before it.
    pub gaps_us: Vec<u32>,
    /// Gaps that were not kept because there was no room.
    pub gaps_dropped: u64,
    /// Time to first token as the server reports it, from arrival there, including the queue.
    pub server_first_token_ns: Option<u64>,
    /// Mean time per output token after the first, as the server reports it.
    pub server_per_output_token_ns: Option<u64>,
    /// The output tokens that the client was not sent.
    pub hidden: HiddenTokens,
}

/// Output tokens that the client was not sent: reasoning that the server keeps to itself, and predicted text that the model rejected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HiddenTokens {
    /// There are none.
    #[default]
    None,
    /// So many.
    Counted {
        /// How many, as the server counts them.
        tokens: u64,
        /// The read that brought the first content of the tokens that are left, if that is not the first content.
        first_visible_ns: Option<u64>,
    },
    /// There may be any number.
    Unknown,
}

impl Generation {
    /// The most gaps that one answer keeps: 64 KiB.
    pub const GAPS: usize = 16_384;

    /// Records a chunk with content, `at_ns` from the request's start, which brought one token as far as is known.
    #[inline]
    pub fn content(&mut self, at_ns: u64) {
        self.content_of(1, at_ns);
    }

    /// Records a chunk with content, `at_ns` from the request's start, which brought `tokens`, at least one.
    #[inline]
    pub fn content_of(&mut self, tokens: u64, at_ns: u64) {
        self.chunks += 1;
        self.first_ns.get_or_insert(at_ns);
        if let Some(last_ns) = self.last_ns.replace(at_ns) {
            let tokens = tokens.max(1);
            let kept = tokens.min((Self::GAPS - self.gaps_us.len().min(Self::GAPS)) as u64);
            let gap_us = (at_ns.saturating_sub(last_ns) / tokens + 500) / 1_000;
            let gap_us = u32::try_from(gap_us).unwrap_or(u32::MAX);
            (0..kept).for_each(|_| self.gaps_us.push(gap_us));
            self.gaps_dropped = self.gaps_dropped.saturating_add(tokens - kept);
        }
    }

    /// Marks the content as that of several sequences at once. Gaps between chunks are then not the pace of any sequence, and
    /// neither is the time divided by all tokens, so both are dropped. The first and the last content stay valid.
    #[inline]
    pub fn is_of_many(&mut self) {
        self.gaps_us = Vec::new();
        (self.gaps_dropped, self.server_per_output_token_ns) = (0, None);
    }

    /// Time per output token as the proxy observed it: from the first content to the last, divided by the tokens after the first. It
    /// is that of the tokens that came: of those that the client was not sent, neither their number nor the time before the first
    /// content after them counts, and where that number is unknown, so is this.
    #[must_use]
    #[inline]
    pub fn per_output_token_ns(&self, output_tokens: u64) -> Option<u64> {
        let (hidden, first_ns) = match self.hidden {
            HiddenTokens::None => (0, self.first_ns?),
            HiddenTokens::Counted { tokens, first_visible_ns } => (tokens, first_visible_ns.or(self.first_ns)?),
            HiddenTokens::Unknown => return None,
        };
        let spent_ns = self.last_ns?.saturating_sub(first_ns);
        spent_ns.checked_div(output_tokens.checked_sub(hidden)?.checked_sub(1)?)
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

    #[test]
    fn a_gap_is_shared_by_the_tokens_that_come_after_it() {
        let mut g = Generation::default();
        g.content_of(5, 1_000_000);
        g.content_of(4, 41_000_000);
        g.content_of(0, 61_000_000);
        assert_eq!((g.chunks, g.gaps_us.as_slice()), (3, [10_000, 10_000, 10_000, 10_000, 20_000].as_slice()));
        g.content_of(u64::MAX, 62_000_000);
        assert_eq!((g.gaps_us.len(), g.gaps_dropped), (Generation::GAPS, u64::MAX - (Generation::GAPS as u64 - 5)));
        g.content(63_000_000);
        assert_eq!(g.gaps_dropped, u64::MAX - (Generation::GAPS as u64 - 5) + 1);
    }

    #[test]
    fn only_tokens_that_came_have_a_pace() {
        let (first_ns, last_ns) = (Some(1_000_000), Some(601_000_000));
        let of = |hidden| Generation { first_ns, last_ns, hidden, ..Generation::default() }.per_output_token_ns(1_011);
        let counted = |tokens, first_visible_ns| of(HiddenTokens::Counted { tokens, first_visible_ns });
        assert_eq!(of(HiddenTokens::None), Some(600_000_000 / 1_010));
        assert_eq!(counted(1_000, None), Some(60_000_000));
        assert_eq!(counted(1_000, Some(401_000_000)), Some(20_000_000));
        assert_eq!(
            (counted(1_010, None), counted(1_011, None), counted(5_000, None), of(HiddenTokens::Unknown)),
            (None, None, None, None)
        );
    }
}
