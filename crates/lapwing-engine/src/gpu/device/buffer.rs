//! Device memory, in bytes: one allocation each, made at start and never while a request runs. The host cannot address
//! it.

use std::sync::Arc;

use cudarc::driver::sys::{self, CUdeviceptr};

use super::context::CudaDevice;
use super::error::{DeviceError, Result, check};

/// The allocation, shared with everything that may still use it.
pub(crate) struct RawBuffer {
    pub(crate) device: Arc<CudaDevice>,
    pub(crate) address: CUdeviceptr,
    pub(crate) bytes: usize,
}

impl Drop for RawBuffer {
    fn drop(&mut self) {
        // SAFETY: this owns the allocation; streams and graphs that may use it hold a reference until their work is
        // done.
        let ended = self.device.bind().and_then(|()| check("cuMemFree", unsafe { sys::cuMemFree_v2(self.address) }));
        self.device.memory.remove(self.bytes);
        self.device.record_drop_error("device memory", ended);
    }
}

/// Device memory. Its initial contents are undefined.
pub struct DeviceBuffer {
    pub(crate) raw: Arc<RawBuffer>,
}

impl std::fmt::Debug for DeviceBuffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "DeviceBuffer({} bytes at {:#x})", self.raw.bytes, self.raw.address)
    }
}

impl DeviceBuffer {
    /// Allocates `bytes` (above zero), aligned to 256.
    ///
    /// # Errors
    /// Device memory is exhausted ([`DeviceError::is_out_of_memory`]), or `bytes` is 0.
    pub fn new(device: &Arc<CudaDevice>, bytes: usize) -> Result<Self> {
        if bytes == 0 {
            return Err(DeviceError::Range { what: "device memory", offset: 0, bytes, size: 0 });
        }
        device.bind()?;
        let mut address = 0;
        // SAFETY: the context is current; `address` is valid for writing an address.
        check("cuMemAlloc", unsafe { sys::cuMemAlloc_v2(&mut address, bytes) })?;
        device.memory.add(bytes);
        Ok(Self { raw: Arc::new(RawBuffer { device: device.clone(), address, bytes }) })
    }

    /// The device address, for a kernel's arguments.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.raw.address
    }

    /// Size in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.raw.bytes
    }

    /// The device address of a range within the buffer.
    pub(crate) fn place(&self, what: &'static str, offset: usize, bytes: usize) -> Result<CUdeviceptr> {
        within(what, offset, bytes, self.raw.bytes)?;
        Ok(self.raw.address + offset as u64)
    }
}

/// Checks that `bytes` (above zero) at `offset` lie within `size`.
pub(crate) fn within(what: &'static str, offset: usize, bytes: usize, size: usize) -> Result<()> {
    match offset.checked_add(bytes) {
        Some(end) if bytes > 0 && end <= size => Ok(()),
        _ => Err(DeviceError::Range { what, offset, bytes, size }),
    }
}
