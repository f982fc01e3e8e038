//! The arithmetic of 8-bit quantisation: weights to bytes, ranges of activations from a calibration set, how far the results are
//! from single precision, and the files that hold calibration rows. It runs no model and no kernel; numbers are f32 unless they say
//! otherwise.
//!
//! - Weights: signed, symmetric, a scale for each output channel (column): `weight = byte * scale`; packing does that.
//! - Activations, dynamic: unsigned, each row by its own range; the int8 kernels do that themselves.
//! - Activations, static: unsigned, one range for every row, found by an [`Observer`] that saw the calibration rows.

mod accuracy;
pub mod calibration;
mod histogram;
pub mod npy;
pub mod npz;
mod observer;

pub use accuracy::{Accuracy, AccuracyError};
pub use observer::{Chosen, Clip, LEAST_FIXED_DB, Observer, ObserverError};
