//! The dimensions of a launch, and the check that they fit the kernel and the device: the driver's own error for a
//! misfit does not say what is wrong.

use std::sync::atomic::Ordering;

use cudarc::driver::sys::{self, CUfunction_attribute};

use super::error::{DeviceError, Result, check};
use super::function::Function;

/// Dynamic shared memory that every kernel may use, in bytes; for more, an attribute of the kernel must be set.
const SHARED_BY_DEFAULT: u32 = 48 << 10;
/// The largest grid dimension in y.
const MOST_IN_Y: u32 = 65_535;
/// Alignment of arguments, in bytes.
const ALIGNMENT: usize = 8;

/// Grid, block size and dynamic shared memory of a launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LaunchShape {
    /// Blocks in x and y, each at least 1.
    pub grid: (u32, u32),
    /// Threads per block.
    pub threads: u32,
    /// Dynamic shared memory per block, in bytes.
    pub shared_bytes: u32,
}

impl Function {
    /// Checks a launch, and raises the kernel's shared memory limit if needed.
    pub(crate) fn prepare(&self, shape: LaunchShape, args: &[u8]) -> Result<()> {
        let LaunchShape { grid: (x, y), threads, shared_bytes } = shape;
        if x == 0 || x > i32::MAX as u32 || y == 0 || y > MOST_IN_Y {
            return self.refuse(format!("a grid of {x} × {y} blocks"));
        }
        let most = self.info().threads;
        if threads == 0 || threads > most {
            return self.refuse(format!("{threads} threads per block: the kernel allows 1 to {most}"));
        }
        let most = self.device().info().shared_bytes.saturating_sub(self.info().shared_bytes);
        if shared_bytes > most {
            return self.refuse(format!("{shared_bytes} bytes of shared memory: the device has {most}"));
        }
        if !args.as_ptr().addr().is_multiple_of(ALIGNMENT) {
            return self.refuse(format!("its argument is not aligned to {ALIGNMENT} bytes"));
        }
        if let Some(bytes) = self.info().argument_bytes.filter(|bytes| *bytes != args.len()) {
            return self.refuse(format!("an argument of {} bytes: it takes {bytes}", args.len()));
        }
        if shared_bytes > SHARED_BY_DEFAULT && shared_bytes > self.allowed.load(Ordering::Acquire) {
            let attribute = CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            let most = i32::try_from(most).unwrap_or(i32::MAX);
            // raised to the maximum at once, so that threads with different launches do not lower each other's limit
            // SAFETY: the function belongs to the current context.
            check("cuFuncSetAttribute", unsafe { sys::cuFuncSetAttribute(self.handle(), attribute, most) })?;
            self.allowed.store(most.unsigned_abs(), Ordering::Release);
        }
        Ok(())
    }

    fn refuse(&self, reason: String) -> Result<()> {
        Err(DeviceError::Launch { kernel: self.name().to_owned(), reason })
    }
}
