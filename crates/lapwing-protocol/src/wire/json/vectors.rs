//! Loops over many bytes, compiled for the widest vectors that the processor has: on x86-64 twice, for AVX2 and for any. A binary for
//! every processor of that architecture may otherwise use vectors of 16 bytes only, which takes twice as long.

use pulp::Arch;

/// How many bytes a loop examines together.
pub(crate) const WINDOW: usize = 64;
/// Fewer bytes are not worth asking the processor.
const MIN_BYTES: usize = 512;

/// Runs `pass`, a loop over this many bytes. What it calls must be inlined into it, or is compiled for any processor; so must `pass`.
#[inline(always)]
pub(crate) fn vectorised<T>(bytes: usize, pass: impl FnOnce() -> T) -> T {
    if bytes < MIN_BYTES { pass() } else { Arch::new().dispatch(pass) }
}

/// The number of commas in a window.
#[inline(always)]
pub(crate) fn commas(window: &[u8; WINDOW]) -> u64 {
    window.iter().fold(0, |n: u8, byte| n + u8::from(*byte == b',')).into()
}

/// Whether the byte is white space between values.
pub(crate) fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\n' | b'\r' | b'\t')
}
