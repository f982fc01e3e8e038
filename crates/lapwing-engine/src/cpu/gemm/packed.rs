//! Packed weights, in the order in which the kernels read them: panels of columns, within each panel row after row,
//! aligned to cache lines. One layout serves every row count: the matrix-vector path streams it once, the tiles read a
//! panel repeatedly from cache.

use super::super::level::Level;
use super::aligned::Aligned;

/// Up to this many columns behind the last full panel are stored as columns and multiplied as dot products: padding
/// them to a vector would read (and store) up to 32 times as much.
pub(crate) const DOT_COLUMNS: usize = 4;

/// A `[k, n]` weight matrix, packed for one level.
#[derive(Debug)]
pub struct PackedWeights {
    level: Level,
    k: usize,
    n: usize,
    /// Whether up to `DOT_COLUMNS` columns behind the last full panel are stored as columns, instead of padded to a vector.
    has_dots: bool,
    data: Aligned,
}

/// How the columns behind the last full panel are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    /// Two vectors wide.
    Two,
    /// One vector wide.
    One,
    /// As columns.
    Dot,
}

/// One panel: where it starts in the data, and which columns it holds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Panel {
    pub(crate) start: usize,
    pub(crate) column: usize,
    pub(crate) columns: usize,
    pub(crate) shape: Shape,
}

/// f32 lanes of a vector at `level`.
pub(crate) fn lanes(level: Level) -> usize {
    if level == Level::Avx512 { 16 } else { 8 }
}

impl PackedWeights {
    /// Packs row-major `[k, n]` for the widest level of this machine. Elements missing from `weights` count as zero.
    #[must_use]
    pub fn new(weights: &[f32], k: usize, n: usize) -> Self {
        Self::for_level(weights, k, n, Level::best())
    }

    /// Packs for `level`, or for the widest level of the machine if that is narrower.
    #[must_use]
    pub fn for_level(weights: &[f32], k: usize, n: usize, level: Level) -> Self {
        Self::from_fn(k, n, level, true, |row, column| weights.get(row * n + column).copied().unwrap_or(0.0))
    }

    /// Packs the transpose of row-major `[n, k]`, the layout of a linear layer's weights in PyTorch.
    #[must_use]
    pub fn from_transposed(weights: &[f32], k: usize, n: usize, level: Level) -> Self {
        Self::from_fn(k, n, level, true, |row, column| weights.get(column * k + row).copied().unwrap_or(0.0))
    }

    /// Packs `at(row, column)`. Without dots the kernels need no row of the input as a whole.
    pub(crate) fn from_fn(k: usize, n: usize, level: Level, has_dots: bool, at: impl Fn(usize, usize) -> f32) -> Self {
        let level = level.runnable();
        let mut packed = Self { level, k, n, has_dots, data: Aligned::zeroed(0) };
        let len = (0..packed.panels()).map(|index| packed.stored(packed.panel(index))).sum();
        let mut data = Aligned::zeroed(len);
        for index in 0..packed.panels() {
            let panel = packed.panel(index);
            let Some(target) = data.as_mut_slice().get_mut(panel.start..) else { break };
            if panel.shape == Shape::Dot {
                for (offset, column) in target.chunks_mut(k.max(1)).zip(panel.column..n) {
                    offset.iter_mut().enumerate().for_each(|(row, to)| *to = at(row, column));
                }
                continue;
            }
            let width = if panel.shape == Shape::Two { packed.panel_width() } else { lanes(level) };
            for (row, line) in target.chunks_mut(width).take(k).enumerate() {
                line.iter_mut().zip(panel.column..panel.column + panel.columns).for_each(|(to, column)| *to = at(row, column));
            }
        }
        packed.data = data;
        packed
    }

    /// The level that the weights were packed for.
    #[must_use]
    pub fn level(&self) -> Level {
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
        2 * lanes(self.level)
    }

    /// Number of panels, the last of which may be narrower. Threads divide the columns by panels.
    #[must_use]
    pub fn panels(&self) -> usize {
        self.n.div_ceil(self.panel_width())
    }

    /// Memory in bytes, padding included.
    #[must_use]
    pub fn bytes(&self) -> usize {
        size_of_val(self.data.as_slice())
    }

    pub(crate) fn data(&self) -> &[f32] {
        self.data.as_slice()
    }

    pub(crate) fn panel(&self, index: usize) -> Panel {
        let width = self.panel_width();
        let column = index * width;
        let columns = width.min(self.n.saturating_sub(column));
        let shape = match columns {
            columns if self.has_dots && columns <= DOT_COLUMNS => Shape::Dot,
            columns if columns <= width / 2 => Shape::One,
            _ => Shape::Two,
        };
        Panel { start: column * self.k, column, columns, shape }
    }

    /// The number of elements that a panel takes.
    fn stored(&self, panel: Panel) -> usize {
        let width = match panel.shape {
            Shape::Two => self.panel_width(),
            Shape::One => lanes(self.level),
            Shape::Dot => panel.columns,
        };
        width * self.k
    }
}
