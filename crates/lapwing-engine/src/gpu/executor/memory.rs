//! The device and host memory of one thread that runs a plan. It grows to the largest batch so far.

use std::sync::Arc;

use super::loaded::CudaExecutor;
use crate::gpu::args::{BaseAddresses, Control};
use crate::gpu::device::{CublasLt, CudaDevice, DeviceBuffer, DeviceError, Direction, Driver, PinnedBuffer, Stream};
use crate::gpu::lower::MemoryLayout;
use crate::gpu::route::{Transfer, TransferPlan};

/// The least size of an allocation, in bytes.
const LEAST: usize = 256;

/// The device and host memory of one thread.
#[derive(Debug)]
pub(crate) struct ThreadMemory {
    pub(crate) stream: Stream,
    pub(crate) arena: DeviceBuffer,
    pub(crate) inputs: DeviceBuffer,
    pub(crate) outputs: DeviceBuffer,
    counter: DeviceBuffer,
    /// cublasLt, if products may use it: its workspace serves one stream.
    pub(crate) lt: Option<CublasLt>,
    pub(crate) control: PinnedBuffer,
    pub(crate) to_device: PinnedBuffer,
    pub(crate) to_host: PinnedBuffer,
}

impl ThreadMemory {
    /// The minimum of memory, too small for any batch.
    pub(crate) fn new(executor: &CudaExecutor) -> Result<Self, DeviceError> {
        let device = executor.device();
        let stream = Stream::new(device)?;
        let counter = DeviceBuffer::new(device, 256)?;
        stream.fill(&counter, 0, 256, 0)?;
        stream.wait()?;
        Ok(Self {
            stream,
            arena: DeviceBuffer::new(device, LEAST)?,
            inputs: DeviceBuffer::new(device, LEAST)?,
            outputs: DeviceBuffer::new(device, LEAST)?,
            counter,
            lt: executor.gemm.libraries().and_then(|found| library(found, device)),
            control: PinnedBuffer::new(device, 4 * Control::WORDS, Direction::ToHost)?,
            to_device: PinnedBuffer::new(device, LEAST, Direction::ToDevice)?,
            to_host: PinnedBuffer::new(device, LEAST, Direction::ToHost)?,
        })
    }

    /// Whether the memory is large enough for a program.
    pub(crate) fn fits(&self, layout: &MemoryLayout) -> bool {
        layout.arena_bytes() <= self.arena.bytes()
            && layout.input_bytes <= self.inputs.bytes()
            && layout.output_bytes <= self.outputs.bytes()
    }

    /// Grows the memory to a program. The old memory is freed first, because both may not fit.
    pub(crate) fn grow(&mut self, device: &Arc<CudaDevice>, layout: &MemoryLayout) -> Result<(), DeviceError> {
        let (arena, inputs, outputs) = (layout.arena_bytes(), layout.input_bytes, layout.output_bytes);
        for (block, bytes) in [(&mut self.arena, arena), (&mut self.inputs, inputs), (&mut self.outputs, outputs)] {
            if block.bytes() < bytes {
                *block = DeviceBuffer::new(device, LEAST)?;
                *block = DeviceBuffer::new(device, bytes)?;
            }
        }
        for (staging, bytes) in [(&mut self.to_device, inputs), (&mut self.to_host, outputs)] {
            if staging.bytes() < bytes {
                *staging = PinnedBuffer::new(device, bytes, staging.direction())?;
            }
        }
        Ok(())
    }

    pub(crate) fn bases(&self, executor: &CudaExecutor, route: TransferPlan) -> BaseAddresses {
        BaseAddresses {
            weights: executor.weights.address(),
            arena: self.arena.address(),
            inputs: if route.inputs == Transfer::Mapped { self.to_device.mapped() } else { self.inputs.address() },
            outputs: if route.outputs == Transfer::Mapped { self.to_host.mapped() } else { self.outputs.address() },
            control: self.control.mapped(),
            counter: self.counter.address(),
        }
    }
}

/// cublasLt for one stream; without it, our own kernels compute all products.
fn library(found: &Driver, device: &Arc<CudaDevice>) -> Option<CublasLt> {
    CublasLt::find(found, device)
        .inspect_err(|error| tracing::warn!(%error, "cublasLt cannot be used; products run on Lapwing's own kernels"))
        .ok()
}
