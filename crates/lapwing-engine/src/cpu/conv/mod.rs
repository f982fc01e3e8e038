//! Convolutions and pooling over images whose channels lie side by side: `[images, rows, columns, channels]`, so that a pixel is a row of a matrix.
//! A convolution is a product of its patches with weights that are packed once; where each channel has a kernel of its own, and for
//! pooling, vectors go over the channels. A call computes some of the pixels, so that threads can share it, and allocates nothing.

mod convolution;
mod geometry;
mod layout;
mod patches;
mod pooling;
#[cfg(test)]
mod tests;
mod windows;

pub use convolution::Convolution;
pub use geometry::{ConvError, Windows};
pub use layout::transpose;
pub use pooling::{PoolKind, PoolingKernel};
