//! Writes a batch to staging memory: its header, then each input with the row stride and element type that the kernels expect. This is
//! the one copy of an input on the host: rows go from the calls' own tensors to memory that the device reads.

use half::f16;
use lapwing_plan::exec::{Batch, CallBatch, Input, RunError};
use lapwing_plan::plan::{BatchSize, ElementType, Plan};

use super::state::PreparedRun;
use crate::gpu::GpuError;
use crate::gpu::device::{DeviceError, PinnedBuffer};
use crate::gpu::header;
use crate::gpu::layout::Kind;
use crate::gpu::lower::PortSlot;

// elements are copied as they lie in host memory, and kernels read them as little-endian
const _: () = assert!(cfg!(target_endian = "little"), "the feature `cuda` needs a little-endian host");

/// Elements that are converted at a time, in memory that stays in the first-level cache.
const CONVERTED: usize = 256;

/// Where the inputs of a run lie on the host.
#[derive(Clone, Copy, Debug)]
pub(crate) enum HostInputs<'a> {
    /// All calls laid end to end.
    Batch(&'a Batch<'a>),
    /// In the tensors of the calls.
    Calls(&'a CallBatch<'a>),
}

impl HostInputs<'_> {
    pub(crate) fn size(&self, plan: &Plan) -> Result<BatchSize, RunError> {
        match self {
            Self::Batch(batch) => batch.size(plan),
            Self::Calls(batch) => batch.size(plan),
        }
    }

    const fn offsets(&self) -> &[usize] {
        match self {
            Self::Batch(batch) => batch.offsets,
            Self::Calls(batch) => batch.offsets,
        }
    }

    /// Passes the bytes of the input with this index to `take`, in order; each piece has whole rows.
    pub(crate) fn each_piece<E>(&self, at: usize, mut take: impl FnMut(&[u8]) -> Result<(), E>) -> Result<(), E> {
        match self {
            Self::Batch(batch) => take(match batch.inputs[at] {
                Input::F32(data) => bytemuck::cast_slice(data),
                Input::I64(data) => bytemuck::cast_slice(data),
                Input::I32(data) => bytemuck::cast_slice(data),
                Input::Bool(data) => bytemuck::cast_slice(data),
            }),
            Self::Calls(batch) => batch.calls.iter().try_for_each(|call| take(&call[at].data)),
        }
    }
}

impl PreparedRun<'_> {
    /// Writes the batch to the memory that the graph, or its kernels, will read.
    pub(crate) fn stage(&mut self, inputs: HostInputs<'_>) -> Result<(), GpuError> {
        let Self { executor, memory, sized, words } = self;
        if sized.program.has_header {
            header::write(sized.capacity, inputs.offsets(), words);
            memory.to_device.write(0, bytemuck::cast_slice(words))?;
        }
        for (at, slot) in sized.program.layout.inputs.iter().enumerate() {
            let from = executor.plan.value(executor.plan.inputs[at].value).kind;
            let mut rows = StagedRows { to: &mut memory.to_device, slot: *slot, from, at: slot.offset };
            inputs.each_piece(at, |piece| rows.write(piece))?;
        }
        Ok(())
    }
}

/// The rows of an input in staging memory, written one after the other; what lies between them is zero.
struct StagedRows<'a> {
    to: &'a mut PinnedBuffer,
    slot: PortSlot,
    /// The type of the elements that are written.
    from: ElementType,
    /// Where the next row begins.
    at: usize,
}

impl StagedRows<'_> {
    /// Writes whole rows, given as little-endian elements.
    fn write(&mut self, piece: &[u8]) -> Result<(), DeviceError> {
        let PortSlot { width, stride, .. } = self.slot;
        let row_bytes = width * self.from.bytes();
        if stride == width || row_bytes == 0 {
            // rows without gaps are one
            return self.elements(piece);
        }
        let gap = (stride - width) * self.slot.kind.bytes();
        for row in piece.chunks_exact(row_bytes) {
            self.elements(row)?;
            self.to.zero(self.at, gap)?;
            self.at += gap;
        }
        Ok(())
    }

    fn elements(&mut self, elements: &[u8]) -> Result<(), DeviceError> {
        match (self.from, self.slot.kind) {
            (ElementType::F32, Kind::F16) => {
                self.converted(elements, |bytes: [u8; 4]| f16::from_f32(f32::from_le_bytes(bytes)).to_le_bytes())
            }
            // a caller's true may be any byte but 0
            (ElementType::Bool, _) => self.converted(elements, |[byte]: [u8; 1]| [u8::from(byte != 0)]),
            _ => {
                self.to.write(self.at, elements)?;
                self.at += elements.len();
                Ok(())
            }
        }
    }

    fn converted<const N: usize, const M: usize>(
        &mut self,
        elements: &[u8],
        of: impl Fn([u8; N]) -> [u8; M],
    ) -> Result<(), DeviceError> {
        let mut made = [[0; M]; CONVERTED];
        for some in elements.as_chunks::<N>().0.chunks(CONVERTED) {
            let made = &mut made[..some.len()];
            made.iter_mut().zip(some).for_each(|(made, element)| *made = of(*element));
            let bytes = made.as_flattened();
            self.to.write(self.at, bytes)?;
            self.at += bytes.len();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use lapwing_testing::{alone, fakes, test_name};

    use super::*;
    use crate::gpu::device::{CudaDevice, Direction, Driver};

    /// What staging memory full of ones holds after these pieces, from byte 4 on.
    fn staged(slot: PortSlot, from: ElementType, pieces: &[&[u8]]) -> Vec<u8> {
        let device = CudaDevice::open(&Driver::find(Some(&fakes::driver("."))).unwrap(), 0).unwrap();
        let mut to = PinnedBuffer::new(&device, 4096, Direction::ToHost).unwrap();
        to.write(0, &[1; 4096]).unwrap();
        let mut rows = StagedRows { to: &mut to, slot, from, at: slot.offset };
        pieces.iter().for_each(|piece| rows.write(piece).unwrap());
        let end = rows.at;
        let mut held = vec![0; end - slot.offset + 4];
        to.read(slot.offset, &mut held).unwrap();
        assert_eq!(held.split_off(end - slot.offset), [1; 4], "what lies behind is as it was");
        held
    }

    #[test]
    fn rows_of_all_calls_lie_end_to_end_with_zeros_between() {
        alone(test_name!(), || {
            let slot = |width, stride, kind| PortSlot { offset: 4, width, stride, kind };
            let row = |from: f32| -> Vec<u8> { [from, from + 1.0, from + 2.0].iter().flat_map(|x| x.to_le_bytes()).collect() };
            let pieces = [[row(1.0), row(4.0)].concat(), row(7.0)];
            let pieces: Vec<&[u8]> = pieces.iter().map(Vec::as_slice).collect();
            let gaps = staged(slot(3, 8, Kind::F32), ElementType::F32, &pieces);
            assert_eq!(gaps, [row(1.0), vec![0; 20], row(4.0), vec![0; 20], row(7.0), vec![0; 20]].concat());
            let dense = staged(slot(3, 3, Kind::F32), ElementType::F32, &pieces);
            assert_eq!(dense, pieces.concat());
            let halves: Vec<u8> = [1.0_f32, 2.0, 3.0].iter().flat_map(|x| f16::from_f32(*x).to_le_bytes()).collect();
            let first = staged(slot(3, 8, Kind::F16), ElementType::F32, &[&row(1.0)]);
            assert_eq!(first, [halves, vec![0; 10]].concat());
            assert_eq!(staged(slot(1, 1, Kind::U8), ElementType::Bool, &[&[0, 2, 255], &[1]]), [0, 1, 1, 1]);
            let ids: Vec<u8> = [5_i64, -6].iter().flat_map(|id| id.to_le_bytes()).collect();
            assert_eq!(staged(slot(1, 1, Kind::I64), ElementType::I64, &[&ids]), ids);
            // more elements than are converted at a time
            let many = vec![7_u8; 2 * CONVERTED + 3];
            assert_eq!(staged(slot(1, 1, Kind::U8), ElementType::Bool, &[&many]), vec![1; 2 * CONVERTED + 3]);
        });
    }
}
