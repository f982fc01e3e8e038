//! The result of a batch: the wanted outputs, or an id that is out of its table's range. An output is copied once on the host: from the
//! memory that the device wrote to the vector that becomes the answer's tensor.

use super::loaded::GpuError;
use super::stage::HostInputs;
use super::state::PreparedRun;
use crate::gpu::args::Control;
use crate::gpu::layout::ValueLocation;
use crate::gpu::lower::PortSlot;
use lapwing_plan::exec::{IdError, RunError};
use lapwing_plan::plan::{Angles, BatchSize, ElementType, Op};

impl PreparedRun<'_> {
    /// Checks whether a lookup or a rotation reported an id or a position that is out of its table's range.
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
        let id = match plan.nodes.get((node as usize).wrapping_sub(1)).map(|node| &node.op) {
            Some(Op::Embed { tables, .. }) => tables.get(table as usize).map(|(id, _)| *id),
            Some(Op::Rotate { angles: Angles::ByPosition { cos, .. }, .. }) => Some(*cos),
            _ => None,
        };
        let Some(weight) = id.map(|id| plan.weight(id)) else { return Ok(()) };
        let (token, value) = (token as usize, i64::from(value.cast_signed()));
        let error = IdError { table: weight.name.clone(), rows: weight.rows, token, value };
        Err(RunError::Id(error).into())
    }

    /// Reads the wanted outputs.
    pub(crate) fn read(
        &mut self,
        inputs: HostInputs<'_>,
        size: BatchSize,
        wanted: &[bool],
        outputs: &mut Vec<Vec<f32>>,
    ) -> Result<(), GpuError> {
        let Self { executor, memory, sized, .. } = self;
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
                if value.kind == ElementType::F32 {
                    inputs.each_piece(input, |piece| {
                        output.extend(piece.as_chunks::<4>().0.iter().map(|x| f32::from_le_bytes(*x)));
                        Ok::<_, GpuError>(())
                    })?;
                }
                continue;
            }
            let PortSlot { offset, width, stride, .. } = sized.program.layout.outputs[at];
            memory.to_host.read_rows(offset, size.rows(value.rows), width, stride, output)?;
        }
        Ok(())
    }
}
