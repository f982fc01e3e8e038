//! Streams: work for the device, done in the order in which it was given. A stream belongs to one thread at a time, since what it
//! holds on to (memory, events, kernels of its work) is let go when it is known to be done.

use std::any::Any;
use std::cell::RefCell;
use std::sync::Arc;

use cudarc::driver::sys::{self, CUresult, CUstream};

use super::block::RawBlock;
use super::context::Device;
use super::error::{Result, check};
use super::event::{Event, RawEvent};
use super::module::RawModule;
use super::pinned::RawPinned;

/// What a stream or a graph holds on to, for the sake of holding it.
pub(super) enum Keep {
    Block(#[expect(dead_code, reason = "held")] Arc<RawBlock>),
    Pinned(#[expect(dead_code, reason = "held")] Arc<RawPinned>),
    Event(#[expect(dead_code, reason = "held")] Arc<RawEvent>),
    Module(#[expect(dead_code, reason = "held")] Arc<RawModule>),
    Other(#[expect(dead_code, reason = "held")] Arc<dyn Any + Send + Sync>),
}

/// A stream's handle, kept by graphs that were launched on it.
pub(super) struct RawStream {
    pub(super) device: Arc<Device>,
    pub(super) handle: CUstream,
}

// SAFETY: a handle of the driver's, which any thread may use at any time.
unsafe impl Send for RawStream {}
// SAFETY: as above.
unsafe impl Sync for RawStream {}

impl RawStream {
    /// Waits for all of the stream's work, using the processor.
    pub(super) fn drain(&self) -> Result<()> {
        self.device.bind()?;
        // SAFETY: the handle is this stream's.
        check("cuStreamSynchronize", unsafe { sys::cuStreamSynchronize(self.handle) })
    }
}

impl Drop for RawStream {
    fn drop(&mut self) {
        // SAFETY: the handle is this stream's; nobody holds it any more.
        let ended = self.device.bind().and_then(|()| check("cuStreamDestroy", unsafe { sys::cuStreamDestroy_v2(self.handle) }));
        self.device.note("a stream", ended);
    }
}

/// A stream. It does not wait for the device's default stream, nor that for it.
pub struct Stream {
    pub(super) raw: Arc<RawStream>,
    done: Event,
    kept: RefCell<Vec<Keep>>,
}

impl std::fmt::Debug for Stream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stream").field("device", &self.raw.device.info().ordinal).finish_non_exhaustive()
    }
}

impl Stream {
    /// A new stream without work.
    ///
    /// # Errors
    /// The driver's.
    pub fn new(device: &Arc<Device>) -> Result<Self> {
        let done = Event::blocking(device)?;
        let mut handle = std::ptr::null_mut();
        // SAFETY: the context is current (the event's maker did that); `handle` is a valid place for a handle.
        check("cuStreamCreate", unsafe { sys::cuStreamCreate(&mut handle, sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32) })?;
        let raw = Arc::new(RawStream { device: device.clone(), handle });
        Ok(Self { raw, done, kept: RefCell::default() })
    }

    /// The stream's device.
    #[must_use]
    pub fn device(&self) -> &Arc<Device> {
        &self.raw.device
    }

    /// Waits for all work, without using the processor.
    ///
    /// # Errors
    /// A fault of that work, or of any before it.
    pub fn wait(&self) -> Result<()> {
        self.raw.device.bind()?;
        // SAFETY: the event and the stream are of this context.
        check("cuEventRecord", unsafe { sys::cuEventRecord(self.done.raw.handle, self.raw.handle) })?;
        self.done.wait()?;
        self.kept.borrow_mut().clear();
        Ok(())
    }

    /// Whether all work is done.
    ///
    /// # Errors
    /// A fault of that work, or of any before it.
    pub fn poll(&self) -> Result<bool> {
        self.raw.device.bind()?;
        // SAFETY: the handle is this stream's.
        match unsafe { sys::cuStreamQuery(self.raw.handle) } {
            CUresult::CUDA_ERROR_NOT_READY => return Ok(false),
            code => check("cuStreamQuery", code)?,
        }
        self.kept.borrow_mut().clear();
        Ok(true)
    }

    /// Holds on to something until all work given so far is done.
    pub fn keep(&self, what: Arc<dyn Any + Send + Sync>) {
        self.hold(Keep::Other(what));
    }

    pub(super) fn hold(&self, what: Keep) {
        self.kept.borrow_mut().push(what);
    }

    /// What is held, taken over by a graph.
    pub(super) fn held(&self) -> Vec<Keep> {
        self.kept.take()
    }

    /// Waits, also where giving the work failed: memory of the host may be named by what was given before.
    pub(super) fn settle(&self, given: Result<()>) -> Result<()> {
        let waited = self.wait();
        given.and(waited)
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // before what is held goes
        self.raw.device.note("a stream's work", self.raw.drain());
    }
}
