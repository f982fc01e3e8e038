//! What every executor of a plan takes and returns: batches and their errors, number formats, and the cost of a plan on a device. It
//! runs nothing itself.

mod batch;
mod cost;
mod precision;

pub use batch::{Batch, CallBatch, IdError, Input, RunError};
pub use cost::ExecutionCost;
pub use precision::{CpuPrecision, GpuPrecision, Precision, RowQuant};
