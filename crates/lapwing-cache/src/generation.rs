//! Which answers are still the server's: numbers that rise when everything that it said before is to be forgotten.
//!
//! A generation is read when a request comes, before its upstream is asked, and is part of its key. So an answer that was on its
//! way while somebody purged is stored where nobody looks any more.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;
use rustc_hash::FxHashMap;

/// How many models have generations of their own. A change of a further one changes the generation of all.
const MAX_MODELS: usize = 1_024;

/// Before which answers are not given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheGeneration {
    all: u64,
    model: u64,
}

impl CacheGeneration {
    /// Both numbers, for a key.
    pub(crate) fn to_bytes(self) -> [u8; 16] {
        (u128::from(self.all) << 64 | u128::from(self.model)).to_le_bytes()
    }
}

/// The generations of all models.
#[derive(Debug, Default)]
pub struct CacheGenerations {
    all: AtomicU64,
    /// That of requests whose model nobody knows.
    unnamed: AtomicU64,
    models: RwLock<FxHashMap<Box<str>, u64>>,
}

impl CacheGenerations {
    /// That of a model, or of requests whose model nobody knows.
    #[must_use]
    pub fn current(&self, model: Option<&str>) -> CacheGeneration {
        let all = self.all.load(Ordering::Acquire);
        let model = match model {
            Some(model) => self.models.read().get(model).copied().unwrap_or(0),
            None => self.unnamed.load(Ordering::Acquire),
        };
        CacheGeneration { all, model }
    }

    /// Forgets all answers: somebody asked for it, an upstream restarted, or an answer was found to be stale.
    pub fn renew(&self) {
        self.all.fetch_add(1, Ordering::AcqRel);
    }

    /// Forgets those of requests that name no model.
    pub fn renew_unnamed(&self) {
        self.unnamed.fetch_add(1, Ordering::AcqRel);
    }

    /// Forgets those of a model, whose version changed. Requests that do not name their model may be to it, so theirs are forgotten too.
    pub fn renew_model(&self, model: &str) {
        self.unnamed.fetch_add(1, Ordering::AcqRel);
        let mut models = self.models.write();
        if let Some(number) = models.get_mut(model) {
            *number += 1;
        } else if models.len() < MAX_MODELS {
            models.insert(model.into(), 1);
        } else {
            drop(models);
            self.renew();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_generation_ends_for_whom_it_should() {
        let generations = CacheGenerations::default();
        let (a, b, unnamed) = (generations.current(Some("a")), generations.current(Some("b")), generations.current(None));
        generations.renew_model("a");
        assert_ne!(generations.current(Some("a")), a);
        assert_eq!(generations.current(Some("b")), b);
        assert_ne!(generations.current(None), unnamed, "it may be to any model");
        let a = generations.current(Some("a"));
        generations.renew();
        for (model, before) in [(Some("a"), a), (Some("b"), b), (None, unnamed)] {
            assert_ne!(generations.current(model), before);
        }
    }

    #[test]
    fn more_models_than_are_kept_are_forgotten_with_all_others() {
        let generations = CacheGenerations::default();
        (0..MAX_MODELS).for_each(|model| generations.renew_model(&model.to_string()));
        let (known, before) = (generations.current(Some("3")), generations.current(Some("other")));
        generations.renew_model("other");
        assert_ne!(generations.current(Some("other")), before);
        assert_ne!(generations.current(Some("3")), known);
        assert_eq!(generations.models.read().len(), MAX_MODELS);
    }
}
