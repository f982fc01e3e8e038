//! The arithmetic of 8-bit quantisation: weights, activation ranges from a calibration set, the accuracy of the
//! results, and the files that hold calibration rows. It runs no model and no kernel; numbers are f32 unless stated
//! otherwise.
//!
//! - Weights: signed, symmetric, a scale for each output channel (column): `weight = byte * scale`; computed when
//!   weights are packed.
//! - Activations, dynamic: unsigned, each row by its own range; computed by the int8 kernels.
//! - Activations, static: unsigned, one range for all rows, found by a [`RangeObserver`] from calibration rows.

mod accuracy;
pub mod calibration;
mod histogram;
pub mod npy;
pub mod npz;
mod observer;

pub use accuracy::{Accuracy, AccuracyError};
pub use observer::{LEAST_FIXED_DB, ObserverError, RangeMethod, RangeObserver, StaticRange};
