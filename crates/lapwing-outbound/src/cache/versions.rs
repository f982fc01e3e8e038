//! Whether a key may have changed since its answer was asked for. Keys share a fixed number of slots, so a write may forget more than
//! its own key, and never less.
//!
//! A write counts from when it is passed on until its reply has come: what was asked for before it, or meanwhile, is not kept. If its
//! connection ends first, nobody knows when the store carries it out, so nothing of its key is kept for a time to live.

use std::hash::{Hash, Hasher};

use rustc_hash::FxHasher;

use lapwing_ledger::Stamp;

/// How many slots there are, a power of two.
const SLOTS: usize = 1 << 14;

/// What may have changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Written {
    /// The keys of a slot.
    Slot(u16),
    /// Any key.
    All,
}

impl Written {
    /// The slot of a key.
    pub(crate) fn key(key: &[u8]) -> Self {
        let mut hasher = FxHasher::default();
        key.hash(&mut hasher);
        Self::Slot((hasher.finish() as usize % SLOTS) as u16)
    }
}

/// How a slot was when something was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SeenVersion {
    slot: u16,
    version: u64,
    of_all: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    version: u64,
    /// Writes that have no reply.
    writing: u32,
    /// Until when nothing is kept.
    blocked_until: Stamp,
}

/// The slots of one downstream.
#[derive(Debug)]
pub(crate) struct KeyVersions {
    slots: Box<[Slot]>,
    all: Slot,
    block_ns: u64,
}

impl KeyVersions {
    /// Slots that are blocked for so long after a write of which nobody knows when it is carried out.
    pub(crate) fn new(block_ns: u64) -> Self {
        Self { slots: vec![Slot::default(); SLOTS].into(), all: Slot::default(), block_ns }
    }

    fn slot(&mut self, written: Written) -> &mut Slot {
        match written {
            Written::Slot(at) => &mut self.slots[usize::from(at) % SLOTS],
            Written::All => &mut self.all,
        }
    }

    /// How the slot of `key` is; `None` if what is asked for now must not be kept.
    pub(crate) fn see(&self, key: &[u8], now: Stamp) -> Option<SeenVersion> {
        let Written::Slot(at) = Written::key(key) else { return None };
        let slot = &self.slots[usize::from(at)];
        let is_open = |slot: &Slot| slot.writing == 0 && slot.blocked_until <= now;
        (is_open(slot) && is_open(&self.all)).then_some(SeenVersion { slot: at, version: slot.version, of_all: self.all.version })
    }

    /// Whether nothing was written since.
    pub(crate) fn is_current(&self, seen: SeenVersion) -> bool {
        self.slots[usize::from(seen.slot)].version == seen.version && self.all.version == seen.of_all
    }

    /// A write is passed on.
    pub(crate) fn begin(&mut self, written: Written) {
        let slot = self.slot(written);
        slot.version += 1;
        slot.writing = slot.writing.saturating_add(1);
    }

    /// Its reply has come.
    pub(crate) fn end(&mut self, written: Written) {
        let slot = self.slot(written);
        slot.writing = slot.writing.saturating_sub(1);
    }

    /// Its reply will not come, or not be known.
    pub(crate) fn cut(&mut self, written: Written, now: Stamp) {
        self.end(written);
        self.block(written, now);
    }

    /// A write is passed on whose reply will not be known.
    pub(crate) fn block(&mut self, written: Written, now: Stamp) {
        let until = now.plus(self.block_ns);
        let slot = self.slot(written);
        slot.version += 1;
        slot.blocked_until = until;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ns: u64) -> Stamp {
        Stamp::default().plus(ns)
    }

    #[test]
    fn a_write_forgets_what_was_seen_before_it_and_meanwhile() {
        let mut versions = KeyVersions::new(100);
        let (key, other) = (Written::key(b"a"), Written::key(b"b"));
        assert_ne!(key, other);
        let before = versions.see(b"a", at(1)).unwrap();
        let of_other = versions.see(b"b", at(1)).unwrap();
        versions.begin(key);
        assert!(!versions.is_current(before) && versions.is_current(of_other));
        assert_eq!(versions.see(b"a", at(2)), None);
        versions.end(key);
        let after = versions.see(b"a", at(3)).unwrap();
        assert!(versions.is_current(after));
        versions.begin(Written::All);
        assert!(!versions.is_current(after) && !versions.is_current(of_other));
        assert_eq!(versions.see(b"b", at(3)), None);
        versions.end(Written::All);
        assert!(versions.see(b"b", at(3)).is_some());
    }

    #[test]
    fn a_write_that_was_cut_keeps_its_key_out_for_a_while() {
        let mut versions = KeyVersions::new(100);
        let key = Written::key(b"a");
        versions.begin(key);
        versions.cut(key, at(10));
        assert_eq!(versions.see(b"a", at(109)), None);
        let after = versions.see(b"a", at(110)).unwrap();
        assert!(versions.see(b"b", at(11)).is_some());
        versions.block(Written::All, at(200));
        assert!(!versions.is_current(after));
        assert_eq!(versions.see(b"b", at(299)), None);
        assert!(versions.see(b"b", at(300)).is_some());
    }
}
