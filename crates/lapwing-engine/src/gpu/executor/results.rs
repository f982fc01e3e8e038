//! The result of a batch: the wanted outputs, or an id that is out of its table's range.

use super::loaded::GpuError;
use super::state::PreparedRun;
use crate::gpu::args::Control;
use crate::gpu::layout::ValueLocation;
use crate::gpu::lower::PortSlot;
use lapwing_plan::exec::{Batch, IdError, Input, RunError};
use lapwing_plan::plan::{BatchSize, Op};

impl PreparedRun<'_> {
    /// Checks whether a lookup reported an id that is out of its table's range.
    pub(crate) fn check_fault(&mut self) -> Result<(), GpuError> {
        let Self { executor, memory, .. } = self;
        if memory.control.flag(Control::FAULT)? == 0 {
            return Ok(());
        }
        let mut words = [0_u32; 4];
        for (at, word) in words.iter_mut().enumerate() {
            *word = memory.control.flag(Control::FAULT + at)?;
            memory.control.set_flag(Control::FAULT + at, 0)?;
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

    /// Reads the wanted outputs.
    pub(crate) fn read(
        &mut self,
        batch: &Batch<'_>,
        size: BatchSize,
        wanted: &[bool],
        outputs: &mut Vec<Vec<f32>>,
    ) -> Result<(), GpuError> {
        let Self { executor, memory, sized, bytes, .. } = self;
        let plan = executor.plan();
        outputs.resize_with(plan.outputs.len(), Vec::new);
        for (at, port) in plan.outputs.iter().enumerate() {
            let output = &mut outputs[at];
            output.clear();
            if !wanted.get(at).copied().unwrap_or(false) {
                continue;
            }
            let value = plan.value(port.value);
            if let ValueLocation::Input(input) = executor.prepared.stored[port.value.0].location {
                if let Input::F32(data) = batch.inputs[input] {
                    output.extend_from_slice(data);
                }
                continue;
            }
            let PortSlot { offset, width, stride, .. } = sized.program.layout.outputs[at];
            bytes.resize(4 * stride * size.rows(value.rows), 0);
            memory.to_host.read(offset, bytes)?;
            let (numbers, _) = bytes.as_chunks::<4>();
            // rows without gaps are copied as one row
            let (width, stride) = if stride == width { (numbers.len(), numbers.len()) } else { (width, stride) };
            for row in numbers.chunks_exact(stride.max(1)) {
                output.extend(row[..width].iter().map(|x| f32::from_le_bytes(*x)));
            }
        }
        Ok(())
    }
}
