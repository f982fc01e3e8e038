//! Pictures as the input of a model: JPEG and PNG decoded, resized, cropped and normalised as a `preprocessor_config.json` of Hugging
//! Face's libraries says, to the values that Pillow gives.
//!
//! - `picture` decodes: bytes to rows of RGB;
//! - `resample` is Pillow's resizing, bit by bit;
//! - `config` reads the file, and refuses what it cannot do;
//! - `preprocessor` is all of that for one model.
//!
//! Pictures come from strangers. What a picture says of its size is checked before anything is decoded; memory is bounded by
//! `MAX_PIXELS` before and after resizing.

mod config;
mod picture;
mod preprocessor;
mod resample;

pub use picture::ImageFault;
pub(crate) use picture::MAX_PIXELS;
pub(crate) use preprocessor::{Channels, ImagePreprocessor};

#[cfg(test)]
mod tests;
