//! A batch into staging memory: its header, then each input with rows as far apart, and of the numbers, that kernels expect.

use half::f16;

use super::state::Run;
use crate::exec::{Batch, Input};
use crate::gpu::GpuError;
use crate::gpu::header;
use crate::gpu::layout::Kind;
use crate::gpu::lower::Slot;

impl Run<'_> {
    /// Writes the batch where the graph, or its kernels, will read it.
    pub(super) fn stage(&mut self, batch: &Batch<'_>) -> Result<(), GpuError> {
        let Self { held, sized, words, bytes, .. } = self;
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
    // rows without gaps are one
    let (width, stride) = if stride == width { (data.len(), data.len()) } else { (width, stride) };
    bytes.clear();
    bytes.resize(data.len() / width.max(1) * stride * N, 0);
    for (to, row) in bytes.chunks_exact_mut((stride * N).max(1)).zip(data.chunks_exact(width.max(1))) {
        let (to, _) = to.as_chunks_mut::<N>();
        to.iter_mut().zip(row).for_each(|(to, x)| *to = of(*x));
    }
}
