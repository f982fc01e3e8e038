//! The x86-64 levels of `simd`: AVX2 with FMA, and AVX-512. Intrinsics only.

use std::arch::x86_64::*;

use super::simd::{Kernel, Simd};

/// The entry point of the AVX-512 level.
///
/// # Safety
/// The processor has the features named here.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
pub(crate) unsafe fn enter_avx512<K: Kernel>(kernel: K) -> K::Out {
    // SAFETY: the caller guarantees the features of `Avx512`.
    unsafe { kernel.run::<Avx512>() }
}

/// The entry point of the AVX2 level.
///
/// # Safety
/// The processor has the features named here.
#[target_feature(enable = "avx2,fma")]
pub(crate) unsafe fn enter_avx2<K: Kernel>(kernel: K) -> K::Out {
    // SAFETY: the caller guarantees the features of `Avx2`.
    unsafe { kernel.run::<Avx2>() }
}

/// Sixteen lanes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Avx512;

/// Eight lanes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Avx2;

/// Trait methods that consist of one expression of intrinsics.
macro_rules! ops {
    ($($name:ident($($arg:ident: $ty:ty),*) -> $out:ty = $body:expr;)*) => {$(
        #[inline(always)]
        unsafe fn $name($($arg: $ty),*) -> $out {
            // SAFETY: by the trait's contract the level's instructions exist and the pointers are valid.
            unsafe { $body }
        }
    )*};
}

/// Transposes 8 x 8 values by half rows of four.
///
/// # Safety
/// The processor has AVX; pointers as `Simd::transpose8` says.
#[inline(always)]
unsafe fn transpose8_avx(rows: [*const f32; 8], to: *mut f32, stride: usize) {
    // SAFETY: guaranteed by the caller; a half row is 4 of a row's 8 values.
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

/// A mask of the lanes below `n`.
#[inline(always)]
fn low_lanes(n: usize) -> __mmask16 {
    // n <= 16, so the shifted value fits 32 bits.
    ((1u32 << n.min(16)) - 1) as __mmask16
}

// SAFETY: uses AVX-512 F and DQ instructions only, which the trait's contract guarantees.
unsafe impl Simd for Avx512 {
    type V = __m512;
    const LANES: usize = 16;
    const REGISTERS: usize = 32;
    const ROWS: usize = 8;

    ops! {
        sqrt(a: __m512) -> __m512 = _mm512_sqrt_ps(a);
        floor(a: __m512) -> __m512 = _mm512_roundscale_ps::<1>(a);
        select_eq(a: __m512, b: __m512, yes: __m512, no: __m512) -> __m512 = _mm512_mask_blend_ps(_mm512_cmp_ps_mask::<_CMP_EQ_OQ>(a, b), no, yes);
        transpose8(rows: [*const f32; 8], to: *mut f32, stride: usize) -> () = transpose8_avx(rows, to, stride);
        load(p: *const f32) -> __m512 = _mm512_loadu_ps(p);
        store(p: *mut f32, v: __m512) -> () = _mm512_storeu_ps(p, v);
        load_n(p: *const f32, n: usize) -> __m512 = _mm512_maskz_loadu_ps(low_lanes(n), p);
        store_n(p: *mut f32, n: usize, v: __m512) -> () = _mm512_mask_storeu_ps(p, low_lanes(n), v);
        splat(x: f32) -> __m512 = _mm512_set1_ps(x);
        add(a: __m512, b: __m512) -> __m512 = _mm512_add_ps(a, b);
        sub(a: __m512, b: __m512) -> __m512 = _mm512_sub_ps(a, b);
        mul(a: __m512, b: __m512) -> __m512 = _mm512_mul_ps(a, b);
        div(a: __m512, b: __m512) -> __m512 = _mm512_div_ps(a, b);
        fma(a: __m512, b: __m512, c: __m512) -> __m512 = _mm512_fmadd_ps(a, b, c);
        fnma(a: __m512, b: __m512, c: __m512) -> __m512 = _mm512_fnmadd_ps(a, b, c);
        max(a: __m512, b: __m512) -> __m512 = _mm512_max_ps(a, b);
        min(a: __m512, b: __m512) -> __m512 = _mm512_min_ps(a, b);
        abs(a: __m512) -> __m512 = _mm512_abs_ps(a);
        with_sign(a: __m512, b: __m512) -> __m512 = _mm512_or_ps(a, _mm512_and_ps(b, _mm512_set1_ps(-0.0)));
        select_lt(a: __m512, b: __m512, yes: __m512, no: __m512) -> __m512 =
            _mm512_mask_blend_ps(_mm512_cmp_ps_mask::<_CMP_LT_OQ>(a, b), no, yes);
        round(a: __m512) -> __m512 = _mm512_roundscale_ps::<0>(a);
        round_any(a: __m512) -> __m512 = _mm512_roundscale_ps::<0>(a);
        store_bytes(p: *mut u8, v: __m512) -> () = _mm_storeu_si128(p.cast(), _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(v)));
        scale2(v: __m512, n: __m512) -> __m512 = _mm512_scalef_ps(v, n);
        prefetch_to_write(p: *const f32) -> () = _mm_prefetch::<_MM_HINT_ET0>(p.cast());
        sum(v: __m512) -> f32 = _mm512_reduce_add_ps(v);
        largest(v: __m512) -> f32 = _mm512_reduce_max_ps(v);
    }
}

/// Eight set words, then eight clear ones: reading from word 8 - n gives the mask of n lanes.
static MASKS: [i32; 16] = [-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0];

#[inline(always)]
unsafe fn mask8(n: usize) -> __m256i {
    // SAFETY: 8 - n..16 - n lies in the 16 words; the caller guarantees AVX.
    unsafe { _mm256_loadu_si256(MASKS.as_ptr().add(8 - n.min(8)).cast()) }
}

/// v * 2^n as two multiplications, so that every exponent is in range (see `Portable::scale2`).
#[inline(always)]
unsafe fn scale2_avx2(v: __m256, n: __m256) -> __m256 {
    // SAFETY: the caller guarantees AVX2.
    unsafe {
        let n = _mm256_cvtps_epi32(_mm256_max_ps(_mm256_set1_ps(-126.0), n));
        let power = _mm256_castsi256_ps(_mm256_slli_epi32::<23>(_mm256_add_epi32(n, _mm256_set1_epi32(126))));
        let scaled = _mm256_mul_ps(v, power);
        _mm256_add_ps(scaled, scaled)
    }
}

#[inline(always)]
unsafe fn store_bytes_avx2(p: *mut u8, v: __m256) {
    // SAFETY: the caller guarantees AVX2 and eight valid bytes.
    unsafe {
        let words = _mm256_cvtps_epi32(v);
        let halves = _mm_packus_epi32(_mm256_castsi256_si128(words), _mm256_extracti128_si256::<1>(words));
        _mm_storel_epi64(p.cast(), _mm_packus_epi16(halves, halves));
    }
}

#[inline(always)]
unsafe fn sum_avx2(v: __m256) -> f32 {
    // SAFETY: the caller guarantees AVX2.
    unsafe {
        let four = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps::<1>(v));
        let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
        _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)))
    }
}

#[inline(always)]
unsafe fn largest_avx2(v: __m256) -> f32 {
    // SAFETY: the caller guarantees AVX2.
    unsafe {
        let four = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps::<1>(v));
        let two = _mm_max_ps(four, _mm_movehl_ps(four, four));
        _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)))
    }
}

// SAFETY: uses AVX2 and FMA instructions only, which the trait's contract guarantees.
unsafe impl Simd for Avx2 {
    type V = __m256;
    const LANES: usize = 8;
    const REGISTERS: usize = 16;
    const ROWS: usize = 4;

    ops! {
        sqrt(a: __m256) -> __m256 = _mm256_sqrt_ps(a);
        floor(a: __m256) -> __m256 = _mm256_floor_ps(a);
        select_eq(a: __m256, b: __m256, yes: __m256, no: __m256) -> __m256 = _mm256_blendv_ps(no, yes, _mm256_cmp_ps::<_CMP_EQ_OQ>(a, b));
        transpose8(rows: [*const f32; 8], to: *mut f32, stride: usize) -> () = transpose8_avx(rows, to, stride);
        load(p: *const f32) -> __m256 = _mm256_loadu_ps(p);
        store(p: *mut f32, v: __m256) -> () = _mm256_storeu_ps(p, v);
        load_n(p: *const f32, n: usize) -> __m256 = _mm256_maskload_ps(p, mask8(n));
        store_n(p: *mut f32, n: usize, v: __m256) -> () = _mm256_maskstore_ps(p, mask8(n), v);
        splat(x: f32) -> __m256 = _mm256_set1_ps(x);
        add(a: __m256, b: __m256) -> __m256 = _mm256_add_ps(a, b);
        sub(a: __m256, b: __m256) -> __m256 = _mm256_sub_ps(a, b);
        mul(a: __m256, b: __m256) -> __m256 = _mm256_mul_ps(a, b);
        div(a: __m256, b: __m256) -> __m256 = _mm256_div_ps(a, b);
        fma(a: __m256, b: __m256, c: __m256) -> __m256 = _mm256_fmadd_ps(a, b, c);
        fnma(a: __m256, b: __m256, c: __m256) -> __m256 = _mm256_fnmadd_ps(a, b, c);
        max(a: __m256, b: __m256) -> __m256 = _mm256_max_ps(a, b);
        min(a: __m256, b: __m256) -> __m256 = _mm256_min_ps(a, b);
        abs(a: __m256) -> __m256 = _mm256_andnot_ps(_mm256_set1_ps(-0.0), a);
        with_sign(a: __m256, b: __m256) -> __m256 = _mm256_or_ps(a, _mm256_and_ps(b, _mm256_set1_ps(-0.0)));
        select_lt(a: __m256, b: __m256, yes: __m256, no: __m256) -> __m256 =
            _mm256_blendv_ps(no, yes, _mm256_cmp_ps::<_CMP_LT_OQ>(a, b));
        round(a: __m256) -> __m256 = _mm256_round_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(a);
        round_any(a: __m256) -> __m256 = _mm256_round_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(a);
        store_bytes(p: *mut u8, v: __m256) -> () = store_bytes_avx2(p, v);
        scale2(v: __m256, n: __m256) -> __m256 = scale2_avx2(v, n);
        prefetch_to_write(p: *const f32) -> () = _mm_prefetch::<_MM_HINT_ET0>(p.cast());
        sum(v: __m256) -> f32 = sum_avx2(v);
        largest(v: __m256) -> f32 = largest_avx2(v);
    }
}
