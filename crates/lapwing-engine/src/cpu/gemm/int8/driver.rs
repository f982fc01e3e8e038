//! The loops around the int8 tiles. Panels are grouped so that a group fits the second-level cache; each tile of rows
//! is multiplied with all panels of a group.

use std::ops::Range;

use super::super::driver::even_part;
use super::super::epilogue::Epilogue;
use super::super::shape::{GemmError, check_len};
use super::super::target::{GemmOutput, OutRows, SharedOut};
use super::super::tile::most_rows;
use super::packed::PackedWeightsI8;
use super::quantize::QuantizedRows;
use super::tile::{self, TileI8};

/// Bytes of weights in a group of panels. Larger than for f32, because a tile of quantised rows takes little of the
/// second-level cache.
const GROUP_BYTES: usize = 640 << 10;

/// out = act(x W + bias), with the residual added as the epilogue specifies; x and W are the dequantised values.
///
/// # Errors
/// Names a buffer that is too short, panels that do not exist, or rows quantised for another level or length; nothing
/// is written then.
pub fn gemm_i8(
    x: &QuantizedRows<'_>,
    weights: &PackedWeightsI8,
    epilogue: &Epilogue<'_>,
    out: OutRows<'_>,
    panels: Range<usize>,
) -> Result<(), GemmError> {
    // SAFETY: the output is borrowed mutably, so no other thread writes it.
    unsafe { gemm_i8_shared(x, weights, epilogue, SharedOut::new(out), panels) }
}

/// Like `gemm_i8`, for threads that share an output.
///
/// # Safety
/// No other call that runs at the same time covers the same panel of the same output, and no other code reads or writes
/// it meanwhile.
///
/// # Errors
/// Like `gemm_i8`.
pub unsafe fn gemm_i8_shared(
    x: &QuantizedRows<'_>,
    weights: &PackedWeightsI8,
    epilogue: &Epilogue<'_>,
    out: SharedOut<'_>,
    panels: Range<usize>,
) -> Result<(), GemmError> {
    let (level, rows, words) = (weights.level(), x.params.len(), weights.words());
    if x.level != level || x.k != weights.k() {
        return Err(GemmError::Quantized { level: x.level.name(), k: x.k });
    }
    check_len("words", x.words.len(), rows * words)?;
    let target = GemmOutput { epilogue, out };
    target.check(rows, weights.n())?;
    if panels.end > weights.panels() {
        return Err(GemmError::Panels { end: panels.end, panels: weights.panels() });
    }
    let most = most_rows(level.floats());
    let group = (GROUP_BYTES / (words * level.group() * weights.panel_width()).max(1)).max(1);
    for first in panels.clone().step_by(group) {
        let mut row = 0;
        while row < rows {
            // The tile heights must equal those of `quantize_rows`.
            let tall = even_part(rows - row, most);
            for index in first..panels.end.min(first + group) {
                let (b, scales, sums) = weights.panel(index);
                let column = index * weights.panel_width();
                let columns = weights.panel_width().min(weights.n() - column);
                let tile = TileI8 {
                    a: x.words.as_ptr().wrapping_add(row * words),
                    params: x.params.as_ptr().wrapping_add(row),
                    b,
                    scales,
                    sums,
                    words,
                    store: target.store(row, column, columns, false, true),
                };
                // SAFETY: every length was checked above, the tile boundaries are those of `quantize_rows`, and the
                // caller guarantees exclusive access to the output's panels.
                unsafe {
                    tile::run(level, tall, &tile);
                    target.activate(level.floats(), row, tall, column, columns);
                }
            }
            row += tall;
        }
    }
    Ok(())
}
