//! Staging memory: pinned host memory that the device accesses directly, by copies or, mapped, from within kernels.
//!
//! Memory that the device reads is write-combined: fast to write in order, but very slow to read, so that the host is
//! not allowed to read it. Memory that the device writes is ordinary memory. The host writes through `&mut`, so that no
//! two host threads write at once.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use cudarc::driver::sys::{self, CUdeviceptr};

use super::buffer::within;
use super::context::CudaDevice;
use super::error::{DeviceError, Result, check};

/// The direction in which staging memory is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// The host writes, the device reads.
    ToDevice,
    /// The device writes, the host reads. Also for flags, which both write.
    ToHost,
}

/// The allocation, shared with everything that may still use it.
pub(crate) struct RawPinnedBuffer {
    pub(crate) device: Arc<CudaDevice>,
    pub(crate) host: NonNull<u8>,
    pub(crate) mapped: CUdeviceptr,
    pub(crate) bytes: usize,
    pub(crate) direction: Direction,
}

// SAFETY: an address of memory that this owns. All accesses go through `PinnedBuffer`, which follows its own rules.
unsafe impl Send for RawPinnedBuffer {}
// SAFETY: as above.
unsafe impl Sync for RawPinnedBuffer {}

impl Drop for RawPinnedBuffer {
    fn drop(&mut self) {
        let host = self.host.as_ptr().cast();
        // SAFETY: this owns the allocation; streams and graphs that may use it hold a reference until their work is
        // done.
        let ended = self.device.bind().and_then(|()| check("cuMemFreeHost", unsafe { sys::cuMemFreeHost(host) }));
        self.device.pinned.remove(self.bytes);
        self.device.record_drop_error("staging memory", ended);
    }
}

/// Staging memory, initially zero.
pub struct PinnedBuffer {
    pub(crate) raw: Arc<RawPinnedBuffer>,
}

impl std::fmt::Debug for PinnedBuffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PinnedBuffer({} bytes, {:?})", self.raw.bytes, self.raw.direction)
    }
}

impl PinnedBuffer {
    /// Allocates `bytes` (above zero), aligned to at least 256.
    ///
    /// # Errors
    /// No more memory can be pinned, or `bytes` is 0.
    pub fn new(device: &Arc<CudaDevice>, bytes: usize, direction: Direction) -> Result<Self> {
        if bytes == 0 {
            return Err(DeviceError::Range { what: "staging memory", offset: 0, bytes, size: 0 });
        }
        let mut flags = sys::CU_MEMHOSTALLOC_PORTABLE | sys::CU_MEMHOSTALLOC_DEVICEMAP;
        if direction == Direction::ToDevice {
            flags |= sys::CU_MEMHOSTALLOC_WRITECOMBINED;
        }
        device.bind()?;
        let mut host = std::ptr::null_mut();
        // SAFETY: the context is current; `host` is valid for writing an address.
        check("cuMemHostAlloc", unsafe { sys::cuMemHostAlloc(&mut host, bytes, flags) })?;
        let Some(host) = NonNull::new(host.cast::<u8>()) else {
            return Err(DeviceError::Range { what: "staging memory", offset: 0, bytes, size: 0 });
        };
        // SAFETY: the driver allocated `bytes` bytes there, and no one else has access yet.
        unsafe { host.write_bytes(0, bytes) };
        device.pinned.add(bytes);
        let mut raw = RawPinnedBuffer { device: device.clone(), host, mapped: 0, bytes, direction };
        // SAFETY: the memory was allocated as mapped; `mapped` is valid for writing an address. On failure `raw` frees
        // it.
        check("cuMemHostGetDevicePointer", unsafe {
            sys::cuMemHostGetDevicePointer_v2(&mut raw.mapped, host.as_ptr().cast(), 0)
        })?;
        Ok(Self { raw: Arc::new(raw) })
    }

    /// The device address of the memory, for kernel arguments.
    #[must_use]
    pub fn mapped(&self) -> u64 {
        self.raw.mapped
    }

    /// Size in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.raw.bytes
    }

    /// The direction of its use.
    #[must_use]
    pub fn direction(&self) -> Direction {
        self.raw.direction
    }

    /// Copies `from` into the memory. Device work that is still reading the range sees a mix of old and new bytes.
    ///
    /// # Errors
    /// The range is outside of the memory.
    pub fn write(&mut self, offset: usize, from: &[u8]) -> Result<()> {
        within("write", offset, from.len(), self.raw.bytes)?;
        // SAFETY: the range is in bounds (checked above) and is not a Rust object that `from` could alias; `&mut`
        // excludes other host threads.
        unsafe { self.raw.host.add(offset).copy_from_nonoverlapping(NonNull::from(from).cast(), from.len()) };
        Ok(())
    }

    /// Writes `bytes` zeros. Device work that is still reading the range sees a mix of old and new bytes.
    ///
    /// # Errors
    /// The range is outside of the memory.
    pub fn zero(&mut self, offset: usize, bytes: usize) -> Result<()> {
        within("write", offset, bytes, self.raw.bytes)?;
        // SAFETY: the range is in bounds (checked above); `&mut` excludes other host threads.
        unsafe { self.raw.host.add(offset).write_bytes(0, bytes) };
        Ok(())
    }

    /// Appends `rows` rows of `width` numbers, which begin `stride` numbers apart, to `to`. Device work that writes the range must be
    /// done, else the result is a mix of old and new numbers.
    ///
    /// # Errors
    /// The range is outside of the memory, or the host may not read it.
    pub fn read_rows(&self, offset: usize, rows: usize, width: usize, stride: usize, to: &mut Vec<f32>) -> Result<()> {
        self.readable("read", offset, rows.saturating_mul(stride).saturating_mul(4))?;
        let width = width.min(stride);
        // rows without gaps are one
        let (rows, width, stride) = if width == stride { (1, rows * width, rows * stride) } else { (rows, width, stride) };
        to.reserve(rows * width);
        for row in 0..rows {
            let (from, length) = (offset + 4 * row * stride, to.len());
            // SAFETY: the rows are in bounds (checked above), and `to` has room for them (reserved above), which no Rust object
            // aliases; the host writes through `&mut` only. Any four bytes are a number, and they are copied as bytes, so their
            // address may be any.
            unsafe {
                let room = NonNull::new_unchecked(to.as_mut_ptr().add(length).cast::<u8>());
                self.raw.host.add(from).copy_to_nonoverlapping(room, 4 * width);
                to.set_len(length + width);
            }
        }
        Ok(())
    }

    /// Copies out of the memory. Device work that writes the range must be done, else the result is a mix of old and
    /// new bytes.
    ///
    /// # Errors
    /// The range is outside of the memory, or the host may not read it.
    pub fn read(&self, offset: usize, to: &mut [u8]) -> Result<()> {
        self.readable("read", offset, to.len())?;
        // SAFETY: the range is in bounds (checked above) and is not a Rust object that `to` could alias; the host
        // writes through `&mut` only, so no host thread writes now.
        unsafe { self.raw.host.add(offset).copy_to_nonoverlapping(NonNull::from(&mut *to).cast(), to.len()) };
        Ok(())
    }

    /// The memory, to be read in place.
    ///
    /// # Errors
    /// The host may not read it.
    ///
    /// # Safety
    /// While the slice lives, no device work that writes the memory is running or starts.
    pub unsafe fn slice(&self) -> Result<&[u8]> {
        self.readable("read", 0, self.raw.bytes)?;
        // SAFETY: the length is that of the allocation, which was zeroed; the caller excludes the device, `&` excludes
        // host writers.
        Ok(unsafe { std::slice::from_raw_parts(self.raw.host.as_ptr(), self.raw.bytes) })
    }

    /// Reads the 32-bit flag with this index (4 bytes each), which a kernel may be writing. Acquire: what the kernel
    /// wrote before the flag is visible afterwards.
    ///
    /// # Errors
    /// The flag is outside of the memory, or the host may not read it.
    pub fn flag(&self, index: usize) -> Result<u32> {
        Ok(self.word(index)?.load(Ordering::Acquire))
    }

    /// Writes the 32-bit flag with this index. Release: a kernel that reads it sees what the host wrote before.
    ///
    /// # Errors
    /// The flag is outside of the memory, or the host may not read it.
    pub fn set_flag(&mut self, index: usize, value: u32) -> Result<()> {
        self.word(index)?.store(value, Ordering::Release);
        Ok(())
    }

    fn word(&self, index: usize) -> Result<&AtomicU32> {
        let offset = index.saturating_mul(4);
        self.readable("flag", offset, 4)?;
        // SAFETY: four bytes in bounds (checked above), aligned because the memory is aligned to 256. The host's other
        // reads never overlap its writes, which need `&mut`; the device writes whole words.
        Ok(unsafe { AtomicU32::from_ptr(self.raw.host.as_ptr().add(offset).cast()) })
    }

    fn readable(&self, what: &'static str, offset: usize, bytes: usize) -> Result<()> {
        if self.raw.direction == Direction::ToDevice {
            return Err(DeviceError::WriteOnly);
        }
        within(what, offset, bytes, self.raw.bytes)
    }
}
