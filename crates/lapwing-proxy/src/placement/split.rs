//! A live split: which requests one of several upstreams takes on trial, the candidate, and which the others, the baseline.
//!
//! A request goes to the candidate if its key, hashed to a number from 0 to 1, lies below the share. So a key stays where it is; as the
//! share grows, keys join the candidate and none leaves it. The hash depends on the candidate's name and the key only: every worker, replica
//! and restart agrees.

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use http::HeaderMap;

use lapwing_protocol::{BodyPointer, RequestKey, hash_key};
use lapwing_settings::SplitKey;

/// What became of a request that the split was asked about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SplitAssignment {
    /// It went to the candidate.
    Candidate,
    /// It went to the baseline.
    Baseline,
    /// It has no key, and went to the baseline.
    WithoutKey,
    /// Its side took no connections, so it went to the other.
    Away,
}

impl SplitAssignment {
    /// Every one.
    pub const ALL: [Self; 4] = [Self::Candidate, Self::Baseline, Self::WithoutKey, Self::Away];

    /// The name on every surface.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Candidate => "candidate",
            Self::Baseline => "baseline",
            Self::WithoutKey => "without_key",
            Self::Away => "away",
        }
    }
}

/// A split as the data plane has it: who is on trial, by which key, and the share in force.
#[derive(Debug)]
pub struct TrafficSplit {
    candidate: String,
    key: RequestKey,
    seed: (u64, u64),
    /// Of 2⁶⁴; the greatest number stands for all.
    threshold: AtomicU64,
    assigned: [AtomicU64; SplitAssignment::ALL.len()],
}

impl TrafficSplit {
    /// A split that sends nothing to `candidate`, an upstream's name, until a share is set.
    #[must_use]
    pub fn new(candidate: &str, key: SplitKey) -> Self {
        let half = |which: u64| hash_key((which, 0), candidate.as_bytes());
        Self {
            candidate: candidate.to_owned(),
            key: RequestKey::new(key),
            seed: (half(0), half(1)),
            threshold: AtomicU64::new(0),
            assigned: Default::default(),
        }
    }

    /// The candidate's name.
    #[must_use]
    pub fn candidate(&self) -> &str {
        &self.candidate
    }

    /// What requests are divided by.
    #[must_use]
    pub const fn key(&self) -> &SplitKey {
        self.key.key()
    }

    /// Sends the keys below `share`, 0 to 1, to the candidate from now on.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the conversion saturates, as it is meant to")]
    pub fn set_share(&self, share: f64) {
        self.threshold.store((share * 2_f64.powi(64)) as u64, Relaxed);
    }

    /// How many requests were assigned so.
    #[must_use]
    pub fn assigned(&self, to: SplitAssignment) -> u64 {
        self.assigned[to as usize].load(Relaxed)
    }

    pub(crate) fn count(&self, to: SplitAssignment) {
        self.assigned[to as usize].fetch_add(1, Relaxed);
    }

    /// Whether any request goes to the candidate.
    pub(crate) fn is_open(&self) -> bool {
        self.threshold.load(Relaxed) > 0
    }

    /// Where the key is, if it is in the body and decides where requests go.
    pub(crate) fn awaits_body(&self) -> Option<&BodyPointer> {
        self.key.in_body().filter(|_| self.is_open())
    }

    /// Where a request with these headers, or this key in its body, goes, and its key as a number; `None` if it has no key.
    pub(crate) fn assign(&self, headers: &HeaderMap, in_body: Option<&[u8]>) -> Option<(SplitAssignment, NonZeroU32)> {
        let place = self.place_of_key(headers, in_body)?;
        let is_candidate = place < self.threshold.load(Relaxed);
        let side = if is_candidate { SplitAssignment::Candidate } else { SplitAssignment::Baseline };
        // the high bits decide, so these tell the keys of both sides apart; the lowest is lost
        #[allow(clippy::cast_possible_truncation, reason = "the low half")]
        let key = NonZeroU32::MIN | (place as u32);
        Some((side, key))
    }

    /// The place of its key, of 2⁶⁴.
    fn place_of_key(&self, headers: &HeaderMap, in_body: Option<&[u8]>) -> Option<u64> {
        self.key.with(headers, in_body, |key| hash_key(self.seed, key))
    }
}

#[cfg(test)]
mod tests {
    use http::header;
    use proptest::prelude::*;

    use super::*;

    fn headers(name: &'static str, value: &str) -> HeaderMap {
        HeaderMap::from_iter([(header::HeaderName::from_static(name), value.parse().unwrap())])
    }

    fn by_user(candidate: &str) -> TrafficSplit {
        TrafficSplit::new(candidate, "header:x-user".parse().unwrap())
    }

    fn is_candidate(split: &TrafficSplit, user: usize) -> bool {
        split.assign(&headers("x-user", &format!("user-{user}")), None).unwrap().0 == SplitAssignment::Candidate
    }

    #[test]
    fn the_hash_is_the_published_one() {
        // the vector of the paper, Aumasson and Bernstein 2012, appendix A: key 00 … 0f, message 00 … 0e
        let message: Vec<u8> = (0..15).collect();
        assert_eq!(hash_key((0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908), &message), 0xa129_ca61_49be_45e5);
        // if it changes, an update moves users to the other side
        assert_eq!(
            by_user("int8").place_of_key(&headers("x-user", "u"), None),
            by_user("int8").place_of_key(&headers("x-user", " u "), None)
        );
    }

    /// A share of 25 % of 10⁵ keys varies by 0.14 points whatever the hash, so it is looked at over several names.
    #[test]
    fn through_a_ramp_nobody_flips_back_and_the_share_is_kept() {
        const KEYS: usize = 100_000;
        const NAMES: [&str; 10] = ["int8", "int4", "fp16", "b", "candidate", "v2", "v3", "new", "triton", "canary"];
        let mut taken = [0; 5];
        for name in NAMES {
            let split = by_user(name);
            let mut sides = vec![false; KEYS];
            assert!(!split.is_open() && (0..KEYS).all(|user| !is_candidate(&split, user)), "before a share is set");
            for (share, taken) in [0.01, 0.05, 0.25, 0.5, 1.0].into_iter().zip(&mut taken) {
                split.set_share(share);
                let now: Vec<_> = (0..KEYS).map(|user| is_candidate(&split, user)).collect();
                let flips = sides.iter().zip(&now).filter(|(before, now)| **before && !**now).count();
                let own = now.iter().filter(|side| **side).count();
                assert_eq!(flips, 0, "{share}");
                let deviation = (share * (1.0 - share) / KEYS as f64).sqrt();
                assert!((own as f64 / KEYS as f64 - share).abs() <= 4.0 * deviation, "{name}: {own} instead of {share}");
                *taken += own;
                sides = now;
            }
            split.set_share(0.0);
            assert!((0..KEYS).all(|user| !is_candidate(&split, user)), "stopped");
        }
        for (share, taken) in [0.01, 0.05, 0.25, 0.5, 1.0].into_iter().zip(taken) {
            let taken = taken as f64 / (NAMES.len() * KEYS) as f64;
            assert!((taken - share).abs() <= 0.002, "{taken} instead of {share}");
        }
    }

    #[test]
    fn candidates_of_other_names_have_other_keys() {
        let splits = ["int8", "int4"].map(by_user);
        splits.iter().for_each(|split| split.set_share(0.5));
        let both = (0..10_000).filter(|user| splits.iter().all(|split| is_candidate(split, *user))).count();
        assert!((2_250..2_750).contains(&both), "{both}: the same keys would try everything");
    }

    #[test]
    fn keys_are_found_where_the_setting_says() {
        let of = |key: &str, headers: &HeaderMap| {
            let split = TrafficSplit::new("c", key.parse().unwrap());
            split.assign(headers, None).map(|(_, key)| key)
        };
        let trace = |id: char| headers("traceparent", &format!("00-{}-00f067aa0ba902b7-01", id.to_string().repeat(32)));
        assert_eq!(
            of("trace", &trace('a')),
            of("trace", &headers("traceparent", &format!("00-{}-1111111111111111-00", "a".repeat(32))))
        );
        assert_ne!(of("trace", &trace('a')), of("trace", &trace('b')));
        assert_eq!(of("trace", &headers("traceparent", "none")), None);
        let cookies = |text: &str| of("cookie:sid", &headers("cookie", text));
        assert_eq!(cookies("a=1; sid=7"), cookies("sid=7;sid2=8"));
        assert_ne!(cookies("sid=7"), cookies("sid=8"));
        assert_eq!([cookies("sid="), cookies("xsid=7"), cookies("SID=7"), cookies("")], [None; 4]);
        assert_eq!([of("header:x-user", &headers("x-user", "")), of("header:x-user", &HeaderMap::new())], [None; 2]);
    }

    proptest! {
        #[test]
        fn a_key_that_is_the_candidates_at_a_share_is_at_any_greater_one(
            name in "[a-z]{1,8}", user in "[a-z0-9]{1,12}", low in 0.0_f64..1.0, more in 0.0_f64..1.0,
        ) {
            let split = by_user(&name);
            let user = headers("x-user", &user);
            split.set_share(low);
            let (before, key) = split.assign(&user, None).unwrap();
            split.set_share(low + (1.0 - low) * more);
            let (after, same) = split.assign(&user, None).unwrap();
            prop_assert_eq!(key, same);
            prop_assert!(before != SplitAssignment::Candidate || after == SplitAssignment::Candidate);
        }
    }
}
