//! The register tiles: up to 14 rows by two vectors with AVX-512, 6 by two with AVX2, 2 by two without. Every smaller
//! row count has a tile of its own, so that no lane multiplies padding rows. Also the dot products for a few single
//! columns.

use super::super::dispatch::dispatch;
use super::super::level::Level;
use super::super::simd::{Kernel, Simd};
use super::store::{TileStore, finish};

/// The row stride of packed input, in f32. An odd number of cache lines, because rows at a power of two apart would
/// compete for the same sets of the first-level cache. A constant, so that every row is one register plus an offset.
pub(crate) const PACKED_STRIDE: usize = BLOCK_K + 16;
/// The most rows of weights that are multiplied in one pass: 14 input rows of this length fit the first-level cache.
pub(crate) const BLOCK_K: usize = 512;
/// Up to this many input rows are read in place, without packing.
pub(crate) const IN_PLACE_ROWS: usize = 4;

/// The most rows of a tile at `level`.
pub(crate) fn most_rows(level: Level) -> usize {
    match level {
        Level::Avx512 => 14,
        Level::Avx2 => 6,
        Level::Portable => 2,
    }
}

/// One tile's work.
#[derive(Clone, Copy)]
pub(crate) struct Tile {
    /// The first input row; rows are `a_stride` apart, which is `PACKED_STRIDE` for more than `IN_PLACE_ROWS` rows.
    pub(crate) a: *const f32,
    pub(crate) a_stride: usize,
    /// The panel, starting with the first row of this block.
    pub(crate) b: *const f32,
    /// Rows of the panel to multiply.
    pub(crate) k: usize,
    /// Where the result is stored, with which epilogue.
    pub(crate) store: TileStore,
}

/// A tile of `MR` rows by `NV` vectors, with `KU` independent sums each where there are too few to hide the latency of
/// the multiply-add.
struct FixedTile<'a, const MR: usize, const NV: usize, const KU: usize>(&'a Tile);

impl<const MR: usize, const NV: usize, const KU: usize> Kernel for FixedTile<'_, MR, NV, KU> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        // Never used at a level with fewer registers; without this check it would be compiled anyway.
        if (MR + 1) * NV + 1 > S::REGISTERS {
            return;
        }
        let t = self.0;
        let width = NV * S::LANES;
        let stride = if MR > IN_PLACE_ROWS { PACKED_STRIDE } else { t.a_stride };
        // SAFETY: the driver checked that the pointers hold MR rows of k (input), k rows of the panel, and MR rows of `columns`.
        unsafe {
            let mut sums = [[[S::splat(0.0); NV]; MR]; KU];
            if MR > IN_PLACE_ROWS {
                // Prefetches the cache lines that the tile stores, while it multiplies.
                let mut r = 0;
                while r < MR {
                    S::prefetch_to_write(t.store.out.wrapping_add(r * t.store.out_stride));
                    S::prefetch_to_write(t.store.out.wrapping_add(r * t.store.out_stride + S::LANES * (NV - 1)));
                    r += 1;
                }
            }
            let mut row = 0;
            while row + KU <= t.k {
                let mut u = 0;
                while u < KU {
                    let b = t.b.add((row + u) * width);
                    step::<S, MR, NV>(&mut sums[u], t.a.add(row + u), stride, b);
                    u += 1;
                }
                row += KU;
            }
            while row < t.k {
                step::<S, MR, NV>(&mut sums[0], t.a.add(row), stride, t.b.add(row * width));
                row += 1;
            }
            let mut total = sums[0];
            let mut u = 1;
            while u < KU {
                let mut r = 0;
                while r < MR {
                    let mut v = 0;
                    while v < NV {
                        total[r][v] = S::add(total[r][v], sums[u][r][v]);
                        v += 1;
                    }
                    r += 1;
                }
                u += 1;
            }
            finish::<S, MR, NV>(&t.store, total);
        }
    }
}

/// sums += column of the input x row of the panel.
#[inline(always)]
unsafe fn step<S: Simd, const MR: usize, const NV: usize>(
    sums: &mut [[S::V; NV]; MR],
    a: *const f32,
    stride: usize,
    b: *const f32,
) {
    // SAFETY: the caller guarantees MR rows and NV vectors.
    unsafe {
        let mut line = [S::splat(0.0); NV];
        let mut v = 0;
        while v < NV {
            line[v] = S::load(b.add(v * S::LANES));
            v += 1;
        }
        let mut r = 0;
        while r < MR {
            let x = S::splat(*a.add(r * stride));
            let mut v = 0;
            while v < NV {
                sums[r][v] = S::fma(x, line[v], sums[r][v]);
                v += 1;
            }
            r += 1;
        }
    }
}

/// Runs the tile of `rows` x `vectors` (1 or 2).
///
/// # Safety
/// The pointers of `tile` are valid as its fields document, for `rows <= most_rows(level)`.
pub(crate) unsafe fn run(level: Level, rows: usize, vectors: usize, tile: &Tile) {
    macro_rules! pick {
        ($($mr:literal: $ku2:literal, $ku1:literal;)*) => {
            match (rows, vectors) {
                // SAFETY: guaranteed by the caller.
                $(($mr, 2) => unsafe { dispatch(level, FixedTile::<$mr, 2, $ku2>(tile)) },)*
                // SAFETY: guaranteed by the caller.
                $(($mr, _) => unsafe { dispatch(level, FixedTile::<$mr, 1, $ku1>(tile)) },)*
                _ => {}
            }
        };
    }
    pick! {
        1: 4, 8; 2: 2, 4; 3: 2, 2; 4: 1, 2; 5: 1, 1; 6: 1, 1; 7: 1, 1;
        8: 1, 1; 9: 1, 1; 10: 1, 1; 11: 1, 1; 12: 1, 1; 13: 1, 1; 14: 1, 1;
    }
}

/// Dot products of `rows` input rows with `columns` single columns of length `k`, stored without an epilogue.
#[derive(Clone, Copy)]
pub(crate) struct Dots {
    pub(crate) a: *const f32,
    pub(crate) a_stride: usize,
    /// The columns, one after the other.
    pub(crate) b: *const f32,
    pub(crate) k: usize,
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    pub(crate) out: *mut f32,
    pub(crate) out_stride: usize,
}

impl Kernel for Dots {
    type Out = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let mut row = 0;
        while row < self.rows {
            let rows = (self.rows - row).min(4);
            let mut column = 0;
            while column < self.columns {
                // SAFETY: the driver checked that row and column are in range.
                unsafe {
                    let a = self.a.add(row * self.a_stride);
                    let b = self.b.add(column * self.k);
                    let out = self.out.add(row * self.out_stride + column);
                    if rows == 4 {
                        self.dot::<S, 4, 2>(a, b, out);
                    } else {
                        let mut r = 0;
                        while r < rows {
                            self.dot::<S, 1, 4>(a.add(r * self.a_stride), b, out.add(r * self.out_stride));
                            r += 1;
                        }
                    }
                }
                column += 1;
            }
            row += rows;
        }
    }
}

impl Dots {
    /// MR rows with one column, `KU` sums each.
    #[inline(always)]
    unsafe fn dot<S: Simd, const MR: usize, const KU: usize>(self, a: *const f32, b: *const f32, out: *mut f32) {
        // SAFETY: MR rows and the column hold k elements; the last vector is masked.
        unsafe {
            let mut sums = [[S::splat(0.0); KU]; MR];
            let mut at = 0;
            while at + KU * S::LANES <= self.k {
                let mut u = 0;
                while u < KU {
                    let w = S::load(b.add(at + u * S::LANES));
                    let mut r = 0;
                    while r < MR {
                        sums[r][u] = S::fma(S::load(a.add(r * self.a_stride + at + u * S::LANES)), w, sums[r][u]);
                        r += 1;
                    }
                    u += 1;
                }
                at += KU * S::LANES;
            }
            while at < self.k {
                let lanes = (self.k - at).min(S::LANES);
                let w = S::load_n(b.add(at), lanes);
                let mut r = 0;
                while r < MR {
                    sums[r][0] = S::fma(S::load_n(a.add(r * self.a_stride + at), lanes), w, sums[r][0]);
                    r += 1;
                }
                at += S::LANES;
            }
            let mut r = 0;
            while r < MR {
                let mut total = sums[r][0];
                let mut u = 1;
                while u < KU {
                    total = S::add(total, sums[r][u]);
                    u += 1;
                }
                *out.add(r * self.out_stride) = S::sum(total);
                r += 1;
            }
        }
    }
}
