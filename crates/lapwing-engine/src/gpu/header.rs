//! The header of a batch, as kernels read it (enum Header in kernels/args.cu): the batch's size, and where its
//! sequences begin.

use super::Capacity;
use super::lower::{HEADER_WORDS, QUERIES};

/// Writes the header's words for sequences that begin at `offsets` (the last offset is the end), in batches up to
/// `capacity`.
pub fn write(capacity: Capacity, offsets: &[usize], words: &mut Vec<i32>) {
    let word = |number: usize| i32::try_from(number).unwrap_or(i32::MAX);
    let batch = offsets.len().saturating_sub(1);
    words.clear();
    words.resize(HEADER_WORDS + 2 * (capacity.batch + 1), 0);
    let tiles_at = HEADER_WORDS + capacity.batch + 1;
    let mut tiles = 0;
    for (at, offset) in offsets.iter().enumerate() {
        words[HEADER_WORDS + at] = word(*offset);
        words[tiles_at + at] = word(tiles);
        tiles += offsets.get(at + 1).map_or(0, |next| (next - offset).div_ceil(QUERIES));
    }
    words[..4].copy_from_slice(&[batch, offsets.last().copied().unwrap_or(0), tiles, capacity.batch].map(word));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_says_where_sequences_and_their_tiles_begin() {
        let mut words = vec![7; 3];
        write(Capacity { batch: 4, tokens: 256, is_exact: false }, &[0, 3, 68, 132], &mut words);
        assert_eq!(words[..8], [3, 132, 4, 4, 0, 0, 0, 0]);
        assert_eq!(words[8..13], [0, 3, 68, 132, 0]);
        assert_eq!(words[13..], [0, 1, 3, 4, 0]);
    }
}
