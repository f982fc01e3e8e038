//! The operations of a stream. During a capture they are recorded instead of executed.

use cudarc::driver::sys;

use super::buffer::{DeviceBuffer, within};
use super::error::{DeviceError, Result, check};
use super::event::Event;
use super::function::Function;
use super::launch::LaunchShape;
use super::pinned::{Direction, PinnedBuffer};
use super::stream::{KeptResource, Stream};

impl Stream {
    /// Launches a kernel with one argument: the bytes of its parameter struct, which is passed by value.
    ///
    /// # Errors
    /// The dimensions or the argument do not fit the kernel or the device; the device failed.
    ///
    /// # Safety
    /// `args` are the bytes of the kernel's parameter struct. Its addresses refer to memory of this device (or mapped
    /// staging memory) that is large enough for the kernel's accesses, and that lives until the work is done: see
    /// [`Stream::keep_until_done`].
    pub unsafe fn launch(&self, function: &Function, shape: LaunchShape, args: &[u8]) -> Result<()> {
        let device = self.device();
        device.check_owner("a kernel", function.device())?;
        device.bind()?;
        function.prepare(shape, args)?;
        let mut argument = args.as_ptr().cast_mut().cast();
        // SAFETY: the kernel takes one argument, whose bytes the driver copies before the call returns; the caller
        // guarantees the rest.
        check("cuLaunchKernel", unsafe {
            sys::cuLaunchKernel(
                function.handle(),
                shape.grid.0,
                shape.grid.1,
                1,
                shape.threads,
                1,
                1,
                shape.shared_bytes,
                self.raw.handle,
                &mut argument,
                std::ptr::null_mut(),
            )
        })?;
        self.keep_alive(KeptResource::Module(function.module()));
        Ok(())
    }

    /// Copies `bytes` from staging memory to the device. If the host writes the source before the copy is done, the
    /// result is undefined.
    ///
    /// # Errors
    /// A range is outside of its memory; the device failed.
    pub fn copy_in(&self, from: &PinnedBuffer, offset: usize, to: &DeviceBuffer, to_offset: usize, bytes: usize) -> Result<()> {
        within("copy from staging", offset, bytes, from.bytes())?;
        let address = to.place("copy to the device", to_offset, bytes)?;
        self.ready(&[("staging memory", &from.raw.device), ("a block", &to.raw.device)])?;
        self.keep_alive(KeptResource::Pinned(from.raw.clone()));
        self.keep_alive(KeptResource::Buffer(to.raw.clone()));
        // SAFETY: both ranges are in bounds (checked above) and are kept alive until the copy is done.
        check("cuMemcpyHtoDAsync", unsafe {
            sys::cuMemcpyHtoDAsync_v2(address, from.raw.host.as_ptr().add(offset).cast(), bytes, self.raw.handle)
        })
    }

    /// Copies `bytes` from the device to staging memory.
    ///
    /// # Errors
    /// A range is outside of its memory, the host may not read the staging memory, or the device failed.
    pub fn copy_out(&self, from: &DeviceBuffer, offset: usize, to: &PinnedBuffer, to_offset: usize, bytes: usize) -> Result<()> {
        if to.direction() == Direction::ToDevice {
            return Err(DeviceError::WriteOnly);
        }
        let address = from.place("copy from the device", offset, bytes)?;
        within("copy to staging", to_offset, bytes, to.bytes())?;
        self.ready(&[("a block", &from.raw.device), ("staging memory", &to.raw.device)])?;
        self.keep_alive(KeptResource::Buffer(from.raw.clone()));
        self.keep_alive(KeptResource::Pinned(to.raw.clone()));
        // SAFETY: both ranges are in bounds (checked above) and are kept alive until the copy is done. The host reads
        // them only in ways that tolerate concurrent device writes, or guarantees that there are none
        // (`PinnedBuffer::slice`).
        check("cuMemcpyDtoHAsync", unsafe {
            sys::cuMemcpyDtoHAsync_v2(to.raw.host.as_ptr().add(to_offset).cast(), address, bytes, self.raw.handle)
        })
    }

    /// Copies `bytes` within the device's memory; the two ranges must not overlap.
    ///
    /// # Errors
    /// A range is outside of its memory; the device failed.
    pub fn copy(&self, from: &DeviceBuffer, offset: usize, to: &DeviceBuffer, to_offset: usize, bytes: usize) -> Result<()> {
        let source = from.place("copy from the device", offset, bytes)?;
        let target = to.place("copy to the device", to_offset, bytes)?;
        self.ready(&[("a block", &from.raw.device), ("a block", &to.raw.device)])?;
        self.keep_alive(KeptResource::Buffer(from.raw.clone()));
        self.keep_alive(KeptResource::Buffer(to.raw.clone()));
        // SAFETY: both ranges are in bounds (checked above) and are kept alive until the copy is done.
        check("cuMemcpyDtoDAsync", unsafe { sys::cuMemcpyDtoDAsync_v2(target, source, bytes, self.raw.handle) })
    }

    /// Fills `bytes` bytes of device memory with `byte`.
    ///
    /// # Errors
    /// The range is outside of the buffer; the device failed.
    pub fn fill(&self, block: &DeviceBuffer, offset: usize, bytes: usize, byte: u8) -> Result<()> {
        let address = block.place("fill", offset, bytes)?;
        self.ready(&[("a block", &block.raw.device)])?;
        self.keep_alive(KeptResource::Buffer(block.raw.clone()));
        // SAFETY: the range is in bounds (checked above) and is kept alive until the fill is done.
        check("cuMemsetD8Async", unsafe { sys::cuMemsetD8Async(address, byte, bytes, self.raw.handle) })
    }

    /// Records an event at this point in the stream's work.
    ///
    /// # Errors
    /// The device failed.
    pub fn record(&self, event: &Event) -> Result<()> {
        self.record_as(event, sys::CUevent_record_flags::CU_EVENT_RECORD_DEFAULT)
    }

    pub(crate) fn record_as(&self, event: &Event, flags: sys::CUevent_record_flags) -> Result<()> {
        self.ready(&[("an event", &event.raw.device)])?;
        self.keep_alive(KeptResource::Event(event.raw.clone()));
        // SAFETY: the event and the stream belong to this context.
        check("cuEventRecord", unsafe { sys::cuEventRecordWithFlags(event.raw.handle, self.raw.handle, flags as u32) })
    }

    /// Checks that all of these belong to the stream's device, and makes its context current.
    fn ready(&self, parts: &[(&'static str, &super::context::CudaDevice)]) -> Result<()> {
        let device = self.device();
        parts.iter().try_for_each(|(what, other)| device.check_owner(what, other))?;
        device.bind()
    }
}
