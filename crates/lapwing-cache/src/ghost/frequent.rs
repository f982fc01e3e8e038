//! Which keys are asked for often: by majority (Boyer and Moore) in each of many small groups of keys.

/// How many groups of keys there are. A key that has most of the requests of its group is found, so each that has more than about
/// one in a thousand of all.
const GROUPS: usize = 1_024;
/// By how many requests a key must be ahead of the others of its group.
const LEAD: u32 = 32;

/// Counts requests by key.
#[derive(Debug)]
pub(crate) struct FrequentKeys(Vec<(u64, u32)>);

impl Default for FrequentKeys {
    fn default() -> Self {
        Self(vec![(0, 0); GROUPS])
    }
}

impl FrequentKeys {
    /// Counts a request. Whether its key is asked for often.
    pub(crate) fn count(&mut self, hash: u64) -> bool {
        // the upper bits decide who is sampled
        let group = (hash & (GROUPS as u64 - 1)) as usize;
        let Some((leader, lead)) = self.0.get_mut(group) else { return false };
        if *lead == 0 {
            *leader = hash;
        }
        if *leader == hash {
            *lead = (*lead + 1).min(2 * LEAD);
            return *lead >= LEAD;
        }
        *lead -= 1;
        false
    }

    /// The memory that it takes, in bytes.
    pub(crate) fn memory(&self) -> usize {
        self.0.capacity() * size_of::<(u64, u32)>()
    }
}
