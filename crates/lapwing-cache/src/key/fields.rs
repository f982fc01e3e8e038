//! An encoding of fields from which each can be told again, fed to a keyed BLAKE3.
//!
//! Every field is its tag, the number of its values, and each value after its length: whole numbers of 64 bits, little-endian. So
//! no two lists of fields have the same bytes, whatever their values contain, and only a collision of BLAKE3 itself could give
//! them the same hash.

/// How many bytes are collected before they are hashed: an element of a tensor has as few as one.
const COLLECTED: usize = 2_048;

/// Hashes fields.
#[derive(Clone)]
pub(crate) struct FieldHasher {
    hasher: blake3::Hasher,
    collected: [u8; COLLECTED],
    len: usize,
}

impl FieldHasher {
    /// With a key that nobody else knows.
    pub(crate) fn new(secret: &[u8; 32]) -> Self {
        Self { hasher: blake3::Hasher::new_keyed(secret), collected: [0; COLLECTED], len: 0 }
    }

    /// Bytes whose number is known from what precedes them.
    #[inline]
    pub(crate) fn raw(&mut self, bytes: &[u8]) {
        if let Some(room) = self.collected.get_mut(self.len..self.len + bytes.len()) {
            room.copy_from_slice(bytes);
            self.len += bytes.len();
        } else {
            self.flush();
            self.hasher.update(bytes);
        }
    }

    /// A number.
    #[inline]
    pub(crate) fn number(&mut self, number: u64) {
        self.raw(&number.to_le_bytes());
    }

    /// How many of something follow.
    pub(crate) fn count(&mut self, count: usize) {
        self.number(count as u64);
    }

    /// A value of any length.
    pub(crate) fn value(&mut self, bytes: &[u8]) {
        self.count(bytes.len());
        self.raw(bytes);
    }

    /// A field with one value, or without.
    pub(crate) fn field(&mut self, tag: u8, value: Option<&[u8]>) {
        self.raw(&[tag]);
        self.count(usize::from(value.is_some()));
        if let Some(value) = value {
            self.value(value);
        }
    }

    fn flush(&mut self) {
        self.hasher.update(self.collected.get(..self.len).unwrap_or_default());
        self.len = 0;
    }

    /// The hash of all of them.
    pub(crate) fn finish(mut self) -> [u8; 32] {
        self.flush();
        *self.hasher.finalize().as_bytes()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn hash(fields: &[(u8, Option<Vec<u8>>)]) -> [u8; 32] {
        let mut hasher = FieldHasher::new(&[7; 32]);
        fields.iter().for_each(|(tag, value)| hasher.field(*tag, value.as_deref()));
        hasher.finish()
    }

    #[test]
    fn what_moves_from_one_field_to_the_next_changes_the_hash() {
        let field = |tag, text: &str| (tag, Some(text.as_bytes().to_vec()));
        let all = [
            vec![field(1, "ab"), field(2, "c")],
            vec![field(1, "a"), field(2, "bc")],
            vec![field(1, "abc"), field(2, "")],
            vec![field(1, "abc"), (2, None)],
            vec![(1, None), field(2, "abc")],
            vec![field(2, "ab"), field(1, "c")],
        ];
        for (at, one) in all.iter().enumerate() {
            for other in &all[..at] {
                assert_ne!(hash(one), hash(other), "{one:?} {other:?}");
            }
        }
    }

    proptest! {
        #[test]
        fn a_hash_does_not_depend_on_how_its_bytes_come(bytes in prop::collection::vec(any::<u8>(), 0..6_000), cut in 1_usize..3_000) {
            let mut pieces = FieldHasher::new(&[7; 32]);
            bytes.chunks(cut).for_each(|piece| pieces.raw(piece));
            prop_assert_eq!(pieces.finish(), *blake3::keyed_hash(&[7; 32], &bytes).as_bytes());
        }
    }
}
