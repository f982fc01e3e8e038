//! Copies between device memory and any host memory, which wait; for set-up, tests and reports.

use cudarc::driver::sys;

use super::buffer::DeviceBuffer;
use super::error::{Result, check};
use super::stream::Stream;

impl DeviceBuffer {
    /// Copies from any host memory and waits; for set-up only.
    ///
    /// # Errors
    /// The range is outside of the buffer, or the device failed.
    pub fn upload(&self, stream: &Stream, offset: usize, from: &[u8]) -> Result<()> {
        let address = self.place("upload", offset, from.len())?;
        stream.device().check_owner("a block", &self.raw.device)?;
        stream.device().bind()?;
        // SAFETY: both ranges are in bounds (checked above), and the stream is synchronised before `from` can be freed.
        // The copy is made on the stream, because copies on the default stream are not ordered with a stream that does
        // not wait for it.
        let copied = check("cuMemcpyHtoDAsync", unsafe {
            sys::cuMemcpyHtoDAsync_v2(address, from.as_ptr().cast(), from.len(), stream.raw.handle)
        });
        stream.wait_even_after(copied)
    }

    /// Copies to any host memory and waits; for tests and reports.
    ///
    /// # Errors
    /// The range is outside of the buffer, or the device failed.
    pub fn download(&self, stream: &Stream, offset: usize, to: &mut [u8]) -> Result<()> {
        let address = self.place("download", offset, to.len())?;
        stream.device().check_owner("a block", &self.raw.device)?;
        stream.device().bind()?;
        // SAFETY: both ranges are in bounds (checked above), and the stream is synchronised before `to` can be freed or
        // read.
        let copied = check("cuMemcpyDtoHAsync", unsafe {
            sys::cuMemcpyDtoHAsync_v2(to.as_mut_ptr().cast(), address, to.len(), stream.raw.handle)
        });
        stream.wait_even_after(copied)
    }
}
