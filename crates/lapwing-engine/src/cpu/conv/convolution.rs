//! Convolutions: products of patches, or one kernel for each channel.

use std::ops::Range;

use super::super::gemm::{Epilogue, MatrixRows, OutRows, PackedWeights, gemm, gemm_packed, packed_scratch_len, scratch_len};
use super::super::level::Level;
use super::geometry::{ConvError, View, Windows, holds};
use super::patches::Patches;
use super::windows::{Depthwise, over_windows};

/// A convolution with its weights packed.
#[derive(Debug)]
pub struct Convolution {
    windows: Windows,
    level: Level,
    /// Channels of the input and of the output.
    channels: [usize; 2],
    kernels: Kernels,
    bias: Vec<f32>,
}

#[derive(Debug)]
enum Kernels {
    /// One kernel for each channel: taps, each with all channels.
    Depthwise(Vec<f32>),
    /// A product for each group of channels.
    Products(Vec<PackedWeights>),
}

impl Convolution {
    /// Packs `weights` of `[outputs, inputs / groups, rows, columns]` for `level`. `bias` has a number for each output channel, or none.
    ///
    /// # Errors
    /// Names what is 0, too large, or does not divide; a slice whose length does not fit.
    pub fn new(
        windows: Windows,
        [inputs, outputs]: [usize; 2],
        groups: usize,
        weights: &[f32],
        bias: &[f32],
        level: Level,
    ) -> Result<Self, ConvError> {
        windows.check()?;
        for (what, value) in [("input channels", inputs), ("output channels", outputs)] {
            if value == 0 || groups == 0 || !value.is_multiple_of(groups) {
                return Err(ConvError::Geometry { what, value });
            }
        }
        let (each, taps) = (inputs / groups, windows.kernel[0] * windows.kernel[1]);
        holds("weights", weights.len(), outputs.saturating_mul(each).saturating_mul(taps))?;
        if !bias.is_empty() {
            holds("bias", bias.len(), outputs)?;
        }
        let kernels = if groups == inputs && outputs == inputs {
            Kernels::Depthwise((0..taps * inputs).map(|at| weights[at % inputs * taps + at / inputs]).collect())
        } else {
            let made = outputs / groups;
            // an input row is a patch: tap after tap, each with all channels of the group
            let group = |group: usize| {
                let at = |row: usize, column: usize| weights[((group * made + column) * each + row % each) * taps + row / each];
                PackedWeights::from_fn(taps * each, made, level, windows.are_pixels() && groups == 1, at)
            };
            Kernels::Products((0..groups).map(group).collect())
        };
        Ok(Self { windows, level: level.runnable(), channels: [inputs, outputs], kernels, bias: bias.to_vec() })
    }

    /// Whether each channel has one kernel and meets no other: it computes little for what it reads.
    #[must_use]
    pub const fn is_depthwise(&self) -> bool {
        matches!(self.kernels, Kernels::Depthwise(_))
    }

    /// Its windows.
    #[must_use]
    pub fn windows(&self) -> &Windows {
        &self.windows
    }

    /// Channels of the input and of the output.
    #[must_use]
    pub fn channels(&self) -> [usize; 2] {
        self.channels
    }

    /// The scratch length, in f32, of a call for `pixels` pixels; at most about 230 KiB.
    #[must_use]
    pub fn scratch_len(&self, pixels: usize) -> usize {
        match &self.kernels {
            Kernels::Depthwise(_) => 0,
            Kernels::Products(_) if self.is_matrix() => scratch_len(pixels),
            Kernels::Products(_) => packed_scratch_len(pixels),
        }
    }

    /// Whether the images are the matrix that the weights are multiplied with.
    fn is_matrix(&self) -> bool {
        self.windows.are_pixels() && matches!(&self.kernels, Kernels::Products(groups) if groups.len() == 1)
    }

    /// Computes `pixels` of the output, counted row after row and image after image, from whole images of `size` (rows, columns).
    ///
    /// # Errors
    /// Names the slice whose length does not fit; nothing was written then.
    pub fn run(
        &self,
        images: &[f32],
        size: [usize; 2],
        pixels: Range<usize>,
        out: &mut [f32],
        scratch: &mut [f32],
    ) -> Result<(), ConvError> {
        let [inputs, outputs] = self.channels;
        let view = View::new(&self.windows, (images, size), inputs, &pixels)?;
        holds("output", out.len(), pixels.len() * outputs)?;
        let rows = pixels.len();
        let groups = match &self.kernels {
            Kernels::Depthwise(weights) => {
                let bias = (!self.bias.is_empty()).then_some(&self.bias[..]);
                over_windows(self.level, view, &Depthwise { weights, bias }, out);
                return Ok(());
            }
            Kernels::Products(groups) => groups,
        };
        let (each, made) = (inputs / groups.len(), outputs / groups.len());
        for (group, weights) in groups.iter().enumerate() {
            let bias = self.bias.get(group * made..(group + 1) * made);
            let epilogue = Epilogue { bias, ..Epilogue::default() };
            let out = OutRows { values: out.get_mut(group * made..).unwrap_or_default(), stride: outputs };
            if self.is_matrix() {
                let x = MatrixRows::dense(&images[pixels.start * inputs..pixels.end * inputs], rows, inputs);
                gemm(x, weights, &epilogue, out, 0..weights.panels(), scratch)?;
            } else {
                let patches = Patches { view, from: group * each, channels: each, level: self.level };
                gemm_packed(&patches, rows, weights, &epilogue, out, scratch)?;
            }
        }
        Ok(())
    }
}
