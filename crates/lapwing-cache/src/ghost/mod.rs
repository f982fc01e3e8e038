//! What a cache would bring, by its size and by how long answers are given, of requests that pass without it.
//!
//! SHARDS (Waldspurger and others, FAST '15) with a fixed number of samples: of all keys, those are followed whose hash is below
//! a threshold, which falls as more keys come. An LRU cache of a size has a key if all that was asked for since is smaller; so
//! one list of followed keys in the order in which they were asked for tells of every size at once. For each followed key, and
//! each pair of a size and a time to live, it is known when its answer would have been stored, so how long answers are given is
//! simulated, not estimated.
//!
//! A sample of keys has the most frequent ones by luck only, and those decide. So keys that are asked for often are followed in
//! any case, each for itself; samples stand for the others. All requests are counted, and the time that they took, so it is known
//! by how much samples stand for too much or too little (SHARDS-adj).

mod frequent;
mod recency;

use std::collections::BinaryHeap;

use rustc_hash::FxHashMap;

use self::frequent::FrequentKeys;
use self::recency::{KeyGroup, Recency};
use crate::key::CacheKey;
use lapwing_ledger::Stamp;

/// How many sizes, and how many times to live, there are.
pub const GHOST_STEPS: usize = 8;
/// How many classes of requests are told apart; those of further ones count with the last.
pub const GHOST_CLASSES: usize = 8;
/// How many keys are followed as samples of others.
const SAMPLES: usize = 2_250;
/// How many keys are followed because they are asked for often.
const HOT: usize = 256;
/// How many there may be for a moment.
const FOLLOWED: usize = SAMPLES + HOT + 2;
/// The places of the table of those followed: more than twice as many, so that it cleans up where it is rather than grow.
const TABLE: usize = 8_192;
/// The unit in which it is kept when an answer was stored, in nanoseconds. 32 bits of it are 497 days.
const TICK_NS: u64 = 10_000_000;

/// One number for each size and each time to live.
type Grid<T> = [[T; GHOST_STEPS]; GHOST_STEPS];

/// A request that passed.
#[derive(Clone, Copy, Debug)]
pub struct GhostQuestion {
    /// Its key.
    pub key: CacheKey,
    /// What its answer would cost in memory.
    pub bytes: u64,
    /// Its class.
    pub class: usize,
    /// What it took, in nanoseconds.
    pub service_ns: u64,
}

/// What a cache would have brought.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct GhostSaving {
    /// How many requests there were.
    pub requests: u64,
    /// What they took, in nanoseconds.
    pub service_ns: u64,
    /// The share of them that it would have answered.
    pub hit_rate: f64,
    /// What those took that it would have answered, in nanoseconds.
    pub saved_ns: f64,
}

/// A key that is followed.
#[derive(Clone, Copy, Debug)]
struct FollowedKey {
    hash: u64,
    /// `None` before its first request has been noted.
    bytes: Option<u64>,
    turn: u32,
    group: KeyGroup,
    /// Whether its hash is in the list of those that may go.
    is_listed: bool,
    /// When its answer would have been stored, in ticks.
    stored: Grid<u32>,
}

impl FollowedKey {
    /// Notes in which caches it was missed, by so many bytes of others since it was asked for, and what the request counts there.
    fn miss(
        &mut self,
        sizes: &[u64; GHOST_STEPS],
        ttls: &[u32; GHOST_STEPS],
        distance: Option<f64>,
        now: u32,
        (weight, weight_ns): (f64, f64),
        totals: &mut GroupTotals,
    ) {
        totals.requests += weight;
        totals.service_ns += weight_ns;
        let rows = self.stored.iter_mut().zip(sizes).zip(totals.missed.iter_mut().zip(&mut totals.missed_ns));
        for ((stored, size), (missed, missed_ns)) in rows {
            let is_kept = distance.is_some_and(|distance| distance <= approximately(*size));
            for (((stored, ttl), missed), missed_ns) in stored.iter_mut().zip(ttls).zip(missed).zip(missed_ns) {
                if !is_kept || now.wrapping_sub(*stored) >= *ttl {
                    *stored = now;
                    *missed += weight;
                    *missed_ns += weight_ns;
                }
            }
        }
    }
}

/// What happened to the requests of a class.
#[derive(Clone, Copy, Debug, Default)]
struct ClassTotals {
    requests: u64,
    service_ns: u64,
    /// Of those to keys that are hot.
    hot: GroupTotals,
    /// Of those to samples, by their weights.
    samples: GroupTotals,
}

/// What happened to the requests to a group of keys.
#[derive(Clone, Copy, Debug, Default)]
struct GroupTotals {
    requests: f64,
    service_ns: f64,
    missed: Grid<f64>,
    missed_ns: Grid<f64>,
}

/// How much of a quantity is hit, which is known in all and, in part, of samples.
#[derive(Clone, Copy, Debug, Default)]
struct HitEstimate {
    all: f64,
    hot: f64,
    hot_missed: f64,
    samples: f64,
    samples_missed: f64,
}

impl HitEstimate {
    fn add(&mut self, all: f64, [hot, hot_missed]: [f64; 2], [samples, samples_missed]: [f64; 2]) {
        self.all += all;
        self.hot += hot;
        self.hot_missed += hot_missed;
        self.samples += samples;
        self.samples_missed += samples_missed;
    }

    /// Hits of hot keys are counted. Samples stand for more or less than the others really were, by keys that are asked for more
    /// often than most. So of that difference more is hit than of the samples, and not all: the geometric mean of both.
    fn hits(self) -> f64 {
        let others = (self.all - self.hot).max(0.0);
        let hit = (self.samples - self.samples_missed).max(0.0);
        let share_hit = if self.samples > 0.0 { hit / self.samples } else { 0.0 };
        let of_others = hit + share_hit.sqrt() * (others - self.samples);
        self.hot - self.hot_missed + of_others.clamp(0.0, others)
    }
}

/// A cache that keeps no answers. Takes at most 1 MiB.
#[derive(Debug)]
pub struct CacheGhost {
    sizes: [u64; GHOST_STEPS],
    ttl_ticks: [u32; GHOST_STEPS],
    /// Keys with smaller hashes are followed.
    threshold: u64,
    places: FxHashMap<u64, u32>,
    followed: Vec<FollowedKey>,
    /// How many of them are hot.
    hot: usize,
    /// The hashes of samples, the greatest first: it is the next to go. Some may be hot by now.
    greatest: BinaryHeap<u64>,
    frequent: FrequentKeys,
    recency: Recency,
    classes: Box<[ClassTotals; GHOST_CLASSES]>,
}

impl CacheGhost {
    /// Caches of these sizes in bytes, whose answers are given for these times in nanoseconds.
    #[must_use]
    pub fn new(sizes: [u64; GHOST_STEPS], ttls_ns: [u64; GHOST_STEPS]) -> Self {
        Self {
            sizes,
            ttl_ticks: ttls_ns.map(ticks),
            threshold: u64::MAX,
            places: FxHashMap::with_capacity_and_hasher(TABLE / 8 * 7, rustc_hash::FxBuildHasher),
            followed: Vec::with_capacity(FOLLOWED),
            hot: 0,
            greatest: BinaryHeap::with_capacity(FOLLOWED),
            frequent: FrequentKeys::default(),
            recency: Recency::new(FOLLOWED),
            classes: Box::default(),
        }
    }

    /// Notes a request. Constant time where its key is not followed; where it is, some hundred steps.
    pub fn observe(&mut self, request: GhostQuestion, now: Stamp) {
        let class = request.class.min(GHOST_CLASSES - 1);
        let totals = &mut self.classes[class];
        totals.requests += 1;
        totals.service_ns = totals.service_ns.saturating_add(request.service_ns);
        let hash = request.key.sample();
        let group = if self.frequent.count(hash) { KeyGroup::Hot } else { KeyGroup::Sample };
        let place = self.places.get(&hash).copied();
        if place.is_some() || group == KeyGroup::Hot || hash < self.threshold {
            self.follow(place, group, GhostQuestion { class, ..request }, ticks(now.as_ns()));
        }
    }

    /// How many requests one to a sample stands for.
    fn sample_weight(&self) -> f64 {
        approximately(u64::MAX) / approximately(self.threshold)
    }

    /// Notes a request to a key that is followed, at `place`, or is from now on.
    fn follow(&mut self, place: Option<u32>, asked: KeyGroup, request: GhostQuestion, now: u32) {
        let hash = request.key.sample();
        let place = place.unwrap_or_else(|| self.begin(hash, asked, now));
        let sample_weight = self.sample_weight();
        let Some(key) = self.followed.get_mut(place as usize) else { return };
        let distance = key.bytes.map(|bytes| {
            let [hot, samples] = self.recency.bytes_after(key.turn);
            self.recency.remove(key.turn, bytes, key.group);
            approximately(hot) + approximately(samples) * sample_weight + approximately(request.bytes)
        });
        // what it stood for until now
        let class = &mut self.classes[request.class];
        let (weight, totals) = match key.group {
            KeyGroup::Hot => (1.0, &mut class.hot),
            KeyGroup::Sample => (sample_weight, &mut class.samples),
        };
        key.miss(&self.sizes, &self.ttl_ticks, distance, now, (weight, weight * approximately(request.service_ns)), totals);
        key.bytes = Some(request.bytes);
        if asked == KeyGroup::Hot && key.group == KeyGroup::Sample {
            key.group = KeyGroup::Hot;
            self.hot += 1;
        }
        let (group, followed) = (key.group, &mut self.followed);
        let turn = self.recency.push(place, request.bytes, group, |place, turn| {
            let Some(key) = followed.get_mut(place as usize) else { return (0, KeyGroup::Sample) };
            key.turn = turn;
            (key.bytes.unwrap_or(0), key.group)
        });
        if let Some(key) = self.followed.get_mut(place as usize) {
            key.turn = turn;
        }
        if self.hot > HOT {
            self.cool();
        }
        while self.followed.len() - self.hot > SAMPLES && self.follow_fewer() {}
    }

    /// Follows another key, and returns its place.
    fn begin(&mut self, hash: u64, group: KeyGroup, now: u32) -> u32 {
        let place = u32::try_from(self.followed.len()).unwrap_or(u32::MAX);
        let is_listed = group == KeyGroup::Sample;
        let stored = [[now; GHOST_STEPS]; GHOST_STEPS];
        self.followed.push(FollowedKey { hash, bytes: None, turn: 0, group, is_listed, stored });
        self.places.insert(hash, place);
        if is_listed {
            self.greatest.push(hash);
        } else {
            self.hot += 1;
        }
        place
    }

    /// The hot key that was not asked for the longest is hot no more.
    fn cool(&mut self) {
        let hot = self.followed.iter_mut().filter(|key| key.group == KeyGroup::Hot);
        let Some(key) = hot.min_by_key(|key| key.turn) else { return };
        key.group = KeyGroup::Sample;
        self.hot -= 1;
        self.recency.cool(key.turn, key.bytes.unwrap_or(0));
        let hash = key.hash;
        if hash >= self.threshold {
            self.leave(hash);
        } else if !std::mem::replace(&mut key.is_listed, true) {
            self.greatest.push(hash);
        }
    }

    /// Lets the sample with the greatest hash go, and does not follow such any more. Whether there is another one.
    fn follow_fewer(&mut self) -> bool {
        let Some(hash) = self.greatest.pop() else { return false };
        let place = self.places.get(&hash).copied();
        match place.and_then(|place| self.followed.get_mut(place as usize)) {
            Some(key) if key.group == KeyGroup::Hot => key.is_listed = false,
            Some(_) => {
                self.threshold = hash;
                self.leave(hash);
            }
            None => {}
        }
        true
    }

    /// Does not follow a key any more.
    fn leave(&mut self, hash: u64) {
        let Some(place) = self.places.remove(&hash) else { return };
        let gone = self.followed.swap_remove(place as usize);
        self.recency.remove(gone.turn, gone.bytes.unwrap_or(0), gone.group);
        // who was last is there now
        if let Some(moved) = self.followed.get(place as usize) {
            self.places.insert(moved.hash, place);
            self.recency.rename(moved.turn, place);
        }
    }

    /// What a cache of the size `size` would have brought whose answers are given for the time `ttl`, by their places: to
    /// requests of a class, or to all.
    #[must_use]
    pub fn saving(&self, class: Option<usize>, size: usize, ttl: usize) -> GhostSaving {
        let classes = self.classes.iter().enumerate().filter(|(at, _)| class.is_none_or(|class| class == *at));
        let cell = |grid: &Grid<f64>| grid.get(size).and_then(|row| row.get(ttl)).copied().unwrap_or(f64::INFINITY);
        let mut saving = GhostSaving::default();
        let (mut asked, mut took) = (HitEstimate::default(), HitEstimate::default());
        for (_, totals) in classes {
            let ClassTotals { requests, service_ns, hot, samples } = totals;
            saving.requests += requests;
            saving.service_ns = saving.service_ns.saturating_add(*service_ns);
            asked.add(approximately(*requests), [hot.requests, cell(&hot.missed)], [samples.requests, cell(&samples.missed)]);
            took.add(
                approximately(*service_ns),
                [hot.service_ns, cell(&hot.missed_ns)],
                [samples.service_ns, cell(&samples.missed_ns)],
            );
        }
        saving.hit_rate = if saving.requests > 0 { asked.hits() / approximately(saving.requests) } else { 0.0 };
        saving.saved_ns = took.hits();
        saving
    }

    /// The share of keys that is followed.
    #[must_use]
    pub fn sampling_rate(&self) -> f64 {
        1.0 / self.sample_weight()
    }

    /// Begins to count anew, with caches that are as full as they are.
    pub fn restart(&mut self) {
        *self.classes = <[ClassTotals; GHOST_CLASSES]>::default();
    }

    /// The memory that it takes, in bytes.
    #[must_use]
    pub fn memory(&self) -> usize {
        // an entry of the table has a byte of its hash
        let table = TABLE * (size_of::<(u64, u32)>() + 1);
        let lists = self.frequent.memory()
            + self.followed.capacity() * size_of::<FollowedKey>()
            + self.greatest.capacity() * size_of::<u64>();
        size_of::<Self>() + size_of_val(&*self.classes) + table + lists + self.recency.memory()
    }
}

#[expect(clippy::cast_precision_loss, reason = "an estimate")]
const fn approximately(number: u64) -> f64 {
    number as f64
}

/// Whole ticks; they begin again after 497 days.
#[expect(clippy::cast_possible_truncation, reason = "differences are taken, which fit")]
const fn ticks(ns: u64) -> u32 {
    (ns / TICK_NS) as u32
}
