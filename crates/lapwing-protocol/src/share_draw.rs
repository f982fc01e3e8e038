//! A share of requests, drawn by their heads: from the trace id, so that the same trace is drawn, or not, in every process; at random
//! without one.

use http::{HeaderMap, HeaderName};

use lapwing_ledger::{TraceContext, TraceId};

/// Draws a share of requests.
#[derive(Clone, Debug)]
pub struct ShareDraw {
    /// Of 2^64; `None`: all.
    threshold: Option<u64>,
    /// A request that has this header is drawn.
    header: Option<HeaderName>,
}

impl ShareDraw {
    /// Draws `share` (0 to 1), and each request that has `header`.
    #[must_use]
    pub fn new(share: f64, header: Option<HeaderName>) -> Self {
        Self { threshold: threshold(share), header }
    }

    /// Whether a request with these headers is drawn.
    #[must_use]
    pub fn draws(&self, headers: &HeaderMap) -> bool {
        if self.header.as_ref().is_some_and(|name| headers.contains_key(name)) {
            return true;
        }
        let Some(threshold) = self.threshold else { return true };
        if threshold == 0 {
            return false;
        }
        let client = headers.get("traceparent").and_then(|field| TraceContext::parse(field.as_bytes()));
        client.map_or_else(rand::random, |context| spread(context.trace)) < threshold
    }
}

/// `share` of 2^64; `None` for all.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share below 1 times 2^64 fits")]
fn threshold(share: f64) -> Option<u64> {
    (share < 1.0).then(|| (share * 2_f64.powi(64)) as u64)
}

/// Spreads trace ids evenly. An SDK samples by the low half of the same id: without this, a share of 5 % would take all of its
/// traces where it keeps 5 %. The finaliser of SplitMix64.
const fn spread(trace: TraceId) -> u64 {
    let id = u128::from_be_bytes(trace.0);
    let mut z = (id >> 64) as u64 ^ (id as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_is_drawn_from_the_trace_and_stays() {
        let fifth = ShareDraw::new(0.2, None);
        let mut drawn = 0;
        for n in 0..10_000_u64 {
            // low halves that a ratio sampler of 1 in 1,000 would keep
            let field = format!("00-{:016x}{:016x}-0000000000000001-01", n.wrapping_mul(0x9e37_79b9_7f4a_7c15), n + 1);
            let headers = HeaderMap::from_iter([(HeaderName::from_static("traceparent"), field.parse().unwrap())]);
            assert_eq!(fifth.draws(&headers), fifth.draws(&headers));
            drawn += u32::from(fifth.draws(&headers));
        }
        assert!((1_900..=2_100).contains(&drawn), "{drawn}");
    }

    #[test]
    fn the_ends_of_the_share_are_exact() {
        let none = HeaderMap::new();
        for _ in 0..1_000 {
            assert!(!ShareDraw::new(0.0, None).draws(&none) && ShareDraw::new(1.0, None).draws(&none));
        }
        let name = HeaderName::from_static("x-shadow");
        let asked = HeaderMap::from_iter([(name.clone(), "1".parse().unwrap())]);
        let draw = ShareDraw::new(0.0, Some(name));
        assert!(draw.draws(&asked) && !draw.draws(&none));
    }
}
