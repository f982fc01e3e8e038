//! What came of a batch: the outputs that were wanted, or the id that a table does not have.

use super::GpuError;
use super::state::Run;
use crate::exec::{Batch, IdError, Input, RunError};
use crate::gpu::args::Control;
use crate::gpu::layout::Home;
use crate::gpu::lower::Slot;
use crate::plan::{Op, Size};

impl Run<'_> {
    /// Looks whether a lookup was told an id that its table does not have.
    pub(super) fn told(&mut self) -> Result<(), GpuError> {
        let Self { executor, held, .. } = self;
        if held.control.flag(Control::FAULT)? == 0 {
            return Ok(());
        }
        let mut words = [0_u32; 4];
        for (at, word) in words.iter_mut().enumerate() {
            *word = held.control.flag(Control::FAULT + at)?;
            held.control.set_flag(Control::FAULT + at, 0)?;
        }
        let [node, table, token, value] = words;
        let plan = executor.plan();
        let tables = plan.nodes.get((node as usize).wrapping_sub(1)).map(|node| &node.op);
        let Some(Op::Embed { tables, .. }) = tables else { return Ok(()) };
        let Some((id, _)) = tables.get(table as usize) else { return Ok(()) };
        let weight = plan.weight(*id);
        let (token, value) = (token as usize, i64::from(value.cast_signed()));
        let error = IdError { table: weight.name.clone(), rows: weight.rows, token, value };
        Err(RunError::Id(error).into())
    }

    /// Reads the outputs that are wanted.
    pub(super) fn read(
        &mut self,
        batch: &Batch<'_>,
        size: Size,
        wanted: &[bool],
        outputs: &mut Vec<Vec<f32>>,
    ) -> Result<(), GpuError> {
        let Self { executor, held, sized, bytes, .. } = self;
        let plan = executor.plan();
        outputs.resize_with(plan.outputs.len(), Vec::new);
        for (at, port) in plan.outputs.iter().enumerate() {
            let output = &mut outputs[at];
            output.clear();
            if !wanted.get(at).copied().unwrap_or(false) {
                continue;
            }
            let value = plan.value(port.value);
            if let Home::Input(input) = executor.prepared.stored[port.value.0].home {
                if let Input::F32(data) = batch.inputs[input] {
                    output.extend_from_slice(data);
                }
                continue;
            }
            let Slot { offset, width, stride, .. } = sized.program.places.outputs[at];
            bytes.resize(4 * stride * size.rows(value.rows), 0);
            held.to_host.read(offset, bytes)?;
            let (numbers, _) = bytes.as_chunks::<4>();
            // rows without gaps are one
            let (width, stride) = if stride == width { (numbers.len(), numbers.len()) } else { (width, stride) };
            for row in numbers.chunks_exact(stride.max(1)) {
                output.extend(row[..width].iter().map(|x| f32::from_le_bytes(*x)));
            }
        }
        Ok(())
    }
}
