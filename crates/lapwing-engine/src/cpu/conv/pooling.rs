//! Pooling.

use std::ops::Range;

use super::super::level::Level;
use super::geometry::{ConvError, View, Windows, holds};
use super::windows::{Max, Sum, over_windows};

/// What a pooling makes of a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PoolKind {
    /// The largest element that is not padding.
    Max,
    /// The mean of the elements that are not padding.
    Mean,
    /// The mean of all elements, zeros for the padding.
    MeanWithPadding,
}

/// A pooling of each channel.
#[derive(Debug, Clone, Copy)]
pub struct PoolingKernel {
    windows: Windows,
    kind: PoolKind,
    level: Level,
}

impl PoolingKernel {
    /// A pooling at `level`.
    ///
    /// # Errors
    /// Names a number that is 0 or too large, or padding in which a window could lie wholly.
    pub fn new(windows: Windows, kind: PoolKind, level: Level) -> Result<Self, ConvError> {
        windows.check()?;
        let covered = |at: usize| windows.pads[at] < windows.kernel[at % 2] && windows.dilations[at % 2] == 1;
        if let Some(at) = (0..4).find(|at| windows.pads[*at] > 0 && !covered(*at)) {
            return Err(ConvError::Geometry { what: "padding", value: windows.pads[at] });
        }
        Ok(Self { windows, kind, level: level.runnable() })
    }

    /// Its windows.
    #[must_use]
    pub fn windows(&self) -> &Windows {
        &self.windows
    }

    /// Computes `pixels` of the output, counted row after row and image after image, from whole images of `size` (rows, columns).
    ///
    /// # Errors
    /// Names the slice whose length does not fit; nothing was written then.
    pub fn run(
        &self,
        images: &[f32],
        size: [usize; 2],
        channels: usize,
        pixels: Range<usize>,
        out: &mut [f32],
    ) -> Result<(), ConvError> {
        let view = View::new(&self.windows, (images, size), channels, &pixels)?;
        holds("output", out.len(), pixels.len() * channels)?;
        match self.kind {
            PoolKind::Max => over_windows(self.level, view, &Max, out),
            PoolKind::Mean => over_windows(self.level, view, &Sum { with_padding: false }, out),
            PoolKind::MeanWithPadding => over_windows(self.level, view, &Sum { with_padding: true }, out),
        }
        Ok(())
    }
}
