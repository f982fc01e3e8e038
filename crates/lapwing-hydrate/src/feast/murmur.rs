//! MurmurHash3, 32 bits, seed 0: what Feast makes of a feature's name. Public domain, by Austin Appleby.

/// The hash of `text`, as Feast writes it: least significant byte first.
pub(crate) fn murmur3(text: &[u8]) -> [u8; 4] {
    const MIX: [u32; 2] = [0xcc9e_2d51, 0x1b87_3593];
    let scramble = |block: u32| block.wrapping_mul(MIX[0]).rotate_left(15).wrapping_mul(MIX[1]);
    let (blocks, rest) = text.as_chunks::<4>();
    let mut hash = 0_u32;
    for block in blocks {
        hash ^= scramble(u32::from_le_bytes(*block));
        hash = hash.rotate_left(13).wrapping_mul(5).wrapping_add(0xe654_6b64);
    }
    if !rest.is_empty() {
        let mut last = [0; 4];
        last[..rest.len()].copy_from_slice(rest);
        hash ^= scramble(u32::from_le_bytes(last));
    }
    // the length counts modulo 2^32
    hash ^= u32::try_from(text.len() & 0xffff_ffff).unwrap_or(0);
    hash = (hash ^ (hash >> 16)).wrapping_mul(0x85eb_ca6b);
    hash = (hash ^ (hash >> 13)).wrapping_mul(0xc2b2_ae35);
    (hash ^ (hash >> 16)).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_hashes() {
        // the reference's, for each length of what is left after whole blocks
        for (text, hash) in [
            ("", 0),
            ("a", 0x3c25_69b2),
            ("aa", 0x3710_91a9),
            ("aaa", 0xb4d0_5fb7_u32),
            ("aaaa", 0x7eee_d987),
            ("Hello, world!", 0xc036_3e43),
        ] {
            assert_eq!(u32::from_le_bytes(murmur3(text.as_bytes())), hash, "{text}");
        }
    }
}
