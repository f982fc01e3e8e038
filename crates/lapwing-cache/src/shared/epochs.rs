//! What a process knows of the epochs in Redis: which it saw, which were replaced, and which it has to replace itself.
//!
//! Answers of Redis may be looked at in another order than they were given, by tasks that asked at the same time. So every question
//! says what was known when it was asked; one that was asked before the latest change changes nothing any more.

use std::collections::VecDeque;

use parking_lot::Mutex;
use rustc_hash::FxHashMap;

use super::keys::EpochSlot;

/// An epoch.
pub(crate) type Epoch = [u8; 16];

/// How many epochs are remembered that were replaced, for each slot.
const RETIRED: usize = 16;
/// How many models are known by their names. A change of a further one concerns all.
const MAX_MODELS: usize = 1_024;

/// What another process has forgotten, and this one has to forget too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SharedScope {
    /// All answers.
    All,
    /// Those of a model, and of requests that name none.
    Model(Box<str>),
    /// Those of requests that name no model.
    Unnamed,
}

/// A question to Redis for epochs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EpochQuestion {
    /// How many changes were known when it was asked.
    known: u64,
}

#[derive(Debug, Default)]
struct Slot {
    current: Option<Epoch>,
    retired: VecDeque<Epoch>,
    /// How many changes were known, with the last one of this.
    changed: u64,
    /// How often this process wanted another one, and how often it has written one.
    wanted: u64,
    written: u64,
}

impl Slot {
    const fn is_pending(&self) -> bool {
        self.written < self.wanted
    }

    fn replace(&mut self, epoch: Epoch, changes: &mut u64) {
        *changes += 1;
        self.changed = *changes;
        if let Some(before) = self.current.replace(epoch) {
            self.retire(before);
        }
    }

    fn retire(&mut self, epoch: Epoch) {
        if self.current != Some(epoch) && !self.retired.contains(&epoch) {
            self.retired.push_back(epoch);
            if self.retired.len() > RETIRED {
                self.retired.pop_front();
            }
        }
    }
}

#[derive(Debug, Default)]
struct Known {
    slots: FxHashMap<EpochSlot, Slot>,
    models: FxHashMap<Box<str>, EpochSlot>,
    has_more_models: bool,
    changes: u64,
}

/// What is known of all epochs.
#[derive(Debug, Default)]
pub(crate) struct Epochs {
    known: Mutex<Known>,
}

impl Epochs {
    /// A question for the epochs of a model; `None` while this process has to replace one of them.
    pub(crate) fn ask(&self, model: Option<&str>) -> Option<EpochQuestion> {
        let known = &mut *self.known.lock();
        if let Some(model) = model
            && !known.models.contains_key(model)
        {
            if known.models.len() < MAX_MODELS {
                known.models.insert(model.into(), EpochSlot::of(Some(model)));
            } else {
                known.has_more_models = true;
            }
        }
        let is_pending =
            [EpochSlot::All, EpochSlot::of(model)].iter().any(|slot| known.slots.entry(*slot).or_default().is_pending());
        (!is_pending).then_some(EpochQuestion { known: known.changes })
    }

    /// A question for any epochs.
    pub(crate) fn ask_any(&self) -> EpochQuestion {
        EpochQuestion { known: self.known.lock().changes }
    }

    /// What Redis answered to a question: the epoch of a slot, if it has one. Whether it may be used is returned, and what others have
    /// forgotten is added to `forgotten`.
    pub(crate) fn learn(
        &self,
        question: EpochQuestion,
        slot: EpochSlot,
        epoch: Option<Epoch>,
        forgotten: &mut Vec<SharedScope>,
    ) -> bool {
        let known = &mut *self.known.lock();
        let of = known.slots.entry(slot).or_default();
        let Some(epoch) = epoch else {
            // it was never there, or Redis lost it
            of.wanted += u64::from(question.known >= of.changed && !of.is_pending());
            return false;
        };
        if of.is_pending() {
            return false;
        }
        if of.current == Some(epoch) {
            return true;
        }
        if question.known < of.changed {
            return false;
        }
        if of.retired.contains(&epoch) {
            // Redis lost a write
            of.wanted += 1;
            return false;
        }
        let is_change = of.current.is_some();
        of.replace(epoch, &mut known.changes);
        if is_change {
            known.name(slot, forgotten);
        }
        true
    }

    /// Another epoch is wanted: for all answers, or those of a model and of requests that name none.
    pub(crate) fn want(&self, model: Option<&str>) {
        let slots = match model {
            None => vec![EpochSlot::All],
            Some(_) => vec![EpochSlot::of(model), EpochSlot::Unnamed],
        };
        let known = &mut *self.known.lock();
        for slot in slots {
            known.slots.entry(slot).or_default().wanted += 1;
        }
    }

    /// The slots that this process has to replace, each with what is to be given to [`Self::wrote`].
    pub(crate) fn pending(&self) -> Vec<(EpochSlot, u64)> {
        let known = self.known.lock();
        known.slots.iter().filter(|(_, of)| of.is_pending()).map(|(slot, of)| (*slot, of.wanted)).collect()
    }

    /// Redis has this epoch now, in place of `before`.
    pub(crate) fn wrote(&self, slot: EpochSlot, wanted: u64, epoch: Epoch, before: Option<Epoch>) {
        let known = &mut *self.known.lock();
        let of = known.slots.entry(slot).or_default();
        of.written = of.written.max(wanted);
        of.replace(epoch, &mut known.changes);
        if let Some(before) = before {
            of.retire(before);
        }
    }

    /// The slots that this process uses, of which Redis may have others.
    pub(crate) fn used(&self) -> Vec<EpochSlot> {
        self.known.lock().slots.keys().copied().collect()
    }
}

impl Known {
    /// What a slot stands for.
    fn name(&self, slot: EpochSlot, forgotten: &mut Vec<SharedScope>) {
        match slot {
            EpochSlot::All => forgotten.push(SharedScope::All),
            EpochSlot::Unnamed => forgotten.push(SharedScope::Unnamed),
            EpochSlot::Group(_) if self.has_more_models => forgotten.push(SharedScope::All),
            EpochSlot::Group(_) => {
                let models = self.models.iter().filter(|(_, of)| **of == slot);
                forgotten.extend(models.map(|(model, _)| SharedScope::Model(model.clone())));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: EpochSlot = EpochSlot::All;

    fn learn(epochs: &Epochs, question: EpochQuestion, epoch: u8) -> (bool, Vec<SharedScope>) {
        let mut forgotten = Vec::new();
        (epochs.learn(question, ALL, Some([epoch; 16]), &mut forgotten), forgotten)
    }

    #[test]
    fn the_first_epoch_is_no_change_and_the_next_is_one() {
        let epochs = Epochs::default();
        let ask = || epochs.ask(None).unwrap();
        assert_eq!(learn(&epochs, ask(), 1), (true, vec![]));
        assert_eq!(learn(&epochs, ask(), 1), (true, vec![]));
        assert_eq!(learn(&epochs, ask(), 2), (true, vec![SharedScope::All]));
        assert!(epochs.pending().is_empty());
    }

    #[test]
    fn answers_that_are_looked_at_late_change_nothing() {
        let epochs = Epochs::default();
        let ask = || epochs.ask(None).unwrap();
        assert!(learn(&epochs, ask(), 1).0);
        let (early, late) = (ask(), ask());
        assert_eq!(learn(&epochs, late, 3), (true, vec![SharedScope::All]));
        assert_eq!(learn(&epochs, early, 1), (false, vec![]), "replaced, and asked for before that was known");
        assert_eq!(learn(&epochs, early, 2), (false, vec![]), "never seen, and asked for before");
        assert_eq!(learn(&epochs, ask(), 3), (true, vec![]));
        assert!(epochs.pending().is_empty());
    }

    #[test]
    fn an_epoch_that_comes_back_is_replaced() {
        let epochs = Epochs::default();
        let ask = || epochs.ask(None).unwrap();
        assert!(learn(&epochs, ask(), 1).0 && learn(&epochs, ask(), 2).0);
        assert_eq!(learn(&epochs, ask(), 1), (false, vec![]));
        let [(ALL, wanted)] = epochs.pending()[..] else { panic!() };
        assert!(epochs.ask(None).is_none(), "nothing is read until it is");
        epochs.wrote(ALL, wanted, [3; 16], Some([1; 16]));
        assert!(learn(&epochs, ask(), 3).0 && epochs.pending().is_empty());
    }

    #[test]
    fn nothing_is_used_from_when_another_is_wanted_until_it_is_there() {
        let epochs = Epochs::default();
        let before = epochs.ask(Some("m")).unwrap();
        epochs.want(Some("m"));
        assert!(epochs.ask(Some("m")).is_none() && epochs.ask(None).is_none() && epochs.ask(Some("other")).is_some());
        let slot = EpochSlot::of(Some("m"));
        assert!(!epochs.learn(before, slot, Some([1; 16]), &mut Vec::new()), "asked before");
        let pending = epochs.pending();
        assert_eq!(pending.len(), 2);
        epochs.want(Some("m"));
        for (slot, wanted) in pending {
            epochs.wrote(slot, wanted, [2; 16], Some([1; 16]));
        }
        assert!(epochs.ask(Some("m")).is_none(), "wanted again meanwhile");
        for (slot, wanted) in epochs.pending() {
            epochs.wrote(slot, wanted, [3; 16], Some([2; 16]));
        }
        let mut forgotten = Vec::new();
        let ask = epochs.ask(Some("m")).unwrap();
        assert!(!epochs.learn(before, slot, Some([1; 16]), &mut forgotten), "it was replaced since");
        assert!(epochs.learn(ask, slot, Some([3; 16]), &mut forgotten) && forgotten.is_empty(), "its own is no news");
        assert!(epochs.learn(ask, slot, Some([4; 16]), &mut forgotten));
        assert_eq!(forgotten, [SharedScope::Model("m".into())]);
    }

    #[test]
    fn what_redis_has_not_is_written_once() {
        let epochs = Epochs::default();
        let ask = epochs.ask(None).unwrap();
        (0..2).for_each(|_| assert!(!epochs.learn(ask, ALL, None, &mut Vec::new())));
        let [(ALL, wanted)] = epochs.pending()[..] else { panic!() };
        epochs.wrote(ALL, wanted, [1; 16], None);
        assert!(!epochs.learn(ask, ALL, None, &mut Vec::new()), "it was asked for before");
        assert!(epochs.pending().is_empty());
        assert!(learn(&epochs, epochs.ask(None).unwrap(), 1).0);
    }

    #[test]
    fn more_models_than_are_known_are_forgotten_with_all() {
        let epochs = Epochs::default();
        assert!((0..=MAX_MODELS).all(|model| epochs.ask(Some(&model.to_string())).is_some()));
        let slot = EpochSlot::of(Some("0"));
        let mut forgotten = Vec::new();
        assert!(epochs.learn(epochs.ask_any(), slot, Some([1; 16]), &mut forgotten));
        assert!(epochs.learn(epochs.ask_any(), slot, Some([2; 16]), &mut forgotten));
        assert_eq!(forgotten, [SharedScope::All]);
    }
}
