//! Which vector instructions this processor has. Detected once and cached: kernels are selected at run time by a
//! `Level`, never by a cfg at build time.

use std::sync::OnceLock;

/// A family of vector instructions, narrowest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// Plain Rust, vectorised by the compiler with whatever the target guarantees (SSE2 on x86-64).
    Portable,
    /// AVX2 with FMA: 8 lanes of f32.
    Avx2,
    /// AVX-512 F, BW, DQ and VL: 16 lanes of f32.
    Avx512,
}

impl Level {
    /// The widest level of this machine.
    #[must_use]
    pub fn best() -> Self {
        static BEST: OnceLock<Level> = OnceLock::new();
        *BEST.get_or_init(probe)
    }

    /// Every level that this machine can run, narrowest first.
    #[must_use]
    pub fn available() -> Vec<Self> {
        [Self::Portable, Self::Avx2, Self::Avx512].into_iter().filter(|level| *level <= Self::best()).collect()
    }

    /// This level, or the widest level of the machine if this one is too wide for it. The level stored in a kernel is
    /// always a runnable one.
    #[must_use]
    pub fn runnable(self) -> Self {
        self.min(Self::best())
    }

    /// The name used in tables and JSON lines.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Portable => "portable",
            Self::Avx2 => "avx2",
            Self::Avx512 => "avx512",
        }
    }
}

#[cfg(target_arch = "x86_64")]
fn probe() -> Level {
    let avx2 = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
    let avx512 = is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vl");
    match (avx2, avx512) {
        (true, true) => Level::Avx512,
        (true, false) => Level::Avx2,
        _ => Level::Portable,
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn probe() -> Level {
    Level::Portable
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_ordered_and_portable_is_always_there() {
        assert_eq!(Level::available().first(), Some(&Level::Portable));
        assert_eq!(Level::available().last(), Some(&Level::best()));
        assert!(Level::Avx512.runnable() <= Level::best());
    }
}
