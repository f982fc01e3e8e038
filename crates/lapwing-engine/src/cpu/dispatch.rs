//! The single entry point of each level: runs a kernel with the widest vector instructions that are asked for and exist.

use super::level::Level;
use super::simd::{Kernel, Portable};

/// Runs `kernel` at `level`, or at the widest level of this machine if that is narrower.
///
/// # Safety
/// The kernel's own pointers are valid.
#[inline]
pub(crate) unsafe fn dispatch<K: Kernel>(level: Level, kernel: K) -> K::Out {
    match level.runnable() {
        // SAFETY: `runnable` never returns a level that the processor lacks.
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => unsafe { super::simd_x86::enter_avx512(kernel) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => unsafe { super::simd_x86::enter_avx2(kernel) },
        // SAFETY: `Portable` needs no instructions.
        _ => unsafe { kernel.run::<Portable>() },
    }
}
