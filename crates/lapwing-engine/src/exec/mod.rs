//! What executors of plans share, on the CPU and on GPUs: the batch that they run, its errors, number formats, what runs a
//! model and where, and what a plan costs there. It runs nothing itself.

mod backend;
mod batch;
mod cost;
mod placement;
mod precision;

pub use backend::{Backend, Device};
pub use batch::{Batch, IdError, Input, RunError};
pub use cost::ExecutionCost;
pub use placement::{Fallback, FallbackCause, Placement};
pub use precision::{CpuPrecision, GpuPrecision, Precision, RowQuant};
