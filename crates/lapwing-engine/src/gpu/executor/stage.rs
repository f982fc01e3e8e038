//! Writes a batch to staging memory: its header, then each input with the row stride and element type that the kernels
//! expect.

use half::f16;

use super::state::PreparedRun;
use crate::gpu::GpuError;
use crate::gpu::header;
use crate::gpu::layout::Kind;
use crate::gpu::lower::PortSlot;
use lapwing_plan::exec::{Batch, Input};

impl PreparedRun<'_> {
    /// Writes the batch to the memory that the graph, or its kernels, will read.
    pub(crate) fn stage(&mut self, batch: &Batch<'_>) -> Result<(), GpuError> {
        let Self { memory, sized, words, bytes, .. } = self;
        if sized.program.has_header {
            header::write(sized.capacity, batch.offsets, words);
            write_rows(bytes, words, words.len(), words.len(), |word| word.to_le_bytes());
            memory.to_device.write(0, bytes)?;
        }
        for (slot, input) in sized.program.layout.inputs.iter().zip(batch.inputs) {
            let PortSlot { offset, width, stride, kind } = *slot;
            match input {
                Input::F32(data) if kind == Kind::F16 => {
                    write_rows(bytes, data, width, stride, |x| f16::from_f32(x).to_le_bytes())
                }
                Input::F32(data) => write_rows(bytes, data, width, stride, |x| x.to_le_bytes()),
                Input::I64(data) => write_rows(bytes, data, width, stride, |x| x.to_le_bytes()),
                Input::I32(data) => write_rows(bytes, data, width, stride, |x| x.to_le_bytes()),
                Input::Bool(data) => write_rows(bytes, data, width, stride, |x| [u8::from(x)]),
            }
            memory.to_device.write(offset, bytes)?;
        }
        Ok(())
    }
}

/// Lays out rows of `width` elements at `stride`; the padding is zero.
fn write_rows<T: Copy, const N: usize>(bytes: &mut Vec<u8>, data: &[T], width: usize, stride: usize, of: impl Fn(T) -> [u8; N]) {
    // rows without gaps are copied as one row
    let (width, stride) = if stride == width { (data.len(), data.len()) } else { (width, stride) };
    bytes.clear();
    bytes.resize(data.len() / width.max(1) * stride * N, 0);
    for (to, row) in bytes.chunks_exact_mut((stride * N).max(1)).zip(data.chunks_exact(width.max(1))) {
        let (to, _) = to.as_chunks_mut::<N>();
        to.iter_mut().zip(row).for_each(|(to, x)| *to = of(*x));
    }
}
