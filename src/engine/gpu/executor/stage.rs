//! A batch into staging memory: its header, then each input with rows as far apart, and of the numbers, that kernels expect.

use half::f16;

use super::{Executor, State};
use crate::engine::cpu::{Batch, Input};
use crate::engine::gpu::GpuError;
use crate::engine::gpu::header;
use crate::engine::gpu::layout::Kind;
use crate::engine::gpu::lower::Slot;

impl State {
    /// Writes the batch where the graph, or its kernels, will read it.
    pub(super) fn stage(&mut self, _: &Executor, batch: &Batch<'_>) -> Result<(), GpuError> {
        let (mut words, mut bytes) = (std::mem::take(&mut self.words), std::mem::take(&mut self.bytes));
        let staged = self.stage_with(batch, &mut words, &mut bytes);
        (self.words, self.bytes) = (words, bytes);
        staged
    }

    fn stage_with(&mut self, batch: &Batch<'_>, words: &mut Vec<i32>, bytes: &mut Vec<u8>) -> Result<(), GpuError> {
        let Some((held, sized)) = self.parts() else { return Ok(()) };
        if sized.program.has_header {
            header::write(sized.capacity, batch.offsets, words);
            lay(bytes, words, words.len(), words.len(), |word| word.to_le_bytes());
            held.to_device.write(0, bytes)?;
        }
        for (slot, input) in sized.program.places.inputs.iter().zip(batch.inputs) {
            let Slot { offset, width, stride, kind } = *slot;
            match input {
                Input::F32(data) if kind == Kind::F16 => lay(bytes, data, width, stride, |x| f16::from_f32(x).to_le_bytes()),
                Input::F32(data) => lay(bytes, data, width, stride, |x| x.to_le_bytes()),
                Input::I64(data) => lay(bytes, data, width, stride, |x| x.to_le_bytes()),
                Input::I32(data) => lay(bytes, data, width, stride, |x| x.to_le_bytes()),
                Input::Bool(data) => lay(bytes, data, width, stride, |x| [u8::from(x)]),
            }
            held.to_device.write(offset, bytes)?;
        }
        Ok(())
    }
}

/// Rows of `width` elements as rows of `stride`; what lies between is zero.
fn lay<T: Copy, const N: usize>(bytes: &mut Vec<u8>, data: &[T], width: usize, stride: usize, of: impl Fn(T) -> [u8; N]) {
    bytes.clear();
    if stride == width {
        bytes.extend(data.iter().flat_map(|x| of(*x)));
        return;
    }
    for row in data.chunks_exact(width.max(1)) {
        bytes.extend(row.iter().flat_map(|x| of(*x)));
        bytes.resize(bytes.len() + (stride - width) * N, 0);
    }
}
