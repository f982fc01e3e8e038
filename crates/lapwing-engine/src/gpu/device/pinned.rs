//! Staging: host memory that the device reads or writes by itself, either by copies or, mapped, from within kernels.
//!
//! Memory towards the device is write-combined: quick to write in order, very slow to read, so that reading it is refused.
//! Memory from the device is ordinary. The host writes by `&mut`, so that no two threads of it write at once.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use cudarc::driver::sys::{self, CUdeviceptr};

use super::block::within;
use super::context::Device;
use super::error::{DeviceError, Result, check};

/// Which way staging memory is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Toward {
    /// The host writes, the device reads.
    Device,
    /// The device writes, the host reads; flags too, which both write.
    Host,
}

/// The allocation, kept by whatever may still use it.
pub(super) struct RawPinned {
    pub(super) device: Arc<Device>,
    pub(super) host: NonNull<u8>,
    pub(super) mapped: CUdeviceptr,
    pub(super) bytes: usize,
    pub(super) toward: Toward,
}

// SAFETY: an address of memory that is this one's alone. Whoever reads or writes it through `Pinned` follows the rules there.
unsafe impl Send for RawPinned {}
// SAFETY: as above.
unsafe impl Sync for RawPinned {}

impl Drop for RawPinned {
    fn drop(&mut self) {
        let host = self.host.as_ptr().cast();
        // SAFETY: the allocation is this one's; streams and graphs that may use it hold it until they are done.
        let ended = self.device.bind().and_then(|()| check("cuMemFreeHost", unsafe { sys::cuMemFreeHost(host) }));
        self.device.pinned.remove(self.bytes);
        self.device.note("staging memory", ended);
    }
}

/// Staging memory, zero at first.
pub struct Pinned {
    pub(super) raw: Arc<RawPinned>,
}

impl std::fmt::Debug for Pinned {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Pinned({} bytes toward the {:?})", self.raw.bytes, self.raw.toward)
    }
}

impl Pinned {
    /// Allocates `bytes`, which are above zero; they begin at a multiple of 256 at least.
    ///
    /// # Errors
    /// There is too little memory that can be pinned, or `bytes` is 0.
    pub fn new(device: &Arc<Device>, bytes: usize, toward: Toward) -> Result<Self> {
        if bytes == 0 {
            return Err(DeviceError::Range { what: "staging memory", offset: 0, bytes, size: 0 });
        }
        let mut flags = sys::CU_MEMHOSTALLOC_PORTABLE | sys::CU_MEMHOSTALLOC_DEVICEMAP;
        if toward == Toward::Device {
            flags |= sys::CU_MEMHOSTALLOC_WRITECOMBINED;
        }
        device.bind()?;
        let mut host = std::ptr::null_mut();
        // SAFETY: the context is current; `host` is a valid place for an address.
        check("cuMemHostAlloc", unsafe { sys::cuMemHostAlloc(&mut host, bytes, flags) })?;
        let Some(host) = NonNull::new(host.cast::<u8>()) else {
            return Err(DeviceError::Range { what: "staging memory", offset: 0, bytes, size: 0 });
        };
        // SAFETY: the driver gave `bytes` bytes there, which nobody else has yet.
        unsafe { host.write_bytes(0, bytes) };
        device.pinned.add(bytes);
        let mut raw = RawPinned { device: device.clone(), host, mapped: 0, bytes, toward };
        // SAFETY: memory that was allocated as mapped; `mapped` is a valid place for an address. On failure `raw` frees it.
        check("cuMemHostGetDevicePointer", unsafe {
            sys::cuMemHostGetDevicePointer_v2(&mut raw.mapped, host.as_ptr().cast(), 0)
        })?;
        Ok(Self { raw: Arc::new(raw) })
    }

    /// Where kernels find it, for their arguments.
    #[must_use]
    pub fn mapped(&self) -> u64 {
        self.raw.mapped
    }

    /// Its size.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.raw.bytes
    }

    /// Which way it is used.
    #[must_use]
    pub fn toward(&self) -> Toward {
        self.raw.toward
    }

    /// Copies `from` in. Work of the device that reads the place and is still under way sees some of the old and some of the new.
    ///
    /// # Errors
    /// The place is outside of the memory.
    pub fn write(&mut self, offset: usize, from: &[u8]) -> Result<()> {
        within("write", offset, from.len(), self.raw.bytes)?;
        // SAFETY: the place has room (just checked) and is no Rust object that `from` could be part of; `&mut` keeps other
        // threads of the host away.
        unsafe { self.raw.host.add(offset).copy_from_nonoverlapping(NonNull::from(from).cast(), from.len()) };
        Ok(())
    }

    /// Copies out. Work of the device that writes the place must be done, else some of it is seen and some not.
    ///
    /// # Errors
    /// The place is outside of the memory, or the memory is toward the device.
    pub fn read(&self, offset: usize, to: &mut [u8]) -> Result<()> {
        self.readable("read", offset, to.len())?;
        // SAFETY: the place has room (just checked) and is no Rust object that `to` could be part of; the host writes by `&mut`
        // only, so that no thread of it does now.
        unsafe { self.raw.host.add(offset).copy_to_nonoverlapping(NonNull::from(&mut *to).cast(), to.len()) };
        Ok(())
    }

    /// The bytes themselves, to be read in place.
    ///
    /// # Errors
    /// The memory is toward the device.
    ///
    /// # Safety
    /// As long as the slice is held, no work of the device that writes here is under way or begins.
    pub unsafe fn slice(&self) -> Result<&[u8]> {
        self.readable("read", 0, self.raw.bytes)?;
        // SAFETY: as many bytes as were allocated, all written at first; the caller keeps the device away, `&` the host's writers.
        Ok(unsafe { std::slice::from_raw_parts(self.raw.host.as_ptr(), self.raw.bytes) })
    }

    /// The bytes themselves, to be written in place, in order and without reading them where they are toward the device.
    ///
    /// # Safety
    /// As long as the slice is held, no work of the device that reads or writes here is under way or begins.
    pub unsafe fn slice_mut(&mut self) -> &mut [u8] {
        // SAFETY: as many bytes as were allocated, all written at first; the caller keeps the device away, `&mut` everybody else.
        unsafe { std::slice::from_raw_parts_mut(self.raw.host.as_ptr(), self.raw.bytes) }
    }

    /// Reads the 32-bit flag `index` (of 4 bytes each), which a kernel may be writing; what the kernel wrote before it is seen
    /// after it.
    ///
    /// # Errors
    /// The flag is outside of the memory, or the memory is toward the device.
    pub fn flag(&self, index: usize) -> Result<u32> {
        Ok(self.word(index)?.load(Ordering::Acquire))
    }

    /// Writes the 32-bit flag `index`; what the host wrote before it is seen by a kernel that reads it.
    ///
    /// # Errors
    /// The flag is outside of the memory, or the memory is toward the device.
    pub fn set_flag(&mut self, index: usize, value: u32) -> Result<()> {
        self.word(index)?.store(value, Ordering::Release);
        Ok(())
    }

    fn word(&self, index: usize) -> Result<&AtomicU32> {
        let offset = index.saturating_mul(4);
        self.readable("flag", offset, 4)?;
        // SAFETY: four bytes within the memory (just checked), aligned since it begins at a multiple of 256. The host's other
        // reads are not at the same time as its writes, which need `&mut`; the device's writes are whole words.
        Ok(unsafe { AtomicU32::from_ptr(self.raw.host.as_ptr().add(offset).cast()) })
    }

    fn readable(&self, what: &'static str, offset: usize, bytes: usize) -> Result<()> {
        if self.raw.toward == Toward::Device {
            return Err(DeviceError::WriteOnly);
        }
        within(what, offset, bytes, self.raw.bytes)
    }
}
