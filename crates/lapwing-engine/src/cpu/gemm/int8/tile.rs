//! The int8 register tile: as many rows and vectors as the f32 tile of its level, 32-bit sums, dequantised before the
//! store.

use super::super::super::simd::Simd;
use super::super::store::{TileStore, finish};
use super::dot::{Dot, KernelI8, LevelI8, dispatch_i8};
use lapwing_plan::exec::RowQuant;

/// One tile's work.
#[derive(Clone, Copy)]
pub(crate) struct TileI8 {
    /// The tile's words: for each word of a row, the words of all rows.
    pub(crate) a: *const u32,
    /// One entry for each row.
    pub(crate) params: *const RowQuant,
    /// The panel, its scales and its negated column sums; a panel is always two vectors wide.
    pub(crate) b: *const i8,
    pub(crate) scales: *const f32,
    pub(crate) sums: *const i32,
    /// Words of a row.
    pub(crate) words: usize,
    /// Where the result is stored, with which epilogue.
    pub(crate) store: TileStore,
}

/// A tile of `MR` rows, with `KU` independent sums per row where there are too few rows to hide the latency.
struct FixedTile<'a, const MR: usize, const KU: usize>(&'a TileI8);

impl<const MR: usize, const KU: usize> KernelI8 for FixedTile<'_, MR, KU> {
    #[inline(always)]
    unsafe fn run<D: Dot>(self) {
        // Never used at a level with fewer registers.
        if (MR + 1) * 2 + 1 > D::Floats::REGISTERS {
            return;
        }
        let t = self.0;
        let lanes = D::Floats::LANES;
        // SAFETY: the driver checked that the pointers hold MR rows of `words`, and as many rows of the panel.
        unsafe {
            let mut sums = [[[D::splat(0); 2]; MR]; KU];
            let mut word = 0;
            while word + KU <= t.words {
                let mut u = 0;
                while u < KU {
                    step::<D, MR>(&mut sums[u], t.a.add((word + u) * MR), t.b.add((word + u) * 2 * lanes * D::GROUP));
                    u += 1;
                }
                word += KU;
            }
            while word < t.words {
                step::<D, MR>(&mut sums[0], t.a.add(word * MR), t.b.add(word * 2 * lanes * D::GROUP));
                word += 1;
            }
            let mut floats = [[D::Floats::splat(0.0); 2]; MR];
            let mut v = 0;
            while v < 2 {
                let scales = D::Floats::load(t.scales.add(v * lanes));
                let share = D::load(t.sums.add(v * lanes));
                let mut r = 0;
                while r < MR {
                    let mut total = sums[0][r][v];
                    let mut u = 1;
                    while u < KU {
                        total = D::add(total, sums[u][r][v]);
                        u += 1;
                    }
                    let quant = *t.params.add(r);
                    // Sum of (byte - zero) * weight, still exact; the intermediate sums may wrap, the result cannot.
                    total = D::add(total, D::mul(share, D::splat(quant.zero.cast_unsigned())));
                    let scale = D::Floats::mul(scales, D::Floats::splat(quant.scale));
                    floats[r][v] = D::Floats::mul(D::floats(total), scale);
                    r += 1;
                }
                v += 1;
            }
            finish::<D::Floats, MR, 2>(&t.store, floats);
        }
    }
}

/// sums += one word of each row x the matching weights of the panel.
#[inline(always)]
unsafe fn step<D: Dot, const MR: usize>(sums: &mut [[D::Ints; 2]; MR], a: *const u32, b: *const i8) {
    // SAFETY: the caller guarantees MR words and two vectors of weights.
    unsafe {
        let w0 = D::weights(b);
        let w1 = D::weights(b.add(D::Floats::LANES * D::GROUP));
        let mut r = 0;
        while r < MR {
            let x = D::splat(*a.add(r));
            sums[r][0] = D::dot(sums[r][0], x, w0);
            sums[r][1] = D::dot(sums[r][1], x, w1);
            r += 1;
        }
    }
}

/// Runs the tile of `rows` rows.
///
/// # Safety
/// The pointers of `tile` are valid as its fields document, for at most the tile rows of `level`, which the machine
/// has.
pub(crate) unsafe fn run(level: LevelI8, rows: usize, tile: &TileI8) {
    macro_rules! pick {
        ($($mr:literal: $ku:literal;)*) => {
            match rows {
                // SAFETY: guaranteed by the caller.
                $($mr => unsafe { dispatch_i8(level, FixedTile::<$mr, $ku>(tile)) },)*
                _ => {}
            }
        };
    }
    pick! { 1: 4; 2: 2; 3: 2; 4: 1; 5: 1; 6: 1; 7: 1; 8: 1; 9: 1; 10: 1; 11: 1; 12: 1; 13: 1; 14: 1; }
}
