//! What row kernels need beside the arithmetic of `simd`: square root, equality, transposes, slices. One extension trait, three levels.

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::*;

use super::level::Level;
use super::simd::{Portable, Simd};
#[cfg(target_arch = "x86_64")]
use super::simd_x86::{Avx2, Avx512};

/// Further operations on the vectors of a level.
///
/// # Safety
/// As with [`Simd`]: only on a processor that has the level's instructions.
pub(crate) unsafe trait SimdMore: Simd {
    /// Rows of accumulators that fit the registers beside two columns of vectors; divides `LANES`.
    const ROWS: usize;

    /// The square root.
    unsafe fn sqrt(a: Self::V) -> Self::V;
    /// The greatest integer not above.
    unsafe fn floor(a: Self::V) -> Self::V;
    /// `yes` where a == b, else `no` (also where either is NaN).
    unsafe fn select_eq(a: Self::V, b: Self::V, yes: Self::V, no: Self::V) -> Self::V;
    /// `to[c * stride + r] = rows[r][c]` for r and c in 0..8; so many values must be readable and writable.
    unsafe fn transpose8(rows: [*const f32; 8], to: *mut f32, stride: usize);

    /// The smallest lane (no NaN in it).
    #[inline(always)]
    unsafe fn least(v: Self::V) -> f32 {
        // SAFETY: arithmetic only.
        unsafe { -Self::largest(Self::sub(Self::splat(0.0), v)) }
    }

    /// Reads as many lanes as the slice has, zero in the others.
    #[inline(always)]
    unsafe fn load_slice(from: &[f32]) -> Self::V {
        // SAFETY: never more than the slice's length is read.
        unsafe { if from.len() >= Self::LANES { Self::load(from.as_ptr()) } else { Self::load_n(from.as_ptr(), from.len()) } }
    }

    /// Writes as many lanes as the slice has room for.
    #[inline(always)]
    unsafe fn store_slice(to: &mut [f32], v: Self::V) {
        // SAFETY: never more than the slice's length is written.
        unsafe {
            if to.len() >= Self::LANES {
                Self::store(to.as_mut_ptr(), v);
            } else {
                Self::store_n(to.as_mut_ptr(), to.len(), v);
            }
        }
    }
}

/// Portable lanes one by one.
#[inline(always)]
fn each(f: impl Fn(usize) -> f32) -> [f32; 8] {
    let mut out = [0.0; 8];
    for (i, o) in out.iter_mut().enumerate() {
        *o = f(i);
    }
    out
}

// SAFETY: no special instruction is used; pointers are the caller's promise.
unsafe impl SimdMore for Portable {
    const ROWS: usize = 2;

    #[inline(always)]
    unsafe fn sqrt(a: Self::V) -> Self::V {
        each(|i| a[i].sqrt())
    }
    #[inline(always)]
    unsafe fn floor(a: Self::V) -> Self::V {
        each(|i| a[i].floor())
    }
    #[inline(always)]
    unsafe fn select_eq(a: Self::V, b: Self::V, yes: Self::V, no: Self::V) -> Self::V {
        each(|i| if a[i] == b[i] { yes[i] } else { no[i] })
    }
    #[inline(always)]
    unsafe fn transpose8(rows: [*const f32; 8], to: *mut f32, stride: usize) {
        for (r, row) in rows.into_iter().enumerate() {
            for c in 0..8 {
                // SAFETY: the caller's promise.
                unsafe { *to.add(c * stride + r) = *row.add(c) };
            }
        }
    }
}

/// Transposes 8 x 8 values by half rows of four.
///
/// # Safety
/// The processor has AVX; pointers as `SimdMore::transpose8` says.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn transpose8_avx(rows: [*const f32; 8], to: *mut f32, stride: usize) {
    // SAFETY: the caller's promise; a half row is 4 of a row's 8 values.
    unsafe {
        let mut c = 0;
        while c < 8 {
            let half = [
                _mm256_insertf128_ps::<1>(_mm256_castps128_ps256(_mm_loadu_ps(rows[0].add(c))), _mm_loadu_ps(rows[4].add(c))),
                _mm256_insertf128_ps::<1>(_mm256_castps128_ps256(_mm_loadu_ps(rows[1].add(c))), _mm_loadu_ps(rows[5].add(c))),
                _mm256_insertf128_ps::<1>(_mm256_castps128_ps256(_mm_loadu_ps(rows[2].add(c))), _mm_loadu_ps(rows[6].add(c))),
                _mm256_insertf128_ps::<1>(_mm256_castps128_ps256(_mm_loadu_ps(rows[3].add(c))), _mm_loadu_ps(rows[7].add(c))),
            ];
            let (low01, high01) = (_mm256_unpacklo_ps(half[0], half[1]), _mm256_unpackhi_ps(half[0], half[1]));
            let (low23, high23) = (_mm256_unpacklo_ps(half[2], half[3]), _mm256_unpackhi_ps(half[2], half[3]));
            _mm256_storeu_ps(to.add(c * stride), _mm256_shuffle_ps::<0x44>(low01, low23));
            _mm256_storeu_ps(to.add((c + 1) * stride), _mm256_shuffle_ps::<0xee>(low01, low23));
            _mm256_storeu_ps(to.add((c + 2) * stride), _mm256_shuffle_ps::<0x44>(high01, high23));
            _mm256_storeu_ps(to.add((c + 3) * stride), _mm256_shuffle_ps::<0xee>(high01, high23));
            c += 4;
        }
    }
}

#[cfg(target_arch = "x86_64")]
// SAFETY: AVX-512 F and DQ instructions only, which the contract of `Simd` promises.
unsafe impl SimdMore for Avx512 {
    const ROWS: usize = 8;

    #[inline(always)]
    unsafe fn sqrt(a: Self::V) -> Self::V {
        // SAFETY: the level's instructions exist.
        unsafe { _mm512_sqrt_ps(a) }
    }
    #[inline(always)]
    unsafe fn floor(a: Self::V) -> Self::V {
        // SAFETY: the level's instructions exist.
        unsafe { _mm512_roundscale_ps::<1>(a) }
    }
    #[inline(always)]
    unsafe fn select_eq(a: Self::V, b: Self::V, yes: Self::V, no: Self::V) -> Self::V {
        // SAFETY: the level's instructions exist.
        unsafe { _mm512_mask_blend_ps(_mm512_cmp_ps_mask::<_CMP_EQ_OQ>(a, b), no, yes) }
    }
    #[inline(always)]
    unsafe fn transpose8(rows: [*const f32; 8], to: *mut f32, stride: usize) {
        // SAFETY: the caller's promise; AVX-512 implies AVX.
        unsafe { transpose8_avx(rows, to, stride) }
    }
}

#[cfg(target_arch = "x86_64")]
// SAFETY: AVX2 and FMA instructions only, which the contract of `Simd` promises.
unsafe impl SimdMore for Avx2 {
    const ROWS: usize = 4;

    #[inline(always)]
    unsafe fn sqrt(a: Self::V) -> Self::V {
        // SAFETY: the level's instructions exist.
        unsafe { _mm256_sqrt_ps(a) }
    }
    #[inline(always)]
    unsafe fn floor(a: Self::V) -> Self::V {
        // SAFETY: the level's instructions exist.
        unsafe { _mm256_floor_ps(a) }
    }
    #[inline(always)]
    unsafe fn select_eq(a: Self::V, b: Self::V, yes: Self::V, no: Self::V) -> Self::V {
        // SAFETY: the level's instructions exist.
        unsafe { _mm256_blendv_ps(no, yes, _mm256_cmp_ps::<_CMP_EQ_OQ>(a, b)) }
    }
    #[inline(always)]
    unsafe fn transpose8(rows: [*const f32; 8], to: *mut f32, stride: usize) {
        // SAFETY: the caller's promise; AVX2 implies AVX.
        unsafe { transpose8_avx(rows, to, stride) }
    }
}

/// As `simd::Kernel`, for work that needs [`SimdMore`].
pub(crate) trait RowKernel {
    /// What it gives back.
    type Out;
    /// Does it with the instructions of `S`. Mark every implementation `#[inline(always)]`.
    ///
    /// # Safety
    /// The processor has the instructions of `S`, and the kernel's own pointers are valid.
    unsafe fn run<S: SimdMore>(self) -> Self::Out;
}

/// Runs `kernel` at `level`, or at the widest level that this machine has if that one is narrower.
///
/// # Safety
/// The kernel's own pointers are valid; the level is seen to here.
#[inline]
pub(crate) unsafe fn dispatch<K: RowKernel>(level: Level, kernel: K) -> K::Out {
    match level.runnable() {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: `runnable` never gives a level that the processor lacks.
        Level::Avx512 => unsafe { enter_avx512(kernel) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: as above.
        Level::Avx2 => unsafe { enter_avx2(kernel) },
        // SAFETY: `Portable` needs no instructions.
        _ => unsafe { kernel.run::<Portable>() },
    }
}

/// # Safety
/// The processor has the features named here.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
unsafe fn enter_avx512<K: RowKernel>(kernel: K) -> K::Out {
    // SAFETY: the caller's promise covers `Avx512`.
    unsafe { kernel.run::<Avx512>() }
}

/// # Safety
/// The processor has the features named here.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
unsafe fn enter_avx2<K: RowKernel>(kernel: K) -> K::Out {
    // SAFETY: the caller's promise covers `Avx2`.
    unsafe { kernel.run::<Avx2>() }
}
