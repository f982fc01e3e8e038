//! The GPU executor: the weights of a plan are uploaded once, and each batch size is captured as a CUDA graph when it
//! is first used. A request is then one launch: its inputs are staged, the graph is launched, and the requested outputs
//! are read. Between the first and the last kernel nothing is allocated and nothing waits for the host.

mod capture;
mod loaded;
mod memory;
mod results;
mod run;
mod selection;
mod stage;
mod state;
mod timings;

pub use self::capture::DeviceTimes;
pub use self::loaded::{CudaExecutor, GemmPolicy, GpuError};
pub use self::state::CudaState;
pub use self::timings::{LIBRARY, RunTimings, StepTiming};
