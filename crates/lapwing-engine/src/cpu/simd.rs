//! The f32 vector operations behind one trait, and the single entry point of each level. Kernels are written once,
//! generic over `Simd`, and called through `dispatch`, which compiles them again for each level.
//!
//! Every generic function between `dispatch` and an operation is `#[inline(always)]`, and no closure contains vector
//! code: code that is not inlined into the entry point of its level is compiled without that level's instructions and
//! is slow (never wrong).

/// The f32 vector operations of one level.
///
/// # Safety
/// Every method may only run on a processor that has the level's instructions; `dispatch` ensures that. Pointers must
/// be valid for `LANES` (or `n`) elements; no alignment is required.
pub(crate) unsafe trait Simd: Copy {
    /// One vector register of `LANES` f32.
    type V: Copy;
    /// f32 per vector.
    const LANES: usize;
    /// Number of vector registers that a kernel may use.
    const REGISTERS: usize;
    /// Rows of accumulators that fit the registers beside two columns of vectors; divides `LANES`.
    const ROWS: usize;

    /// Reads `LANES` elements.
    unsafe fn load(p: *const f32) -> Self::V;
    /// Writes `LANES` elements.
    unsafe fn store(p: *mut f32, v: Self::V);
    /// Reads the first `n <= LANES` elements, zero in the other lanes; touches no memory past `n`.
    unsafe fn load_n(p: *const f32, n: usize) -> Self::V;
    /// Writes the first `n <= LANES` lanes; touches no memory past `n`.
    unsafe fn store_n(p: *mut f32, n: usize, v: Self::V);
    /// `x` in every lane.
    unsafe fn splat(x: f32) -> Self::V;
    /// a + b.
    unsafe fn add(a: Self::V, b: Self::V) -> Self::V;
    /// a - b.
    unsafe fn sub(a: Self::V, b: Self::V) -> Self::V;
    /// a * b.
    unsafe fn mul(a: Self::V, b: Self::V) -> Self::V;
    /// a / b.
    unsafe fn div(a: Self::V, b: Self::V) -> Self::V;
    /// a * b + c, rounded once where the level has FMA.
    unsafe fn fma(a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    /// c - a * b.
    unsafe fn fnma(a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    /// The larger; `b` if either is NaN (so `max(limit, x)` propagates a NaN in `x`).
    unsafe fn max(a: Self::V, b: Self::V) -> Self::V;
    /// The smaller; `b` if either is NaN.
    unsafe fn min(a: Self::V, b: Self::V) -> Self::V;
    /// |a|.
    unsafe fn abs(a: Self::V) -> Self::V;
    /// The magnitude of the non-negative `a` with the sign of `b`.
    unsafe fn with_sign(a: Self::V, b: Self::V) -> Self::V;
    /// `yes` where a < b, else `no` (also where either is NaN).
    unsafe fn select_lt(a: Self::V, b: Self::V, yes: Self::V, no: Self::V) -> Self::V;
    /// To the nearest integer, ties to even; |a| < 2^22.
    unsafe fn round(a: Self::V) -> Self::V;
    /// To the nearest integer, ties to even, for any a.
    unsafe fn round_any(a: Self::V) -> Self::V;
    /// Writes `LANES` integral values of 0..=255 as bytes.
    unsafe fn store_bytes(p: *mut u8, v: Self::V);
    /// v * 2^n for integral n <= 128 and v in [0.5, 2]; results below 1.7e-38 may be zero.
    unsafe fn scale2(v: Self::V, n: Self::V) -> Self::V;
    /// Hints that the cache line at `p` is written soon; `p` may be any address.
    unsafe fn prefetch_to_write(p: *const f32);
    /// The sum of all lanes.
    unsafe fn sum(v: Self::V) -> f32;
    /// The largest lane; no lane may be NaN.
    unsafe fn largest(v: Self::V) -> f32;
    /// The square root.
    unsafe fn sqrt(a: Self::V) -> Self::V;
    /// Rounds down to an integer.
    unsafe fn floor(a: Self::V) -> Self::V;
    /// `yes` where a == b, else `no` (also where either is NaN).
    unsafe fn select_eq(a: Self::V, b: Self::V, yes: Self::V, no: Self::V) -> Self::V;
    /// `to[c * stride + r] = rows[r][c]` for r and c in 0..8; all of these must be readable and writable.
    unsafe fn transpose8(rows: [*const f32; 8], to: *mut f32, stride: usize);

    /// The smallest lane; no lane may be NaN.
    #[inline(always)]
    unsafe fn least(v: Self::V) -> f32 {
        // SAFETY: arithmetic only.
        unsafe { -Self::largest(Self::sub(Self::splat(0.0), v)) }
    }

    /// Reads as many lanes as the slice has; the other lanes are zero.
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

/// A function written once for all levels.
pub(crate) trait Kernel {
    /// The return type.
    type Out;
    /// Runs it with the instructions of `S`. Mark every implementation `#[inline(always)]`.
    ///
    /// # Safety
    /// The processor has the instructions of `S`, and the kernel's own pointers are valid.
    unsafe fn run<S: Simd>(self) -> Self::Out;
}

/// Eight lanes in plain Rust.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Portable;

/// Applies an expression to each lane of one, two or three arrays.
macro_rules! lanes {
    (|$($x:ident),+| $e:expr) => {{
        let mut out = [0.0f32; 8];
        let mut i = 0;
        while i < 8 {
            out[i] = { $(let $x = $x[i];)+ $e };
            i += 1;
        }
        out
    }};
}

// SAFETY: uses no special instructions; the caller guarantees the pointers.
unsafe impl Simd for Portable {
    type V = [f32; 8];
    const LANES: usize = 8;
    const REGISTERS: usize = 16;
    const ROWS: usize = 2;

    #[inline(always)]
    unsafe fn load(p: *const f32) -> Self::V {
        // SAFETY: guaranteed by the caller.
        unsafe { p.cast::<[f32; 8]>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn store(p: *mut f32, v: Self::V) {
        // SAFETY: guaranteed by the caller.
        unsafe { p.cast::<[f32; 8]>().write_unaligned(v) }
    }
    #[inline(always)]
    unsafe fn load_n(p: *const f32, n: usize) -> Self::V {
        let mut out = [0.0; 8];
        // SAFETY: the caller guarantees n elements, and at most 8 are written.
        unsafe { std::ptr::copy_nonoverlapping(p, out.as_mut_ptr(), n.min(8)) };
        out
    }
    #[inline(always)]
    unsafe fn store_n(p: *mut f32, n: usize, v: Self::V) {
        // SAFETY: the caller guarantees n elements, and at most 8 are read.
        unsafe { std::ptr::copy_nonoverlapping(v.as_ptr(), p, n.min(8)) };
    }
    #[inline(always)]
    unsafe fn splat(x: f32) -> Self::V {
        [x; 8]
    }
    #[inline(always)]
    unsafe fn add(a: Self::V, b: Self::V) -> Self::V {
        lanes!(|a, b| a + b)
    }
    #[inline(always)]
    unsafe fn sub(a: Self::V, b: Self::V) -> Self::V {
        lanes!(|a, b| a - b)
    }
    #[inline(always)]
    unsafe fn mul(a: Self::V, b: Self::V) -> Self::V {
        lanes!(|a, b| a * b)
    }
    #[inline(always)]
    unsafe fn div(a: Self::V, b: Self::V) -> Self::V {
        lanes!(|a, b| a / b)
    }
    #[inline(always)]
    unsafe fn fma(a: Self::V, b: Self::V, c: Self::V) -> Self::V {
        lanes!(|a, b, c| a * b + c)
    }
    #[inline(always)]
    unsafe fn fnma(a: Self::V, b: Self::V, c: Self::V) -> Self::V {
        lanes!(|a, b, c| c - a * b)
    }
    #[inline(always)]
    unsafe fn max(a: Self::V, b: Self::V) -> Self::V {
        lanes!(|a, b| if a > b { a } else { b })
    }
    #[inline(always)]
    unsafe fn min(a: Self::V, b: Self::V) -> Self::V {
        lanes!(|a, b| if a < b { a } else { b })
    }
    #[inline(always)]
    unsafe fn abs(a: Self::V) -> Self::V {
        lanes!(|a| a.abs())
    }
    #[inline(always)]
    unsafe fn with_sign(a: Self::V, b: Self::V) -> Self::V {
        lanes!(|a, b| a.copysign(b))
    }
    #[inline(always)]
    unsafe fn select_lt(a: Self::V, b: Self::V, yes: Self::V, no: Self::V) -> Self::V {
        lanes!(|a, b, yes, no| if a < b { yes } else { no })
    }
    #[inline(always)]
    unsafe fn round(a: Self::V) -> Self::V {
        // Adding and subtracting 1.5 * 2^23 rounds to nearest even without a call into libm.
        lanes!(|a| (a + 12_582_912.0) - 12_582_912.0)
    }
    #[inline(always)]
    unsafe fn round_any(a: Self::V) -> Self::V {
        lanes!(|a| a.round_ties_even())
    }
    #[inline(always)]
    unsafe fn store_bytes(p: *mut u8, v: Self::V) {
        let mut i = 0;
        while i < 8 {
            // SAFETY: the caller guarantees eight bytes.
            unsafe { *p.add(i) = v[i] as u8 };
            i += 1;
        }
    }
    #[inline(always)]
    unsafe fn scale2(v: Self::V, n: Self::V) -> Self::V {
        // 2^(n-1) always has an exponent in range (zero for n = -126); the doubling restores the last power.
        lanes!(|v, n| v * f32::from_bits((((n.max(-126.0) as i32) + 126) << 23) as u32) * 2.0)
    }
    #[inline(always)]
    unsafe fn prefetch_to_write(_: *const f32) {}
    #[inline(always)]
    unsafe fn sum(v: Self::V) -> f32 {
        ((v[0] + v[4]) + (v[1] + v[5])) + ((v[2] + v[6]) + (v[3] + v[7]))
    }
    #[inline(always)]
    unsafe fn largest(v: Self::V) -> f32 {
        v[0].max(v[4]).max(v[1].max(v[5])).max(v[2].max(v[6]).max(v[3].max(v[7])))
    }
    #[inline(always)]
    unsafe fn sqrt(a: Self::V) -> Self::V {
        lanes!(|a| a.sqrt())
    }
    #[inline(always)]
    unsafe fn floor(a: Self::V) -> Self::V {
        lanes!(|a| a.floor())
    }
    #[inline(always)]
    unsafe fn select_eq(a: Self::V, b: Self::V, yes: Self::V, no: Self::V) -> Self::V {
        lanes!(|a, b, yes, no| if a == b { yes } else { no })
    }
    #[inline(always)]
    unsafe fn transpose8(rows: [*const f32; 8], to: *mut f32, stride: usize) {
        for (r, row) in rows.into_iter().enumerate() {
            for c in 0..8 {
                // SAFETY: guaranteed by the caller.
                unsafe { *to.add(c * stride + r) = *row.add(c) };
            }
        }
    }
}
