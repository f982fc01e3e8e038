//! Who was asked for after whom, and how many bytes they are: sums over the most recent in logarithmic time (a Fenwick tree over turns).

/// A turn that is nobody's any more.
const NOBODY: u32 = u32::MAX;

/// What a key stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyGroup {
    /// For itself: it is asked for often.
    Hot,
    /// For all that are not hot, of which it is a sample.
    Sample,
}

/// One number for each group.
pub(crate) type ByGroup = [u64; 2];

/// The turns of at most so many keys, each known by its place.
#[derive(Debug)]
pub(crate) struct Recency {
    /// Whose turn each is.
    holders: Vec<u32>,
    /// Sums of bytes, as Fenwick has them.
    sums: Vec<ByGroup>,
    next: usize,
    total: ByGroup,
}

impl Recency {
    /// For so many keys. Turns are numbered anew once there were as many more.
    pub(crate) fn new(keys: usize) -> Self {
        let turns = 2 * keys;
        Self { holders: vec![NOBODY; turns], sums: vec![[0; 2]; turns + 1], next: 0, total: [0; 2] }
    }

    /// The bytes of those whose turn came after `turn`.
    pub(crate) fn bytes_after(&self, turn: u32) -> ByGroup {
        let (mut at, mut after) = (turn as usize + 1, self.total);
        while at > 0 {
            let sum = self.sums.get(at).copied().unwrap_or_default();
            after = [after[0].wrapping_sub(sum[0]), after[1].wrapping_sub(sum[1])];
            at &= at - 1;
        }
        after
    }

    /// Gives the turn of one back who has so many bytes.
    pub(crate) fn remove(&mut self, turn: u32, bytes: u64, group: KeyGroup) {
        if let Some(holder) = self.holders.get_mut(turn as usize) {
            *holder = NOBODY;
            self.add(turn as usize, bytes.wrapping_neg(), group);
        }
    }

    /// Who has this turn is at another place now.
    pub(crate) fn rename(&mut self, turn: u32, place: u32) {
        if let Some(holder) = self.holders.get_mut(turn as usize) {
            *holder = place;
        }
    }

    /// Who has this turn and so many bytes is hot no more.
    pub(crate) fn cool(&mut self, turn: u32, bytes: u64) {
        self.add(turn as usize, bytes.wrapping_neg(), KeyGroup::Hot);
        self.add(turn as usize, bytes, KeyGroup::Sample);
    }

    /// The next turn, for who is at `place` and has so many bytes. If turns are numbered anew, `moved` is told who has which, and
    /// asked for bytes and group.
    pub(crate) fn push(
        &mut self,
        place: u32,
        bytes: u64,
        group: KeyGroup,
        mut moved: impl FnMut(u32, u32) -> (u64, KeyGroup),
    ) -> u32 {
        if self.next == self.holders.len() {
            self.renumber(&mut moved);
        }
        let turn = self.next;
        self.next += 1;
        if let Some(holder) = self.holders.get_mut(turn) {
            *holder = place;
        }
        self.add(turn, bytes, group);
        u32::try_from(turn).unwrap_or(NOBODY)
    }

    fn renumber(&mut self, moved: &mut impl FnMut(u32, u32) -> (u64, KeyGroup)) {
        let places: Vec<u32> = self.holders.iter().copied().filter(|holder| *holder != NOBODY).collect();
        self.holders.fill(NOBODY);
        self.sums.fill([0; 2]);
        (self.next, self.total) = (places.len(), [0; 2]);
        for (turn, place) in places.into_iter().enumerate() {
            let (bytes, group) = moved(place, u32::try_from(turn).unwrap_or(NOBODY));
            self.holders[turn] = place;
            self.add(turn, bytes, group);
        }
    }

    fn add(&mut self, turn: usize, bytes: u64, group: KeyGroup) {
        let group = group as usize;
        self.total[group] = self.total[group].wrapping_add(bytes);
        let mut at = turn + 1;
        while let Some(sum) = self.sums.get_mut(at) {
            sum[group] = sum[group].wrapping_add(bytes);
            at += at & at.wrapping_neg();
        }
    }

    /// The memory that it takes, in bytes.
    pub(crate) fn memory(&self) -> usize {
        self.holders.capacity() * size_of::<u32>() + self.sums.capacity() * size_of::<ByGroup>()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Copy)]
    struct Listed {
        place: u32,
        turn: u32,
        bytes: u64,
        group: KeyGroup,
    }

    proptest! {
        /// Against a list.
        #[test]
        fn sums_are_those_of_a_list(steps in prop::collection::vec((0_u32..6, 0_u64..1_000, 0..5), 1..200)) {
            let mut recency = Recency::new(6);
            // the most recent last
            let mut list: Vec<Listed> = Vec::new();
            for (place, bytes, step) in steps {
                let found = list.iter().position(|one| one.place == place);
                if step == 4 && let Some(at) = found {
                    if list[at].group == KeyGroup::Hot {
                        recency.cool(list[at].turn, list[at].bytes);
                        list[at].group = KeyGroup::Sample;
                    }
                    continue;
                }
                if let Some(at) = found {
                    let one = list.remove(at);
                    recency.remove(one.turn, one.bytes, one.group);
                }
                if step > 0 {
                    let group = if step == 1 { KeyGroup::Hot } else { KeyGroup::Sample };
                    let turn = recency.push(place, bytes, group, |place, turn| {
                        let one = list.iter_mut().find(|one| one.place == place).unwrap();
                        one.turn = turn;
                        (one.bytes, one.group)
                    });
                    list.push(Listed { place, turn, bytes, group });
                }
                for (at, one) in list.iter().enumerate() {
                    let of = |group| list[at + 1..].iter().filter(|one| one.group == group).map(|one| one.bytes).sum::<u64>();
                    prop_assert_eq!(recency.bytes_after(one.turn), [of(KeyGroup::Hot), of(KeyGroup::Sample)]);
                }
            }
        }
    }
}
