//! Which way a batch goes to the device and back, and how the host learns that it is done.

use super::lower::{Prepared, Program};
use super::{Capacity, Target};
use crate::UnsupportedNode;
use crate::plan::{Plan, Rows, Size};

/// Payloads up to this size are read and written by kernels where they lie in the host's memory; larger ones are copied.
pub const MAPPED_BYTES: usize = 64 << 10;
/// Batches of rows up to this size get a program of exactly their size.
const EXACT: usize = 8;

/// How a payload crosses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Kernels read or write the host's memory.
    Mapped,
    /// It is copied as a whole, before the first kernel or behind the last.
    Copied,
}

/// How the host learns that a batch is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Completion {
    /// The last kernel sets a flag in the host's memory, which a thread looks at again and again.
    Flag,
    /// The thread sleeps until the driver wakes it.
    Wait,
}

/// The way of a program's batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// Of header and inputs. A header is read by every kernel, so that it is always copied.
    pub inputs: Way,
    /// Of outputs.
    pub outputs: Way,
}

impl Way {
    /// The name in listings.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Mapped => "mapped",
            Self::Copied => "copied",
        }
    }
}

impl Completion {
    /// The name in listings.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Flag => "flag",
            Self::Wait => "wait",
        }
    }
}

impl Route {
    /// Of this program's batches.
    #[must_use]
    pub fn of(program: &Program) -> Self {
        let way = |is_mapped: bool| if is_mapped { Way::Mapped } else { Way::Copied };
        let places = &program.places;
        // only our own kernels set the flag
        let tells = program.steps.last().is_some_and(|step| matches!(step, super::lower::Step::Launch(_)));
        Self {
            inputs: way(!program.has_header && places.input_bytes <= MAPPED_BYTES),
            outputs: way(tells && places.output_bytes <= MAPPED_BYTES),
        }
    }

    /// How the host learns that a batch is done.
    #[must_use]
    pub const fn completion(self) -> Completion {
        match self.outputs {
            Way::Mapped => Completion::Flag,
            Way::Copied => Completion::Wait,
        }
    }
}

/// The size of program that a batch runs with.
#[must_use]
pub fn capacity(plan: &Plan, size: Size) -> Capacity {
    let has_tokens = plan.values.iter().any(|value| value.rows == Rows::Token);
    if !has_tokens && size.batch <= EXACT { Capacity::exactly(size) } else { Capacity::holding(size) }
}

/// The program for batches of this size.
///
/// # Errors
///
/// [`UnsupportedNode`] with a node that no kernel does at this size.
pub fn program(
    prepared: &mut Prepared,
    plan: &Plan,
    capacity: Capacity,
    wanted: &[bool],
    target: &Target,
) -> Result<Program, UnsupportedNode> {
    let program = prepared.lower(plan, capacity, wanted, target)?;
    if capacity.is_exact && program.has_header {
        return prepared.lower(plan, Capacity { is_exact: false, ..capacity }, wanted, target);
    }
    Ok(program)
}
