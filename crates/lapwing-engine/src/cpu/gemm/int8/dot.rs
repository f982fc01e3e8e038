//! The integer dot-product instructions behind one trait at four levels: one 32-bit word of a row (4 bytes, or two
//! 16-bit values) times as many weights of each column. Each level has a matching f32 level, which its epilogue uses.

use std::sync::OnceLock;

use super::super::super::level::Level;
use super::super::super::simd::{Portable, Simd};

#[cfg(target_arch = "x86_64")]
use super::super::super::simd_x86::{Avx2, Avx512};
#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::*;

/// A family of integer dot products, slowest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LevelI8 {
    /// Plain Rust.
    Portable,
    /// AVX2 without VNNI: widened to 16 bits, because the byte instruction would saturate.
    Avx2,
    /// AVX-VNNI: 8 lanes of `vpdpbusd`.
    AvxVnni,
    /// AVX512-VNNI: 16 lanes of `vpdpbusd`.
    Avx512Vnni,
}

impl LevelI8 {
    /// The fastest level of this machine.
    #[must_use]
    pub fn best() -> Self {
        Self::available().last().copied().unwrap_or(Self::Portable)
    }

    /// Every level that this machine can run, slowest first.
    #[must_use]
    pub fn available() -> Vec<Self> {
        [Self::Portable, Self::Avx2, Self::AvxVnni, Self::Avx512Vnni].into_iter().filter(|level| level.is_there()).collect()
    }

    /// The fastest level of this machine whose epilogue needs no more than `level`.
    #[must_use]
    pub fn for_floats(level: Level) -> Self {
        Self::available().into_iter().rev().find(|ints| ints.floats() <= level).unwrap_or(Self::Portable)
    }

    /// This level, or the best level of the machine if it lacks this one.
    #[must_use]
    pub fn runnable(self) -> Self {
        if self.is_there() { self } else { Self::best() }
    }

    /// The name used in tables and JSON lines.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Portable => "portable",
            Self::Avx2 => "avx2",
            Self::AvxVnni => "avx-vnni",
            Self::Avx512Vnni => "avx512-vnni",
        }
    }

    fn is_there(self) -> bool {
        static VNNI: OnceLock<(bool, bool)> = OnceLock::new();
        let (narrow, wide) = *VNNI.get_or_init(vnni);
        match self {
            Self::Portable => true,
            Self::Avx2 => Level::best() >= Level::Avx2,
            Self::AvxVnni => narrow && Level::best() >= Level::Avx2,
            Self::Avx512Vnni => wide && Level::best() >= Level::Avx512,
        }
    }

    /// The f32 level of the epilogue and of quantisation.
    pub(crate) fn floats(self) -> Level {
        match self {
            Self::Portable => Level::Portable,
            Self::Avx2 | Self::AvxVnni => Level::Avx2,
            Self::Avx512Vnni => Level::Avx512,
        }
    }

    /// Input values in one 32-bit word.
    pub(crate) fn group(self) -> usize {
        if self == Self::Avx2 { 2 } else { 4 }
    }

    /// Columns of a vector.
    pub(crate) fn lanes(self) -> usize {
        if self == Self::Avx512Vnni { 16 } else { 8 }
    }
}

#[cfg(target_arch = "x86_64")]
fn vnni() -> (bool, bool) {
    (is_x86_feature_detected!("avxvnni"), is_x86_feature_detected!("avx512vnni"))
}

#[cfg(not(target_arch = "x86_64"))]
fn vnni() -> (bool, bool) {
    (false, false)
}

/// The integer operations of one level.
///
/// # Safety
/// Every method may only run on a processor that has the level's instructions. Pointers must be valid for what is read.
pub(crate) unsafe trait Dot: Copy {
    /// The floats of the epilogue; as many lanes as `Ints`.
    type Floats: Simd;
    /// One vector of i32.
    type Ints: Copy;
    /// Weights of one column in a vector, which is also the number of input values in a word.
    const GROUP: usize;

    /// One word of a row in every lane.
    unsafe fn splat(word: u32) -> Self::Ints;
    /// `GROUP` weights for each lane.
    unsafe fn weights(p: *const i8) -> Self::Ints;
    /// sum + the dot product of each lane's unsigned inputs with its signed weights.
    unsafe fn dot(sum: Self::Ints, inputs: Self::Ints, weights: Self::Ints) -> Self::Ints;
    /// Reads one i32 per lane.
    unsafe fn load(p: *const i32) -> Self::Ints;
    /// a + b, wrapping.
    unsafe fn add(a: Self::Ints, b: Self::Ints) -> Self::Ints;
    /// a * b, the low 32 bits.
    unsafe fn mul(a: Self::Ints, b: Self::Ints) -> Self::Ints;
    /// To f32.
    unsafe fn floats(a: Self::Ints) -> <Self::Floats as Simd>::V;
}

/// A kernel written once for all integer levels; `run` is `#[inline(always)]`, as for `Kernel`.
pub(crate) trait KernelI8 {
    /// # Safety
    /// The processor has the instructions of `D`, and the kernel's own pointers are valid.
    unsafe fn run<D: Dot>(self);
}

/// Runs `kernel` at `level`.
///
/// # Safety
/// The machine has `level` (see `LevelI8::runnable`), and the kernel's pointers are valid.
#[inline]
pub(crate) unsafe fn dispatch_i8<K: KernelI8>(level: LevelI8, kernel: K) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        match level {
            #[cfg(target_arch = "x86_64")]
            LevelI8::Avx512Vnni => enter_avx512(kernel),
            #[cfg(target_arch = "x86_64")]
            LevelI8::AvxVnni => enter_avxvnni(kernel),
            #[cfg(target_arch = "x86_64")]
            LevelI8::Avx2 => enter_avx2(kernel),
            _ => kernel.run::<PortableI8>(),
        }
    }
}

/// Each entry point compiles the kernel with its target features; the caller guarantees that the processor has them.
#[cfg(target_arch = "x86_64")]
macro_rules! entries {
    ($($name:ident($features:literal) = $level:ty;)*) => {$(
        #[target_feature(enable = $features)]
        unsafe fn $name<K: KernelI8>(kernel: K) {
            // SAFETY: the caller guarantees the level.
            unsafe { kernel.run::<$level>() }
        }
    )*};
}

#[cfg(target_arch = "x86_64")]
entries! {
    enter_avx512("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma") = Avx512I8;
    enter_avxvnni("avx2,fma,avxvnni") = AvxVnniI8;
    enter_avx2("avx2,fma") = Avx2I8;
}

/// Trait methods that consist of one expression.
macro_rules! ops {
    ($($name:ident($($arg:ident: $ty:ty),*) -> $out:ty = $body:expr;)*) => {$(
        #[inline(always)]
        unsafe fn $name($($arg: $ty),*) -> $out {
            // SAFETY: by the trait's contract the level's instructions exist and the pointers are valid.
            #[allow(unused_unsafe, reason = "the portable methods need none")]
            unsafe { $body }
        }
    )*};
}

#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy)]
pub(crate) struct Avx512I8;

#[cfg(target_arch = "x86_64")]
// SAFETY: uses AVX-512 F and VNNI, which the contract guarantees.
unsafe impl Dot for Avx512I8 {
    type Floats = Avx512;
    type Ints = __m512i;
    const GROUP: usize = 4;
    ops! {
        splat(word: u32) -> __m512i = _mm512_set1_epi32(word.cast_signed());
        weights(p: *const i8) -> __m512i = _mm512_loadu_si512(p.cast());
        dot(sum: __m512i, inputs: __m512i, weights: __m512i) -> __m512i = _mm512_dpbusd_epi32(sum, inputs, weights);
        load(p: *const i32) -> __m512i = _mm512_loadu_si512(p.cast());
        add(a: __m512i, b: __m512i) -> __m512i = _mm512_add_epi32(a, b);
        mul(a: __m512i, b: __m512i) -> __m512i = _mm512_mullo_epi32(a, b);
        floats(a: __m512i) -> __m512 = _mm512_cvtepi32_ps(a);
    }
}

/// The 8-lane levels differ in the product only.
#[cfg(target_arch = "x86_64")]
macro_rules! eight_lanes {
    ($level:ident, $group:literal, |$p:ident| $weights:expr, |$sum:ident, $x:ident, $w:ident| $dot:expr) => {
        #[cfg(target_arch = "x86_64")]
        #[derive(Clone, Copy)]
        pub(crate) struct $level;

        // SAFETY: uses AVX2 (and AVX-VNNI where the level says so), which the contract guarantees.
        unsafe impl Dot for $level {
            type Floats = Avx2;
            type Ints = __m256i;
            const GROUP: usize = $group;
            ops! {
                splat(word: u32) -> __m256i = _mm256_set1_epi32(word.cast_signed());
                weights($p: *const i8) -> __m256i = $weights;
                dot($sum: __m256i, $x: __m256i, $w: __m256i) -> __m256i = $dot;
                load(p: *const i32) -> __m256i = _mm256_loadu_si256(p.cast());
                add(a: __m256i, b: __m256i) -> __m256i = _mm256_add_epi32(a, b);
                mul(a: __m256i, b: __m256i) -> __m256i = _mm256_mullo_epi32(a, b);
                floats(a: __m256i) -> __m256 = _mm256_cvtepi32_ps(a);
            }
        }
    };
}

#[cfg(target_arch = "x86_64")]
eight_lanes!(AvxVnniI8, 4, |p| _mm256_loadu_si256(p.cast()), |sum, x, w| _mm256_dpbusd_avx_epi32(sum, x, w));
#[cfg(target_arch = "x86_64")]
eight_lanes!(Avx2I8, 2, |p| _mm256_cvtepi8_epi16(_mm_loadu_si128(p.cast())), |sum, x, w| _mm256_add_epi32(
    sum,
    _mm256_madd_epi16(x, w)
));

/// Eight lanes in plain Rust.
#[derive(Clone, Copy)]
pub(crate) struct PortableI8;

/// One lane: the sum of four products.
#[inline(always)]
fn dot4(inputs: i32, weights: i32) -> i32 {
    let (x, w) = (inputs.to_ne_bytes(), weights.to_ne_bytes());
    let (mut sum, mut i) = (0, 0);
    while i < 4 {
        sum += i32::from(x[i]) * i32::from(w[i].cast_signed());
        i += 1;
    }
    sum
}

#[inline(always)]
fn zip8(a: [i32; 8], b: [i32; 8], f: impl Fn(i32, i32) -> i32) -> [i32; 8] {
    // not `array::from_fn`: its closure is not inlined here
    let mut out = [0; 8];
    let mut i = 0;
    while i < 8 {
        out[i] = f(a[i], b[i]);
        i += 1;
    }
    out
}

// SAFETY: uses no special instructions; the caller guarantees the pointers.
unsafe impl Dot for PortableI8 {
    type Floats = Portable;
    type Ints = [i32; 8];
    const GROUP: usize = 4;
    ops! {
        splat(word: u32) -> [i32; 8] = [word.cast_signed(); 8];
        weights(p: *const i8) -> [i32; 8] = p.cast::<[i32; 8]>().read_unaligned();
        dot(sum: [i32; 8], inputs: [i32; 8], weights: [i32; 8]) -> [i32; 8] = zip8(sum, zip8(inputs, weights, dot4), i32::wrapping_add);
        load(p: *const i32) -> [i32; 8] = p.cast::<[i32; 8]>().read_unaligned();
        add(a: [i32; 8], b: [i32; 8]) -> [i32; 8] = zip8(a, b, i32::wrapping_add);
        mul(a: [i32; 8], b: [i32; 8]) -> [i32; 8] = zip8(a, b, i32::wrapping_mul);
        floats(a: [i32; 8]) -> [f32; 8] = a.map(|x| x as f32);
    }
}
