//! Int8 weights packed into panels in the order in which the tiles read them: for each word of an input row, the
//! matching weights of every column of the panel. A quarter of the bytes of the f32 weights.

use super::dot::LevelI8;

/// Why weights cannot be packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum I8Error {
    /// The weights have too many rows: above 65,536 the 32-bit sum could overflow.
    #[error("{k} rows of int8 weights, at most {MOST_K} fit a 32-bit sum")]
    Depth {
        /// Rows of the weights.
        k: usize,
    },
    /// A weight or a scale is infinite or NaN.
    #[error("column {column} of the weights holds a value that is not finite")]
    NotFinite {
        /// Its column.
        column: usize,
    },
    /// The number of weights is not k * n, or the number of scales is not n.
    #[error("{given} elements of weights or scales, but {needed} are needed")]
    Length {
        /// Number of elements required.
        needed: usize,
        /// Number of elements given.
        given: usize,
    },
}

/// 255 * 128 * 65,536 is just below 2^31.
const MOST_K: usize = 65_536;

/// One cache line of 64 bytes; a panel starts at `word * panel width * GROUP` bytes.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(64))]
struct Line([i8; 64]);

/// A `[k, n]` weight matrix of signed bytes with one scale per column.
#[derive(Debug)]
pub struct PackedWeightsI8 {
    level: LevelI8,
    k: usize,
    n: usize,
    data: Vec<Line>,
    /// Per column, padded to whole panels: the scale, and the negated sum of the column's bytes (for the zero point's
    /// contribution).
    scales: Vec<f32>,
    sums: Vec<i32>,
}

impl PackedWeightsI8 {
    /// Quantises row-major `[k, n]` weights: each column symmetrically to -127..=127 by its largest magnitude.
    ///
    /// # Errors
    /// Too many rows, a wrong length, or a weight that is not finite.
    pub fn new(weights: &[f32], k: usize, n: usize, level: LevelI8) -> Result<Self, I8Error> {
        check(weights.len(), k.saturating_mul(n))?;
        let mut largest = vec![0.0f32; n];
        for row in weights.chunks(n.max(1)) {
            for (column, (most, w)) in largest.iter_mut().zip(row).enumerate() {
                if !w.is_finite() {
                    return Err(I8Error::NotFinite { column });
                }
                *most = most.max(w.abs());
            }
        }
        // A column of zeros (or of numbers too small to divide by) quantises to zero, whatever its scale.
        let scales: Vec<f32> = largest.iter().map(|most| if *most < 1e-30 { 1.0 } else { most / 127.0 }).collect();
        let bytes: Vec<i8> = weights
            .chunks(n.max(1))
            .flat_map(|row| row.iter().zip(&scales).map(|(w, scale)| (w / scale).round_ties_even() as i8))
            .collect();
        Self::from_quantized(&bytes, &scales, k, n, level)
    }

    /// Packs weights that are already quantised: row-major `[k, n]` bytes, weight = byte * scale of its column.
    ///
    /// # Errors
    /// Too many rows, a wrong length, or a scale that is not finite.
    pub fn from_quantized(bytes: &[i8], scales: &[f32], k: usize, n: usize, level: LevelI8) -> Result<Self, I8Error> {
        check(bytes.len(), k.saturating_mul(n))?;
        check(scales.len(), n)?;
        if k > MOST_K {
            return Err(I8Error::Depth { k });
        }
        if let Some(column) = scales.iter().position(|scale| !scale.is_finite()) {
            return Err(I8Error::NotFinite { column });
        }
        let level = level.runnable();
        let (width, group) = (2 * level.lanes(), level.group());
        let (panels, words) = (n.div_ceil(width), k.div_ceil(group));
        let mut data = vec![Line([0; 64]); (panels * words * width * group).div_ceil(64)];
        let (mut padded, mut sums) = (vec![0.0; panels * width], vec![0i32; panels * width]);
        padded.iter_mut().zip(scales).for_each(|(to, scale)| *to = *scale);
        for (row, line) in bytes.chunks(n.max(1)).enumerate() {
            for (column, &byte) in line.iter().enumerate() {
                let word = (column / width * words + row / group) * width + column % width;
                let at = word * group + row % group;
                if let (Some(line), Some(sum)) = (data.get_mut(at / 64), sums.get_mut(column)) {
                    line.0[at % 64] = byte;
                    *sum -= i32::from(byte);
                }
            }
        }
        Ok(Self { level, k, n, data, scales: padded, sums })
    }

    /// The level that the weights were packed for; rows must be quantised for the same level.
    #[must_use]
    pub fn level(&self) -> LevelI8 {
        self.level
    }

    /// Rows of the weights: the length of an input row.
    #[must_use]
    pub fn k(&self) -> usize {
        self.k
    }

    /// Columns of the weights: the length of an output row.
    #[must_use]
    pub fn n(&self) -> usize {
        self.n
    }

    /// Columns of a full panel.
    #[must_use]
    pub fn panel_width(&self) -> usize {
        2 * self.level.lanes()
    }

    /// Number of panels, the last of which may be narrower. Threads divide the columns by panels.
    #[must_use]
    pub fn panels(&self) -> usize {
        self.n.div_ceil(self.panel_width())
    }

    /// Memory in bytes: weights, scales and sums, padding included.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.data.len() * 64 + self.scales.len() * 8
    }

    /// Words of an input row.
    pub(crate) fn words(&self) -> usize {
        self.k.div_ceil(self.level.group())
    }

    /// The weights of a panel, its scales and its sums, valid for `words` rows of a whole panel. The pointers may
    /// dangle if there are no weights.
    pub(crate) fn panel(&self, index: usize) -> (*const i8, *const f32, *const i32) {
        let width = self.panel_width();
        let start = index * self.words() * width * self.level.group();
        let column = index * width;
        (
            self.data.as_ptr().cast::<i8>().wrapping_add(start),
            self.scales.as_ptr().wrapping_add(column),
            self.sums.as_ptr().wrapping_add(column),
        )
    }
}

fn check(given: usize, needed: usize) -> Result<(), I8Error> {
    if given == needed { Ok(()) } else { Err(I8Error::Length { needed, given }) }
}
