//! No answer from before a purge is given after it, also not one that was on its way.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use http::Request;

use super::*;
use crate::generation::CacheGenerations;
use crate::key::{KeyContext, KeyMaker, KeyRules};
use crate::store::{AnswerStore, CacheLookup};

const MODELS: [&str; 3] = ["a", "b", "c"];

struct Cache {
    keys: KeyMaker,
    generations: CacheGenerations,
    store: AnswerStore,
    /// What each model answers.
    versions: [AtomicU64; MODELS.len()],
    /// Versions of each whose answers must not be given any more are smaller.
    purged: [AtomicU64; MODELS.len()],
}

impl Cache {
    fn key(&self, model: usize, question: u64) -> KeyedRequest {
        let head = Request::post("/v2/models/m/infer").body(()).unwrap();
        let generation = self.generations.current(Some(MODELS[model]));
        let context = KeyContext { model: Some(MODELS[model]), generation, ..KeyContext::default() };
        self.keys.key(&head, &[Bytes::from(question.to_string())], context, &KeyRules::default())
    }

    /// Asks as the data plane does: key, cache, server, cache. Whether the cache had it.
    fn ask(&self, model: usize, question: u64) -> bool {
        let purged = self.purged[model].load(Ordering::Acquire);
        let request = self.key(model, question);
        if let CacheLookup::Hit(stored) = self.store.get(&request.key, &FREE, at(0)) {
            let version: u64 = std::str::from_utf8(stored.body()).unwrap().parse().unwrap();
            assert!(version >= purged, "an answer of version {version} after {purged}");
            return true;
        }
        let version = self.versions[model].load(Ordering::Acquire);
        thread::yield_now();
        let stored = answer(&request, &[], version.to_string().as_bytes(), at(0)).unwrap();
        self.store.put(request.key, stored).unwrap();
        false
    }

    /// The server changes, then the cache forgets; from then on no client may see the old.
    fn change(&self, models: &[usize], forget: impl Fn(&CacheGenerations)) {
        let versions: Vec<_> = models.iter().map(|model| self.versions[*model].fetch_add(1, Ordering::AcqRel) + 1).collect();
        forget(&self.generations);
        models.iter().zip(versions).for_each(|(model, version)| self.purged[*model].store(version, Ordering::Release));
    }
}

#[test]
fn under_load_nothing_is_given_that_was_to_be_forgotten() {
    let cache = Cache {
        keys: KeyMaker::new([3; 32]),
        generations: CacheGenerations::default(),
        store: AnswerStore::new(4 << 20, 1 << 10),
        versions: Default::default(),
        purged: Default::default(),
    };
    let (is_done, hits) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        for client in 0..3 {
            let (cache, is_done, hits) = (&cache, &is_done, &hits);
            scope.spawn(move || {
                let mut turn = client;
                while !is_done.load(Ordering::Relaxed) || hits.load(Ordering::Relaxed) < 100 {
                    hits.fetch_add(cache.ask(turn % 3, turn as u64 % 5).into(), Ordering::Relaxed);
                    turn += 1;
                }
            });
        }
        for round in 0..400 {
            match round % 3 {
                0 => cache.change(&[0, 1, 2], CacheGenerations::renew),
                1 => cache.change(&[1], |generations| generations.renew_model(MODELS[1])),
                _ => cache.change(&[2], |generations| generations.renew_model(MODELS[2])),
            }
            (0..5).for_each(|_| thread::yield_now());
        }
        is_done.store(true, Ordering::Relaxed);
    });
}
