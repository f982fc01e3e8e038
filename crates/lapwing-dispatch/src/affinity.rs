//! Requests with the same key go to the same upstream while it is not busier than others: its caches know what they ask about.
//!
//! The home of a key is found by weighted rendezvous hashing (Thaler and Ravishankar, 1998; weights: Schindelhauer and Schomaker, 2005), so
//! that an upstream that comes or goes moves no other's keys; loads are bounded (Mirrokni, Thorup and Zadimoghaddam, 2016).

use http::HeaderMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use lapwing_protocol::{BodyPointer, RequestKey, hash_key};
use lapwing_settings::{Checks, Form, Ratio, Record, SplitKey};

/// What an affinity is.
pub const AFFINITY: Record = Record {
    what: "a section with a key, as in {key: json:/messages/0/content, chars: 256}",
    keys: &[("key", Form::Text), ("chars", Form::Number), ("overload", Form::Number)],
    stand_in: &[("key", "trace")],
};

/// Which requests go to the same upstream.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(title = "affinity")]
pub struct Affinity {
    /// What they have in common: `header:NAME`, `cookie:NAME`, `json:POINTER` or `trace`.
    pub key: SplitKey,
    /// How many bytes of it count, such as those of a prompt's beginning; 0: all.
    #[serde(default)]
    pub chars: usize,
    /// How many times the mean of requests in flight an upstream may have, with the next one, before its keys go to another.
    #[serde(default = "overload")]
    pub overload: Ratio,
}

const fn overload() -> Ratio {
    Ratio::of_hundredths(125)
}

impl Affinity {
    /// Reports the faults of the affinity at `key`.
    pub fn check(&self, key: &str, checks: &mut Checks) {
        checks.range(&format!("{key}.overload"), &self.overload, Ratio::of_hundredths(100)..=Ratio::of_hundredths(10_000));
    }
}

/// An affinity in force.
#[derive(Debug)]
pub struct Homes {
    key: RequestKey,
    chars: usize,
    overload: f64,
}

/// The name of an upstream, by which its keys stay its own, as a hash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HomeName(u64);

impl HomeName {
    /// That of the upstream with this name.
    #[must_use]
    pub fn of(name: &str) -> Self {
        Self(hash_key((0, 0), name.as_bytes()))
    }
}

/// An upstream that may be a key's home.
#[derive(Clone, Copy, Debug)]
pub struct Home {
    /// Its name.
    pub name: HomeName,
    /// Its weight.
    pub weight: u32,
    /// Its requests in flight.
    pub active: u32,
    /// Whether it may be sent anything.
    pub is_open: bool,
}

impl Homes {
    /// From settings that have been checked.
    #[must_use]
    pub fn new(affinity: &Affinity) -> Self {
        let chars = if affinity.chars == 0 { usize::MAX } else { affinity.chars };
        Self { key: RequestKey::new(affinity.key.clone()), chars, overload: affinity.overload.get().max(1.0) }
    }

    /// Where the key is, if a body has it.
    #[must_use]
    pub const fn in_body(&self) -> Option<&BodyPointer> {
        self.key.in_body()
    }

    /// Which of `homes` a request with these headers, or this key in its body, goes to; `None` without a key, or if none is open.
    pub fn choose(
        &self,
        headers: &HeaderMap,
        in_body: Option<&[u8]>,
        homes: impl Iterator<Item = Home> + Clone,
    ) -> Option<usize> {
        self.key.with(headers, in_body, |key| {
            let key = key.get(..self.chars).unwrap_or(key);
            let open = homes.clone().enumerate().filter(|(_, home)| home.is_open);
            let (weights, active) = open.clone().fold((0, 1), |(weights, active), (_, home)| {
                (weights + u64::from(home.weight.max(1)), active + u64::from(home.active))
            });
            #[allow(clippy::cast_precision_loss, reason = "requests in flight")]
            let bound =
                |home: &Home| (self.overload * active as f64 * f64::from(home.weight.max(1)) / weights.max(1) as f64).ceil();
            let has_room = |home: &Home| f64::from(home.active) < bound(home);
            let best = open.filter(|(_, home)| has_room(home)).map(|(at, home)| (at, score(key, &home)));
            best.max_by(|a, b| a.1.total_cmp(&b.1)).map(|(at, _)| at)
        })?
    }
}

/// How much a key likes an upstream: the one with the greatest is its home.
#[allow(clippy::cast_precision_loss, reason = "a number from 0 to 1")]
fn score(key: &[u8], home: &Home) -> f64 {
    let uniform = ((hash_key((home.name.0, 0), key) >> 11) as f64 + 0.5) / (1_u64 << 53) as f64;
    -f64::from(home.weight.max(1)) / uniform.ln()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: [&str; 4] = ["a", "b", "c", "d"];

    fn homes(key: &str, chars: usize) -> Homes {
        Homes::new(&Affinity { key: key.parse().unwrap(), chars, overload: overload() })
    }

    fn open(active: &[u32], weights: [u32; 4]) -> impl Iterator<Item = Home> + Clone {
        let active = active.to_vec();
        NAMES.into_iter().zip(weights).zip(active).map(|((name, weight), active)| Home {
            name: HomeName::of(name),
            weight,
            active,
            is_open: true,
        })
    }

    fn of(user: usize) -> HeaderMap {
        HeaderMap::from_iter([(http::HeaderName::from_static("x-user"), format!("user-{user}").parse().unwrap())])
    }

    #[test]
    fn a_key_stays_at_its_home_and_only_the_keys_of_one_that_leaves_move() {
        let by_user = homes("header:x-user", 0);
        let at = |gone: Option<usize>| {
            let all = open(&[0; 4], [1; 4]).enumerate().map(move |(at, home)| Home { is_open: Some(at) != gone, ..home });
            (0..4_000).map(|user| by_user.choose(&of(user), None, all.clone()).unwrap()).collect::<Vec<_>>()
        };
        let (all, without) = (at(None), at(Some(2)));
        for home in 0..4 {
            let share = all.iter().filter(|at| **at == home).count();
            assert!((900..1_100).contains(&share), "{home}: {share}");
        }
        for (before, after) in all.iter().zip(&without) {
            assert!(if *before == 2 { *after != 2 } else { before == after });
        }
        assert_eq!(all, at(None));
    }

    #[test]
    fn weights_divide_the_keys() {
        let by_user = homes("header:x-user", 0);
        let taken =
            |home| (0..8_000).filter(|user| by_user.choose(&of(*user), None, open(&[0; 4], [3, 1, 1, 3])) == Some(home)).count();
        assert!((2_800..3_200).contains(&taken(0)) && (880..1_120).contains(&taken(1)), "{} {}", taken(0), taken(1));
    }

    #[test]
    fn a_home_that_is_busier_than_others_is_left() {
        let by_user = homes("header:x-user", 0);
        let home = by_user.choose(&of(1), None, open(&[0; 4], [1; 4])).unwrap();
        let mut active = [8; 4];
        assert_eq!(by_user.choose(&of(1), None, open(&active, [1; 4])), Some(home));
        active[home] = 12;
        // 1.25 times the mean with the next one, 9.25, rounded up is 12
        assert_ne!(by_user.choose(&of(1), None, open(&active, [1; 4])), Some(home));
    }

    #[test]
    fn the_beginning_of_a_prompt_may_be_the_key() {
        let by_prompt = homes("json:/prompt", 12);
        let choose = |prompt: &str| by_prompt.choose(&HeaderMap::new(), Some(prompt.as_bytes()), open(&[0; 4], [1; 4]));
        assert!(by_prompt.in_body().is_some());
        let shared: Vec<_> = (0..50).map(|n| choose(&format!("You are kind{n}"))).collect();
        assert!(shared.iter().all(|at| at.is_some() && *at == shared[0]));
        assert!((0..50).map(|n| choose(&format!("{n} You are kind"))).any(|at| at != shared[0]));
        assert_eq!(by_prompt.choose(&HeaderMap::new(), None, open(&[0; 4], [1; 4])), None, "no key");
    }
}
