//! Shared by the executors of plans on the CPU and on GPUs: batches and their errors, number formats, the choice of executor and
//! device, and the cost of a plan on it. It runs nothing itself.

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
