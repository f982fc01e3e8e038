//! Streams: device work that runs in the order in which it was enqueued. A stream belongs to one thread at a time,
//! because the resources that it keeps alive (memory, events and kernels of its work) are released when the work is
//! known to be done.

use std::any::Any;
use std::cell::RefCell;
use std::sync::Arc;

use cudarc::driver::sys::{self, CUresult, CUstream};

use super::buffer::RawBuffer;
use super::context::CudaDevice;
use super::error::{Result, check};
use super::event::{Event, RawEvent};
use super::function::RawModule;
use super::pinned::RawPinnedBuffer;

/// A resource that a stream or a graph keeps alive.
pub(crate) enum KeptResource {
    Buffer(#[expect(dead_code, reason = "keeps it alive")] Arc<RawBuffer>),
    Pinned(#[expect(dead_code, reason = "keeps it alive")] Arc<RawPinnedBuffer>),
    Event(#[expect(dead_code, reason = "keeps it alive")] Arc<RawEvent>),
    Module(#[expect(dead_code, reason = "keeps it alive")] Arc<RawModule>),
    Other(#[expect(dead_code, reason = "keeps it alive")] Arc<dyn Any + Send + Sync>),
}

/// A stream's handle, kept by graphs that were launched on it.
pub(crate) struct RawStream {
    pub(crate) device: Arc<CudaDevice>,
    pub(crate) handle: CUstream,
}

// SAFETY: a driver handle, which any thread may use at any time.
unsafe impl Send for RawStream {}
// SAFETY: as above.
unsafe impl Sync for RawStream {}

impl RawStream {
    /// Waits for all of the stream's work; the thread spins.
    pub(crate) fn drain(&self) -> Result<()> {
        self.device.bind()?;
        // SAFETY: this owns the handle.
        check("cuStreamSynchronize", unsafe { sys::cuStreamSynchronize(self.handle) })
    }
}

impl Drop for RawStream {
    fn drop(&mut self) {
        // SAFETY: this owns the handle, and no references remain.
        let ended = self.device.bind().and_then(|()| check("cuStreamDestroy", unsafe { sys::cuStreamDestroy_v2(self.handle) }));
        self.device.record_drop_error("a stream", ended);
    }
}

/// A stream. It is not synchronised with the device's default stream.
pub struct Stream {
    pub(crate) raw: Arc<RawStream>,
    done: Event,
    kept: RefCell<Vec<KeptResource>>,
}

impl std::fmt::Debug for Stream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stream").field("device", &self.raw.device.info().ordinal).finish_non_exhaustive()
    }
}

impl Stream {
    /// Creates a stream without work.
    ///
    /// # Errors
    /// The driver's error.
    pub fn new(device: &Arc<CudaDevice>) -> Result<Self> {
        let done = Event::blocking(device)?;
        let mut handle = std::ptr::null_mut();
        // SAFETY: the context is current (creating the event did that); `handle` is valid for writing.
        check("cuStreamCreate", unsafe { sys::cuStreamCreate(&mut handle, sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32) })?;
        let raw = Arc::new(RawStream { device: device.clone(), handle });
        Ok(Self { raw, done, kept: RefCell::default() })
    }

    /// The stream's device.
    #[must_use]
    pub fn device(&self) -> &Arc<CudaDevice> {
        &self.raw.device
    }

    /// Waits for all work; the thread sleeps.
    ///
    /// # Errors
    /// That work, or work before it, failed.
    pub fn wait(&self) -> Result<()> {
        self.raw.device.bind()?;
        // SAFETY: the event and the stream belong to this context.
        check("cuEventRecord", unsafe { sys::cuEventRecord(self.done.raw.handle, self.raw.handle) })?;
        self.done.wait()?;
        self.kept.borrow_mut().clear();
        Ok(())
    }

    /// Whether all work is done.
    ///
    /// # Errors
    /// That work, or work before it, failed.
    pub fn poll(&self) -> Result<bool> {
        self.raw.device.bind()?;
        // SAFETY: this owns the handle.
        match unsafe { sys::cuStreamQuery(self.raw.handle) } {
            CUresult::CUDA_ERROR_NOT_READY => return Ok(false),
            code => check("cuStreamQuery", code)?,
        }
        self.kept.borrow_mut().clear();
        Ok(true)
    }

    /// Keeps `what` alive until all work enqueued so far is done.
    pub fn keep_until_done(&self, what: Arc<dyn Any + Send + Sync>) {
        self.keep_alive(KeptResource::Other(what));
    }

    pub(crate) fn keep_alive(&self, what: KeptResource) {
        self.kept.borrow_mut().push(what);
    }

    /// Takes the resources that are kept alive, to move them to a graph.
    pub(crate) fn take_kept(&self) -> Vec<KeptResource> {
        self.kept.take()
    }

    /// Waits, even if enqueuing failed: work that was enqueued before the failure may use host memory.
    pub(crate) fn wait_even_after(&self, given: Result<()>) -> Result<()> {
        let waited = self.wait();
        given.and(waited)
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // before the resources are released
        self.raw.device.record_drop_error("a stream's work", self.raw.drain());
    }
}
