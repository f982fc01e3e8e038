//! Windows of images: where each begins, and which parts of it lie in the padding.

use std::ops::Range;

use super::super::gemm::GemmError;

/// Why a convolution cannot be made, or a call of it was rejected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConvError {
    /// A number of the window's geometry is 0 or too large, or the groups do not divide the channels.
    #[error("{what} is {value}, which no window can have")]
    Geometry {
        /// Which number.
        what: &'static str,
        /// Its value.
        value: usize,
    },
    /// A slice is too short.
    #[error("{what} holds {got} values, {need} are needed")]
    Length {
        /// Which slice.
        what: &'static str,
        /// Number of values required.
        need: usize,
        /// Number of values given.
        got: usize,
    },
    /// The product was rejected.
    #[error(transparent)]
    Gemm(#[from] GemmError),
}

/// The windows of an image that a convolution or a pooling reads; all numbers are of rows, then columns, in pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Windows {
    /// Size.
    pub kernel: [usize; 2],
    /// From one window to the next.
    pub strides: [usize; 2],
    /// From one tap of a window to the next.
    pub dilations: [usize; 2],
    /// Zeros around the image: above, left, below, right.
    pub pads: [usize; 4],
}

/// The largest number of a geometry: what is larger, no network has, and places in an image stay far from the limits of `isize`.
const MOST: usize = 1 << 12;

impl Windows {
    pub(crate) fn check(&self) -> Result<(), ConvError> {
        let at_least_1 = [("kernel", self.kernel), ("stride", self.strides), ("dilation", self.dilations)];
        let at_least_1 = at_least_1.into_iter().flat_map(|(what, of)| of.map(|value| (what, value, 1)));
        let numbers = at_least_1.chain(self.pads.map(|value| ("padding", value, 0)));
        for (what, value, least) in numbers {
            if value < least || value > MOST {
                return Err(ConvError::Geometry { what, value });
            }
        }
        Ok(())
    }

    /// Rows and columns of windows in an image of this size; `None` if the kernel is larger than the padded image.
    #[must_use]
    pub fn count(&self, size: [usize; 2]) -> Option<[usize; 2]> {
        let along = |axis: usize| {
            let padded = size[axis].checked_add(self.pads[axis])?.checked_add(self.pads[axis + 2])?;
            let extent = (self.kernel[axis].checked_sub(1)?).checked_mul(self.dilations[axis])?.checked_add(1)?;
            (padded.checked_sub(extent)? / self.strides[axis].max(1)).checked_add(1)
        };
        Some([along(0)?, along(1)?])
    }

    /// Whether each window is one pixel, and each pixel one window.
    pub(crate) fn are_pixels(&self) -> bool {
        self.kernel == [1, 1] && self.strides == [1, 1] && self.pads == [0; 4]
    }
}

/// Some windows of images that lie one after the other, checked.
#[derive(Clone, Copy)]
pub(crate) struct View<'a> {
    pub(crate) windows: &'a Windows,
    pub(crate) images: &'a [f32],
    pub(crate) size: [usize; 2],
    pub(crate) channels: usize,
    /// Rows and columns of windows in an image.
    pub(crate) count: [usize; 2],
    /// The window of the call's first row.
    pub(crate) first: usize,
}

/// A window: where it begins in the image that begins at element `image`, in pixels, which are negative in the padding.
#[derive(Clone, Copy)]
pub(crate) struct Corner {
    pub(crate) image: usize,
    pub(crate) top: isize,
    pub(crate) left: isize,
    /// The window's column.
    pub(crate) column: usize,
}

impl<'a> View<'a> {
    pub(crate) fn new(
        windows: &'a Windows,
        (images, size): (&'a [f32], [usize; 2]),
        channels: usize,
        pixels: &Range<usize>,
    ) -> Result<Self, ConvError> {
        let each = size[0].saturating_mul(size[1]).saturating_mul(channels);
        if each == 0 || !images.len().is_multiple_of(each) {
            return Err(ConvError::Length { what: "images", need: each, got: images.len() });
        }
        let count = windows.count(size).unwrap_or([0, 0]);
        let all = (images.len() / each).saturating_mul(count[0]).saturating_mul(count[1]);
        if pixels.start > pixels.end || pixels.end > all {
            return Err(ConvError::Length { what: "windows", need: pixels.end, got: all });
        }
        Ok(Self { windows, images, size, channels, count, first: pixels.start })
    }

    /// The window of the call's row `at`.
    #[inline(always)]
    pub(crate) fn corner(&self, at: usize) -> Corner {
        let (line, column) = ((self.first + at) / self.count[1], (self.first + at) % self.count[1]);
        let (image, row) = (line / self.count[0], line % self.count[0]);
        let begin = |index: usize, axis: usize| (index * self.windows.strides[axis]) as isize - self.windows.pads[axis] as isize;
        let image = image * self.size[0] * self.size[1] * self.channels;
        Corner { image, top: begin(row, 0), left: begin(column, 1), column }
    }
}

pub(crate) fn holds(what: &'static str, got: usize, need: usize) -> Result<(), ConvError> {
    if got == need { Ok(()) } else { Err(ConvError::Length { what, need, got }) }
}
