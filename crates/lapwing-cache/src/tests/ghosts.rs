//! What a ghost says, beside caches that really are there.

use std::collections::{BTreeMap, HashMap};

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::*;
use crate::ghost::{CacheGhost, GHOST_STEPS, GhostQuestion};

const SIZES: [u64; GHOST_STEPS] = [1 << 18, 1 << 20, 1 << 22, 1 << 23, 1 << 24, 1 << 25, 1 << 26, 1 << 30];
const TTLS: [u64; GHOST_STEPS] =
    [SECOND, 5 * SECOND, 15 * SECOND, 60 * SECOND, 120 * SECOND, 600 * SECOND, 3_600 * SECOND, 86_400 * SECOND];

/// A cache of keys that forgets those not asked for the longest, and in which answers are good for a time.
struct LruCache {
    size: u64,
    ttl_ns: u64,
    used: u64,
    turn: u64,
    /// Turn, bytes, and when it was stored.
    entries: HashMap<u64, (u64, u64, u64)>,
    by_turn: BTreeMap<u64, u64>,
}

impl LruCache {
    fn new(size: u64, ttl_ns: u64) -> Self {
        Self { size, ttl_ns, used: 0, turn: 0, entries: HashMap::new(), by_turn: BTreeMap::new() }
    }

    /// Whether it has the answer; it has afterwards.
    fn ask(&mut self, key: u64, bytes: u64, now: u64) -> bool {
        self.turn += 1;
        let before = self.entries.remove(&key);
        if let Some((turn, bytes, _)) = before {
            self.by_turn.remove(&turn);
            self.used -= bytes;
        }
        let stored = before.map(|(.., stored)| stored).filter(|stored| now - stored < self.ttl_ns);
        self.entries.insert(key, (self.turn, bytes, stored.unwrap_or(now)));
        self.by_turn.insert(self.turn, key);
        self.used += bytes;
        while self.used > self.size {
            let (_, oldest) = self.by_turn.pop_first().unwrap();
            self.used -= self.entries.remove(&oldest).unwrap().1;
        }
        stored.is_some()
    }
}

/// Who is asked for how often: the `n`-th by `1/n^exponent`.
struct Zipf(Vec<f64>);

impl Zipf {
    fn new(keys: u32, exponent: f64) -> Self {
        let mut sum = 0.0;
        Self((1..=keys).map(|rank| (sum += f64::from(rank).powf(-exponent), sum).1).collect())
    }

    fn draw(&self, rng: &mut StdRng) -> u64 {
        let drawn = rng.random::<f64>() * self.0.last().unwrap();
        self.0.partition_point(|sum| *sum < drawn) as u64
    }
}

/// Answers of 200 bytes to 6 KB, and requests of 1 to 50 ms in two classes, each key with its own.
fn question(rank: u64, seed: u64) -> GhostQuestion {
    let key = key(rank ^ seed << 40);
    let mixed = key.sample().rotate_left(17) ^ key.sample() >> 5;
    let class = usize::from(mixed.is_multiple_of(4));
    let service_ns = if class == 1 { 20_000_000 + mixed % 30_000_000 } else { 1_000_000 + mixed % 5_000_000 };
    GhostQuestion { key, bytes: 200 + mixed % 5_800, class, service_ns }
}

/// Compares them on requests that come at `per_second`, in some cells.
fn compare(keys: u32, exponent: f64, per_second: f64, requests: u32, seed: u64) {
    let mut rng = StdRng::seed_from_u64(seed);
    let zipf = Zipf::new(keys, exponent);
    let mut ghost = CacheGhost::new(SIZES, TTLS);
    let cells = [(1, 7), (2, 3), (4, 5), (7, 2), (7, 7)];
    let mut caches = cells.map(|(size, ttl)| LruCache::new(SIZES[size], TTLS[ttl]));
    let (mut hits, mut saved) = ([[0_u64; 2]; 5], [[0_u64; 2]; 5]);
    let (mut now, mut asked) = (0.0, [0_u64; 2]);
    for _ in 0..requests {
        now += -(1.0 - rng.random::<f64>()).ln() / per_second;
        let (rank, now_ns) = (zipf.draw(&mut rng), (now * 1e9) as u64);
        let question = question(rank, seed);
        asked[question.class] += 1;
        for (at, cache) in caches.iter_mut().enumerate() {
            if cache.ask(rank, question.bytes, now_ns) {
                hits[at][question.class] += 1;
                saved[at][question.class] += question.service_ns;
            }
        }
        ghost.observe(question, at(now_ns));
    }
    for (at, (size, ttl)) in cells.into_iter().enumerate() {
        for class in [None, Some(0), Some(1)] {
            let of = |both: [u64; 2]| class.map_or(both[0] + both[1], |class| both[class]) as f64;
            let (true_rate, true_saved) = (of(hits[at]) / of(asked), of(saved[at]));
            let saving = ghost.saving(class, size, ttl);
            assert_eq!(saving.requests as f64, of(asked));
            let told = format!(
                "{keys} keys, {exponent}, seed {seed}, {class:?}, cell {size} {ttl}: {true_rate:.3} {:.3}",
                saving.hit_rate
            );
            println!("{told} {:.3} {:.3}", saving.saved_ns / true_saved, true_saved / 1e9);
            // a class has fewer samples
            let points = if class.is_none() { 0.02 } else { 0.05 };
            assert!((saving.hit_rate - true_rate).abs() <= points, "{told}");
            if class.is_none() && true_rate > 0.1 {
                assert!((saving.saved_ns / true_saved - 1.0).abs() <= 0.1, "{told}: {} {true_saved}", saving.saved_ns);
            }
        }
    }
    assert!(ghost.memory() <= 1 << 20, "{} bytes", ghost.memory());
}

#[test]
fn a_ghost_tells_what_a_cache_would_bring() {
    for (keys, exponent) in [(2_000, 0.9), (30_000, 0.8), (30_000, 1.0), (100_000, 1.2)] {
        compare(keys, exponent, 300.0, 150_000, 1);
    }
}

#[test]
#[ignore = "as the test before, with more seeds"]
fn a_ghost_tells_it_of_other_keys_too() {
    for (keys, exponent) in [(30_000, 0.8), (30_000, 1.0), (100_000, 1.2)] {
        (2..=8).for_each(|seed| compare(keys, exponent, 300.0, 150_000, seed));
    }
}

#[test]
fn few_keys_are_followed_exactly() {
    let mut ghost = CacheGhost::new(SIZES, TTLS);
    // 100 keys, round and round, one each 50 ms: each again after 5 s
    for turn in 0..1_000_u64 {
        let key = key(turn % 100);
        ghost.observe(GhostQuestion { key, bytes: 10_000, class: 0, service_ns: 1_000 }, at(turn * 50_000_000));
    }
    assert_eq!(ghost.sampling_rate(), 1.0);
    // a million bytes: the first size is too small, the second is enough
    assert_eq!(ghost.saving(None, 0, 7).hit_rate, 0.0);
    assert_eq!(
        ghost.saving(None, 1, 7),
        crate::ghost::GhostSaving { requests: 1_000, service_ns: 1_000_000, hit_rate: 0.9, saved_ns: 900_000.0 }
    );
    assert_eq!(ghost.saving(None, 1, 0).hit_rate, 0.0);
    assert_eq!(ghost.saving(None, 1, 1).hit_rate, 0.0, "good for less than the 5 s after which each is asked again");
    assert_eq!(ghost.saving(None, 1, 2).hit_rate, 0.6, "stored, hit at 5 and 10 s, stored again at 15 s, in ten rounds");
    ghost.restart();
    assert_eq!(ghost.saving(None, 1, 7).requests, 0);
}

#[test]
fn keys_that_are_asked_for_often_for_a_while_leave_nothing_behind() {
    let mut ghost = CacheGhost::new(SIZES, TTLS);
    let before = ghost.memory();
    let mut now = 0;
    // each round has other hot keys, some of which come again, among many that are asked for once
    for round in 0..400_u64 {
        for turn in 0..400 {
            let rank = if turn % 2 == 0 { round % 97 * 7 + turn % 6 } else { 1_000_000 + round * 1_000 + turn };
            now += 1_000_000;
            ghost.observe(GhostQuestion { key: key(rank), bytes: 1_000, class: 0, service_ns: 1 }, at(now));
        }
    }
    assert!(ghost.sampling_rate() < 0.1 && ghost.memory() == before, "{} after {before}", ghost.memory());
    let rate = ghost.saving(None, 7, 7).hit_rate;
    // before a key is known to be hot, half of its requests in a round have passed, and only samples tell of those
    assert!((rate - 0.498).abs() < 0.04, "half of the requests, but for the first of each key: {rate}");
}

/// With `--nocapture`, what a request costs.
#[test]
fn a_ghost_is_cheap() {
    let zipf = Zipf::new(100_000, 1.0);
    let mut rng = StdRng::seed_from_u64(1);
    let questions: Vec<_> = (0..200_000).map(|_| question(zipf.draw(&mut rng), 1)).collect();
    let mut ghost = CacheGhost::new(SIZES, TTLS);
    let begun = Stamp::now();
    questions.iter().zip(0_u64..).for_each(|(question, turn)| ghost.observe(*question, at(turn * 1_000_000)));
    let each_ns = begun.elapsed() / questions.len() as u64;
    println!("{each_ns} ns a request, {:.3} of the keys", ghost.sampling_rate());
    assert!(ghost.sampling_rate() < 0.1 && ghost.memory() <= 1 << 20);
}
