//! The loops around the tiles: blocks of input rows that fit the second-level cache, blocks of weight rows that fit the
//! first, panels, tiles. Lengths are checked here, once a call.

use std::ops::Range;

use super::super::dispatch::dispatch;
use super::epilogue::Epilogue;
use super::packed::{PackedWeights, Panel, Shape};
use super::shape::{GemmError, MatrixRows, check_len, check_rows};
use super::store::StoredEpilogue;
use super::target::{GemmOutput, OutRows, SharedOut};
use super::tile::{self, BLOCK_K, Dots, IN_PLACE_ROWS, PACKED_STRIDE, Tile};

/// Input rows packed at a time: 112 rows of `BLOCK_K` take a quarter of a second-level cache of 1 MiB.
const BLOCK_ROWS: usize = 112;
/// Bytes of weights that a block of input rows is multiplied with before the next group: less than half a second-level
/// cache of 1 MiB.
const GROUP_BYTES: usize = 384 << 10;

/// The scratch length, in f32, of a call with `rows` input rows; at most about 230 KiB.
#[must_use]
pub fn scratch_len(rows: usize) -> usize {
    if rows <= IN_PLACE_ROWS { 0 } else { rows.min(BLOCK_ROWS) * PACKED_STRIDE }
}

/// out = act(x W + bias), with the residual added as the epilogue specifies, for the columns of `panels`
/// (`0..weights.panels()` for all).
///
/// # Errors
/// Names a buffer that is too short, or panels that do not exist; nothing is written then.
pub fn gemm(
    x: MatrixRows<'_>,
    weights: &PackedWeights,
    epilogue: &Epilogue<'_>,
    out: OutRows<'_>,
    panels: Range<usize>,
    scratch: &mut [f32],
) -> Result<(), GemmError> {
    let out = SharedOut::new(out);
    // SAFETY: the output is borrowed mutably, so no other thread writes it.
    unsafe { gemm_shared(x, weights, epilogue, out, panels, scratch) }
}

/// Like `gemm`, for threads that share an output.
///
/// # Safety
/// No other call that runs at the same time covers the same panel of the same output, and no other code reads or writes
/// it meanwhile.
///
/// # Errors
/// Like `gemm`.
pub unsafe fn gemm_shared(
    x: MatrixRows<'_>,
    weights: &PackedWeights,
    epilogue: &Epilogue<'_>,
    out: SharedOut<'_>,
    panels: Range<usize>,
    scratch: &mut [f32],
) -> Result<(), GemmError> {
    let (k, n) = (weights.k(), weights.n());
    check_rows("input", x.values.len(), x.count, x.stride, k)?;
    check_len("scratch", scratch.len(), scratch_len(x.count))?;
    GemmOutput { epilogue, out }.check(x.count, n)?;
    if panels.end > weights.panels() {
        return Err(GemmError::Panels { end: panels.end, panels: weights.panels() });
    }
    let call = Call { rows: x.count, weights, target: GemmOutput { epilogue, out } };
    // SAFETY: every length was checked above; the caller guarantees exclusive access to the output's panels.
    unsafe {
        if x.count <= IN_PLACE_ROWS {
            call.tiles(panels.clone(), Block::of(x), 0..k);
        } else {
            call.blocked(panels.clone(), &x, scratch);
        }
        call.dots(panels, Block::of(x));
    }
    Ok(())
}

/// Rows of an input that need not lie in memory as rows.
pub(crate) trait PackRows {
    /// Writes the elements `depth` of `rows`, each row `PACKED_STRIDE` after the one before.
    fn pack(&self, rows: Range<usize>, depth: Range<usize>, scratch: &mut [f32]);
}

impl PackRows for MatrixRows<'_> {
    fn pack(&self, rows: Range<usize>, depth: Range<usize>, scratch: &mut [f32]) {
        for (row, to) in rows.zip(scratch.chunks_mut(PACKED_STRIDE)) {
            let start = row * self.stride;
            if let (Some(from), Some(to)) = (self.values.get(start + depth.start..start + depth.end), to.get_mut(..depth.len())) {
                to.copy_from_slice(from);
            }
        }
    }
}

/// The scratch length, in f32, of a call of [`gemm_packed`].
pub(crate) fn packed_scratch_len(rows: usize) -> usize {
    rows.min(BLOCK_ROWS) * PACKED_STRIDE
}

/// Like `gemm` for all panels of weights without dots, with `rows` rows that `x` packs; `scratch` holds
/// [`packed_scratch_len`] elements.
///
/// # Errors
/// Like `gemm`.
pub(crate) fn gemm_packed(
    x: &impl PackRows,
    rows: usize,
    weights: &PackedWeights,
    epilogue: &Epilogue<'_>,
    out: OutRows<'_>,
    scratch: &mut [f32],
) -> Result<(), GemmError> {
    check_len("scratch", scratch.len(), packed_scratch_len(rows))?;
    let target = GemmOutput { epilogue, out: SharedOut::new(out) };
    target.check(rows, weights.n())?;
    debug_assert!((0..weights.panels()).all(|panel| weights.panel(panel).shape != Shape::Dot), "dots read whole rows");
    // SAFETY: every length was checked above, and the output is borrowed mutably.
    unsafe { Call { rows, weights, target }.blocked(0..weights.panels(), x, scratch) };
    Ok(())
}

/// One validated call.
#[derive(Clone, Copy)]
struct Call<'a> {
    /// Rows of the input.
    rows: usize,
    weights: &'a PackedWeights,
    target: GemmOutput<'a>,
}

/// Input rows at `a`; the first one is row `row` of the call.
#[derive(Clone, Copy)]
struct Block {
    a: *const f32,
    stride: usize,
    row: usize,
    rows: usize,
}

impl Block {
    /// All rows, where they lie.
    fn of(x: MatrixRows<'_>) -> Self {
        Self { a: x.values.as_ptr(), stride: x.stride, row: 0, rows: x.count }
    }
}

impl Call<'_> {
    /// Blocks of the input are packed so that the rows of a tile map to different cache sets. Few rows that lie in memory are not packed
    /// (`IN_PLACE_ROWS`): the weights are streamed once, for all rows together.
    unsafe fn blocked(self, panels: Range<usize>, x: &impl PackRows, scratch: &mut [f32]) {
        let k = self.weights.k();
        let depth = k.div_ceil(k.div_ceil(BLOCK_K).max(1)).next_multiple_of(8).min(BLOCK_K);
        let mut row = 0;
        while row < self.rows {
            let rows = even_part(self.rows - row, BLOCK_ROWS);
            let mut from = 0;
            loop {
                let to = (from + depth).min(k);
                x.pack(row..row + rows, from..to, scratch);
                let block = Block { a: scratch.as_ptr(), stride: PACKED_STRIDE, row, rows };
                // SAFETY: the block was just packed, and the lengths were checked.
                unsafe { self.tiles(panels.clone(), block, from..to) };
                from = to;
                if from >= k {
                    break;
                }
            }
            row += rows;
        }
    }

    /// Computes all tiles of a block with the panels, for the weight rows `depth`. Panels are grouped so that a group
    /// fits the second-level cache: each tile of input is multiplied with all panels of a group while it is in the
    /// first-level cache.
    unsafe fn tiles(self, panels: Range<usize>, block: Block, depth: Range<usize>) {
        let group = (GROUP_BYTES / (depth.len() * self.weights.panel_width() * size_of::<f32>()).max(1)).max(1);
        let most = tile::most_rows(self.weights.level());
        for first in panels.clone().step_by(group) {
            let mut done = 0;
            while done < block.rows {
                let rows = even_part(block.rows - done, most);
                for index in first..panels.end.min(first + group) {
                    // SAFETY: the rows are in the block and the panel is in the weights.
                    unsafe { self.tile(self.weights.panel(index), block, done, rows, depth.clone()) };
                }
                done += rows;
            }
        }
    }

    /// Computes one tile: `rows` rows of the block, starting with row `done`.
    #[inline]
    unsafe fn tile(self, panel: Panel, block: Block, done: usize, rows: usize, depth: Range<usize>) {
        let (vectors, width) = match panel.shape {
            Shape::Two => (2, self.weights.panel_width()),
            Shape::One => (1, self.weights.panel_width() / 2),
            Shape::Dot => return,
        };
        let level = self.weights.level();
        let last = depth.end == self.weights.k();
        let row = block.row + done;
        let tile = Tile {
            a: block.a.wrapping_add(done * block.stride),
            a_stride: block.stride,
            b: self.weights.data().as_ptr().wrapping_add(panel.start + depth.start * width),
            k: depth.len(),
            store: self.target.store(row, panel.column, panel.columns, depth.start > 0, last),
        };
        // SAFETY: offsets stay inside the checked lengths; `wrapping_add` is for empty matrices, whose pointers are
        // never read.
        unsafe {
            tile::run(level, rows, vectors, &tile);
            if last {
                self.target.activate(level, row, rows, panel.column, panel.columns);
            }
        }
    }

    /// Computes the single columns behind the last panel, if they are among the requested panels, and applies their
    /// epilogue.
    unsafe fn dots(self, panels: Range<usize>, block: Block) {
        let Some(panel) = panels.last().map(|index| self.weights.panel(index)).filter(|panel| panel.shape == Shape::Dot) else {
            return;
        };
        let level = self.weights.level();
        // SAFETY: offsets stay inside the checked lengths.
        unsafe {
            let store = self.target.store(0, panel.column, panel.columns, false, true);
            let (a, a_stride, b) = (block.a, block.stride, self.weights.data().as_ptr().wrapping_add(panel.start));
            let (k, rows, columns, out, out_stride) = (self.weights.k(), block.rows, panel.columns, store.out, store.out_stride);
            dispatch(level, Dots { a, a_stride, b, k, rows, columns, out, out_stride });
            dispatch(level, StoredEpilogue { store, rows });
            self.target.activate(level, 0, rows, panel.column, columns);
        }
    }
}

/// The size of the parts when `total` is divided evenly into the fewest parts of at most `most`: 16 rows are two tiles
/// of 8, not 14 and 2.
pub(crate) fn even_part(total: usize, most: usize) -> usize {
    total.div_ceil(total.div_ceil(most).max(1))
}
