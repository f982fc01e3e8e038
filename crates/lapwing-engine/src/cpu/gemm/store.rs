//! The end of every tile, f32 or int8: the part of the epilogue that runs in registers, and the masked stores.

use super::super::simd::{Kernel, Simd};

/// Where a tile is stored, and what is added before. Parts of the epilogue that do not apply are null or false.
#[derive(Clone, Copy)]
pub(crate) struct TileStore {
    pub(crate) out: *mut f32,
    pub(crate) out_stride: usize,
    /// Columns to store, at most the panel's width.
    pub(crate) columns: usize,
    /// Whether to add to the values in `out`: true for all blocks of k but the first.
    pub(crate) accumulate: bool,
    pub(crate) bias: *const f32,
    pub(crate) residual: *const f32,
    pub(crate) residual_stride: usize,
    pub(crate) residual_first: bool,
    pub(crate) relu: bool,
}

/// Applies the epilogue in registers and stores the result.
#[inline(always)]
pub(crate) unsafe fn finish<S: Simd, const MR: usize, const NV: usize>(t: &TileStore, mut sums: [[S::V; NV]; MR]) {
    // SAFETY: the driver checked that the pointers hold MR rows of `columns`; vectors behind the last column are masked.
    unsafe {
        if t.accumulate {
            each::<S, MR, NV>(&mut sums, t.out, t.out_stride, t.columns);
        }
        if !t.bias.is_null() {
            each::<S, MR, NV>(&mut sums, t.bias, 0, t.columns);
        }
        if !t.residual.is_null() && t.residual_first {
            each::<S, MR, NV>(&mut sums, t.residual, t.residual_stride, t.columns);
        }
        if t.relu {
            let mut r = 0;
            while r < MR {
                let mut v = 0;
                while v < NV {
                    sums[r][v] = S::max(S::splat(0.0), sums[r][v]);
                    v += 1;
                }
                r += 1;
            }
        }
        if !t.residual.is_null() && !t.residual_first {
            each::<S, MR, NV>(&mut sums, t.residual, t.residual_stride, t.columns);
        }
        let full = t.columns == NV * S::LANES;
        let mut r = 0;
        while r < MR {
            let mut v = 0;
            while v < NV {
                let p = t.out.wrapping_add(r * t.out_stride + v * S::LANES);
                if full {
                    S::store(p, sums[r][v]);
                } else {
                    S::store_n(p, t.columns.saturating_sub(v * S::LANES).min(S::LANES), sums[r][v]);
                }
                v += 1;
            }
            r += 1;
        }
    }
}

/// sums += a block of memory whose rows are `stride` apart.
#[inline(always)]
unsafe fn each<S: Simd, const MR: usize, const NV: usize>(
    sums: &mut [[S::V; NV]; MR],
    from: *const f32,
    stride: usize,
    columns: usize,
) {
    let full = columns == NV * S::LANES;
    let mut r = 0;
    while r < MR {
        let mut v = 0;
        while v < NV {
            // SAFETY: the block holds MR rows of `columns`, and lanes behind them are masked.
            unsafe {
                let p = from.wrapping_add(r * stride + v * S::LANES);
                let x = if full { S::load(p) } else { S::load_n(p, columns.saturating_sub(v * S::LANES).min(S::LANES)) };
                sums[r][v] = S::add(sums[r][v], x);
            }
            v += 1;
        }
        r += 1;
    }
}

/// Applies the epilogue to `rows` stored rows of at most one vector.
#[derive(Clone, Copy)]
pub(crate) struct StoredEpilogue {
    pub(crate) store: TileStore,
    pub(crate) rows: usize,
}

impl Kernel for StoredEpilogue {
    type Out = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let mut store = self.store;
        let mut row = 0;
        while row < self.rows {
            // SAFETY: the driver checked that the pointers hold `rows` rows of `columns`; null pointers stay null.
            unsafe {
                finish::<S, 1, 1>(&store, [[S::load_n(store.out, store.columns)]]);
            }
            store.out = store.out.wrapping_add(store.out_stride);
            if !store.residual.is_null() {
                store.residual = store.residual.wrapping_add(store.residual_stride);
            }
            row += 1;
        }
    }
}
