//! Stream capture: records a stream's work as a graph instead of executing it. A capture borrows the stream exclusively
//! and stays on its thread, as the driver's thread-local capture mode requires; other threads may allocate and load
//! modules meanwhile.

use std::any::Any;
use std::marker::PhantomData;
use std::sync::Arc;

use cudarc::driver::sys::{self, CUevent_record_flags, CUgraph, CUstreamCaptureMode};

use super::buffer::DeviceBuffer;
use super::error::{DeviceError, Result, check};
use super::event::Event;
use super::function::Function;
use super::graph::{CapturedGraph, CudaGraph};
use super::launch::LaunchShape;
use super::lt::{CublasLt, MatmulOperands, MatmulPlan};
use super::pinned::PinnedBuffer;
use super::stream::Stream;

/// A capture in progress. Dropping it without [`Capture::end`] discards it.
#[derive(Debug)]
pub struct Capture<'stream> {
    stream: &'stream mut Stream,
    ended: bool,
    /// Makes it `!Send`.
    here: PhantomData<*const ()>,
}

impl<'stream> Capture<'stream> {
    /// Begins a capture after the stream's earlier work is done.
    ///
    /// # Errors
    /// The earlier work failed, or the driver rejected the capture.
    pub fn begin(stream: &'stream mut Stream) -> Result<Self> {
        stream.wait()?;
        let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: the context is current (waiting did that); the stream is not in a capture, because a capture borrows
        // it by `&mut`.
        check("cuStreamBeginCapture", unsafe { sys::cuStreamBeginCapture_v2(stream.raw.handle, mode) })?;
        Ok(Self { stream, ended: false, here: PhantomData })
    }

    /// Records a [`Stream::launch`].
    ///
    /// # Errors
    /// As there.
    ///
    /// # Safety
    /// As there, for as long as the graph lives.
    pub unsafe fn launch(&self, function: &Function, shape: LaunchShape, args: &[u8]) -> Result<()> {
        // SAFETY: the caller gives the same guarantees.
        unsafe { self.stream.launch(function, shape, args) }
    }

    /// Records a [`Stream::copy_in`].
    ///
    /// # Errors
    /// As there.
    pub fn copy_in(&self, from: &PinnedBuffer, offset: usize, to: &DeviceBuffer, to_offset: usize, bytes: usize) -> Result<()> {
        self.stream.copy_in(from, offset, to, to_offset, bytes)
    }

    /// Records a [`Stream::copy_out`].
    ///
    /// # Errors
    /// As there.
    pub fn copy_out(&self, from: &DeviceBuffer, offset: usize, to: &PinnedBuffer, to_offset: usize, bytes: usize) -> Result<()> {
        self.stream.copy_out(from, offset, to, to_offset, bytes)
    }

    /// Records a [`Stream::copy`].
    ///
    /// # Errors
    /// As there.
    pub fn copy(&self, from: &DeviceBuffer, offset: usize, to: &DeviceBuffer, to_offset: usize, bytes: usize) -> Result<()> {
        self.stream.copy(from, offset, to, to_offset, bytes)
    }

    /// Records a [`Stream::fill`].
    ///
    /// # Errors
    /// As there.
    pub fn fill(&self, block: &DeviceBuffer, offset: usize, bytes: usize, byte: u8) -> Result<()> {
        self.stream.fill(block, offset, bytes, byte)
    }

    /// Records a [`Stream::record`] as a graph node: each launch of the graph records the event again.
    ///
    /// # Errors
    /// As there.
    pub fn record(&self, event: &Event) -> Result<()> {
        self.stream.record_as(event, CUevent_record_flags::CU_EVENT_RECORD_EXTERNAL)
    }

    /// Records a [`CublasLt::enqueue`].
    ///
    /// # Errors
    /// As there.
    ///
    /// # Safety
    /// As there, for as long as the graph lives.
    pub unsafe fn enqueue(&self, lt: &CublasLt, plan: &MatmulPlan, operands: &MatmulOperands) -> Result<()> {
        // SAFETY: the caller gives the same guarantees.
        unsafe { lt.enqueue(self.stream, plan, operands) }
    }

    pub(crate) const fn stream(&self) -> &Stream {
        self.stream
    }

    /// Keeps `what` alive as long as the graph, for memory that only kernel arguments refer to.
    pub fn keep_with_graph(&self, what: Arc<dyn Any + Send + Sync>) {
        self.stream.keep_until_done(what);
    }

    /// Ends the capture and instantiates the graph.
    ///
    /// # Errors
    /// A call in between invalidated the capture, or the driver cannot instantiate the graph.
    pub fn end(mut self) -> Result<CudaGraph> {
        let template = self.stop()?;
        CudaGraph::new(self.stream, &template)
    }

    fn stop(&mut self) -> Result<CapturedGraph> {
        self.ended = true;
        self.stream.device().bind()?;
        let mut graph: CUgraph = std::ptr::null_mut();
        // SAFETY: this thread began the capture; `graph` is valid for writing a handle.
        let ended = check("cuStreamEndCapture", unsafe { sys::cuStreamEndCapture(self.stream.raw.handle, &mut graph) });
        match (ended, CapturedGraph::from_handle(self.stream.device(), graph)) {
            (Ok(()), Some(template)) => Ok(template),
            (Err(error), _) => Err(error),
            (Ok(()), None) => Err(DeviceError::Call { call: "cuStreamEndCapture", code: 0, text: "it gave no graph".to_owned() }),
        }
    }
}

impl Drop for Capture<'_> {
    fn drop(&mut self) {
        if !self.ended {
            let given_up = self.stop().map(drop);
            self.stream.device().record_drop_error("a capture", given_up);
            self.stream.take_kept();
        }
    }
}
