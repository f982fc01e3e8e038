//! How a batch's data is transferred to the device and back, and how the host is notified of its completion.

use super::args::{Address, ArgField, Region};
use super::lower::{LoweredProgram, PreparedPlan, Step};
use super::{Capacity, LoweringTarget};
use lapwing_onnx::UnsupportedNode;
use lapwing_plan::plan::{BatchSize, Plan, Rows};

/// So many bytes are accessed by kernels in mapped host memory; more are copied. A read of them counts once for each thread block that reads
/// them, because the device does not cache the host's memory: 128 blocks that each read 2 KiB there kept an H200 17 µs longer than after a
/// copy (`benches/device`).
pub const MAPPED_BYTES: usize = 64 << 10;
/// Batches up to this many rows get a program of exactly their size.
const EXACT: usize = 8;

/// How a payload is transferred.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transfer {
    /// Kernels access it in host memory.
    Mapped,
    /// It is copied as a whole, before the first kernel or after the last.
    Copied,
}

/// How the host is notified that a batch is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Completion {
    /// The last kernel sets a flag in host memory, which a thread polls.
    Flag,
    /// The thread sleeps until the driver wakes it.
    Wait,
}

/// How a program's batches are transferred.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransferPlan {
    /// For the header and the inputs. With a header they are always copied, because every kernel reads it.
    pub inputs: Transfer,
    /// For the outputs.
    pub outputs: Transfer,
}

impl Transfer {
    /// The name used in listings.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Mapped => "mapped",
            Self::Copied => "copied",
        }
    }
}

impl Completion {
    /// The name used in listings.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Flag => "flag",
            Self::Wait => "wait",
        }
    }
}

impl TransferPlan {
    /// The transfers of this program's batches.
    #[must_use]
    pub fn of(program: &LoweredProgram) -> Self {
        let way = |is_mapped: bool| if is_mapped { Transfer::Mapped } else { Transfer::Copied };
        let layout = &program.layout;
        // only our own kernels set the flag
        let tells = program.steps.last().is_some_and(|step| matches!(step, Step::Launch(_)));
        Self {
            inputs: way(!program.has_header && layout.input_bytes.saturating_mul(readers(program)) <= MAPPED_BYTES),
            outputs: way(tells && layout.output_bytes <= MAPPED_BYTES),
        }
    }

    /// How the host is notified that a batch is done.
    #[must_use]
    pub const fn completion(self) -> Completion {
        match self.outputs {
            Transfer::Mapped => Completion::Flag,
            Transfer::Copied => Completion::Wait,
        }
    }
}

/// How many thread blocks read inputs; each may read all of them.
fn readers(program: &LoweredProgram) -> usize {
    let reads = |field: &ArgField| matches!(field, ArgField::Pointer(Some(Address { region: Region::Inputs, .. })));
    let reading = program.steps.iter().flat_map(Step::launches).filter(|launch| launch.args.fields().iter().any(reads));
    reading.map(|launch| launch.grid.0 as usize * launch.grid.1 as usize).sum()
}

/// The capacity of the program with which a batch runs.
#[must_use]
pub fn capacity(plan: &Plan, size: BatchSize) -> Capacity {
    let has_tokens = plan.values.iter().any(|value| value.rows == Rows::Token);
    if !has_tokens && size.batch <= EXACT { Capacity::exactly(size) } else { Capacity::holding(size) }
}

/// The program for batches of this size.
///
/// # Errors
///
/// [`UnsupportedNode`] names a node that no kernel supports at this size.
pub fn program(
    prepared: &mut PreparedPlan,
    plan: &Plan,
    capacity: Capacity,
    wanted: &[bool],
    target: &LoweringTarget,
) -> Result<LoweredProgram, UnsupportedNode> {
    let program = prepared.lower(plan, capacity, wanted, target)?;
    if capacity.is_exact && program.has_header {
        return prepared.lower(plan, Capacity { is_exact: false, ..capacity }, wanted, target);
    }
    Ok(program)
}
