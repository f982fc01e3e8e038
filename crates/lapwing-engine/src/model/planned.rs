//! A model run by its plan: calls are concatenated without padding and run as one batch.

use bytes::Bytes;

use super::executor::{Fault, Memory, PlanExecutor};
use super::{BatchResult, CallWork};
use crate::EngineError;
use crate::clock::Stamp;
use crate::exec::{Batch, IdError, Input, RunError};
use crate::plan::{BatchSize, ElementType, Lookup, Op, Plan, Rows};
use crate::tensor::{Datatype, Tensor, TensorSpec};

/// A plan that is ready.
#[derive(Debug)]
pub(super) struct Planned {
    executor: PlanExecutor,
    /// The input that is the attention mask, if there is one.
    mask: Option<usize>,
    /// The most tokens of a sequence.
    longest: usize,
    flops: Flops,
}

/// The FLOPs of a batch are linear in its sequences, its tokens, and the squares of its sequences' lengths.
#[derive(Clone, Copy, Debug)]
struct Flops {
    batch: u64,
    token: u64,
    square: u64,
}

impl Flops {
    fn of(plan: &Plan) -> Self {
        let of = |batch, tokens, squares| plan.total(BatchSize { batch, tokens, squares }).cost.flops;
        Self { batch: of(1, 0, 0), token: of(0, 1, 0), square: of(0, 0, 1) }
    }

    const fn at(self, size: BatchSize) -> u64 {
        self.batch * size.batch as u64 + self.token * size.tokens as u64 + self.square * size.squares as u64
    }
}

/// The buffers that a thread reuses from batch to batch.
#[derive(Debug, Default)]
pub(super) struct Buffers {
    memory: Memory,
    offsets: Vec<usize>,
    inputs: Vec<Column>,
    outputs: Vec<Vec<f32>>,
}

/// One input of all calls, concatenated.
#[derive(Debug)]
enum Column {
    F32(Vec<f32>),
    I64(Vec<i64>),
    I32(Vec<i32>),
    Bool(Vec<bool>),
}

impl Planned {
    pub(super) fn new(executor: PlanExecutor) -> Self {
        let plan = executor.plan();
        let (mask, longest, flops) = (plan.mask(), plan.longest().unwrap_or(usize::MAX), Flops::of(plan));
        Self { executor, mask, longest, flops }
    }

    pub(super) fn plan(&self) -> &Plan {
        self.executor.plan()
    }

    /// What runs it.
    pub(super) const fn executor(&self) -> &PlanExecutor {
        &self.executor
    }

    /// Checks that a call's tensors, which fit their ports, fit one another.
    pub(super) fn accept(&self, tensors: &[Tensor]) -> Result<CallWork, EngineError> {
        let plan = self.plan();
        let (mut rows, mut length) = (None, None);
        for (tensor, port) in tensors.iter().zip(&plan.inputs) {
            let is_token = plan.value(port.value).rows == Rows::Token;
            for (axis, known) in [(0, &mut rows), (1, &mut length)].into_iter().take(if is_token { 2 } else { 1 }) {
                let got = tensor.shape.get(axis).copied().unwrap_or(1);
                if known.is_some_and(|known| known != got) {
                    let reason = format!("axis {axis} has length {got}, that of the inputs before it {}", known.unwrap_or(0));
                    return Err(EngineError::input(&tensor.name, reason));
                }
                *known = Some(got);
            }
        }
        let (rows, length) = (rows.unwrap_or(1), length.unwrap_or(1));
        let most = self.longest;
        if length > most {
            let token = plan.inputs.iter().position(|port| plan.value(port.value).rows == Rows::Token).unwrap_or(0);
            return Err(EngineError::input(
                &plan.inputs[token].name,
                format!("sequences have {length} tokens, the model's positions end at {most}"),
            ));
        }
        let executed = BatchSize::uniform(rows, length);
        let useful = match self.mask.and_then(|at| tensors.get(at)) {
            Some(mask) => BatchSize::of(mask.data.chunks(length * mask.datatype.bytes()).map(|row| not_zero(row, mask.datatype))),
            None => executed,
        };
        let flops = Some((self.flops.at(executed), self.flops.at(useful)));
        Ok(CallWork { rows, executed: executed.tokens, useful: useful.tokens, flops })
    }

    /// Runs calls; outputs that are not wanted may be empty.
    pub(super) fn run(
        &self,
        buffers: &mut Buffers,
        ports: &[TensorSpec],
        calls: &[&[Tensor]],
        wanted: &[bool],
    ) -> Result<BatchResult, EngineError> {
        let began = Stamp::now();
        let Buffers { memory, offsets, inputs, outputs } = buffers;
        self.lay(calls, offsets, inputs);
        let given: smallvec::SmallVec<[Input<'_>; 4]> = inputs.iter().map(Column::input).collect();
        let laid = Stamp::now();
        let batch = Batch { offsets, inputs: &given };
        self.executor.run(memory, &batch, wanted, outputs).map_err(|fault| match fault {
            Fault::Batch(error) => input_error(&error, self.plan()),
            Fault::Engine(error) => error,
        })?;
        let done = Stamp::now();
        let cut = self.cut(ports, calls, outputs);
        Ok(BatchResult {
            outputs: cut,
            preprocessing_ns: laid.since(began),
            forward_ns: done.since(laid),
            postprocessing_ns: done.elapsed(),
        })
    }

    /// How long the parts of `runs` runs take on a GPU; `None` where the plan runs on none.
    pub(super) fn timings(
        &self,
        buffers: &mut Buffers,
        calls: &[&[Tensor]],
        runs: usize,
    ) -> Result<Option<crate::gpu::RunTimings>, EngineError> {
        let Some(executor) = self.executor.on_gpu() else { return Ok(None) };
        let Buffers { memory, offsets, inputs, .. } = buffers;
        self.lay(calls, offsets, inputs);
        let given: smallvec::SmallVec<[Input<'_>; 4]> = inputs.iter().map(Column::input).collect();
        let (batch, wanted) = (Batch { offsets, inputs: &given }, vec![true; self.plan().outputs.len()]);
        let timings = executor.time_steps(&mut memory.gpu, &batch, &wanted, runs);
        timings.map(Some).map_err(|error| EngineError::Run { reason: error.to_string() })
    }

    /// Concatenates the calls' tensors.
    fn lay(&self, calls: &[&[Tensor]], offsets: &mut Vec<usize>, inputs: &mut Vec<Column>) {
        let plan = self.plan();
        offsets.clear();
        offsets.push(0);
        let mut end = 0;
        for call in calls {
            let (rows, length) = self.shape(call);
            for _ in 0..rows {
                end += length;
                offsets.push(end);
            }
        }
        if inputs.len() != plan.inputs.len() {
            *inputs = plan.inputs.iter().map(|port| Column::new(plan.value(port.value).kind)).collect();
        }
        for (at, column) in inputs.iter_mut().enumerate() {
            column.fill(calls.iter().map(|call| &call[at].data));
        }
    }

    /// Sequences of a call, and tokens of each; 1 where there are none.
    fn shape(&self, call: &[Tensor]) -> (usize, usize) {
        let plan = self.plan();
        let rows = call.first().and_then(|tensor| tensor.shape.first().copied()).unwrap_or(1);
        let tokens = plan.inputs.iter().zip(call).find(|(port, _)| plan.value(port.value).rows == Rows::Token);
        (rows, tokens.and_then(|(_, tensor)| tensor.shape.get(1).copied()).unwrap_or(1))
    }

    /// Splits the outputs among the calls.
    fn cut(&self, ports: &[TensorSpec], calls: &[&[Tensor]], outputs: &[Vec<f32>]) -> Vec<Vec<Tensor>> {
        let plan = self.plan();
        let mut at: smallvec::SmallVec<[usize; 4]> = plan.outputs.iter().map(|_| 0).collect();
        let of = |call: &&[Tensor]| {
            let (rows, length) = self.shape(call);
            let tensor = |(place, (port, named)): (usize, (&crate::plan::PlanPort, &TensorSpec))| {
                let value = plan.value(port.value);
                let is_token = value.rows == Rows::Token;
                let count = rows * if is_token { length } else { 1 } * value.width;
                let data = outputs[place].get(at[place]..at[place] + count).unwrap_or_default();
                at[place] += count;
                let mut shape = vec![rows];
                shape.extend(is_token.then_some(length));
                shape.extend(&port.features);
                let bytes: Vec<u8> = data.iter().flat_map(|x| x.to_le_bytes()).collect();
                Tensor { name: named.name.clone(), datatype: Datatype::Fp32, shape, data: Bytes::from(bytes) }
            };
            plan.outputs.iter().zip(ports).enumerate().map(tensor).collect()
        };
        calls.iter().map(of).collect()
    }
}

/// The error of a run; an id that its table does not have is the caller's fault.
fn input_error(error: &RunError, plan: &Plan) -> EngineError {
    let RunError::Id(IdError { table, .. }) = error else {
        return EngineError::Run { reason: error.to_string() };
    };
    let tables = plan.nodes.iter().flat_map(|node| if let Op::Embed { tables, .. } = &node.op { &tables[..] } else { &[] });
    let ids = tables.filter(|(id, _)| plan.weight(*id).name == *table).find_map(|(_, lookup)| match lookup {
        Lookup::Id(columns) => plan.inputs.iter().find(|port| port.value == columns.value),
        Lookup::Position(_) => None,
    });
    EngineError::input(ids.map_or("inputs", |port| &port.name), error.to_string())
}

/// The number of elements that are not zero.
fn not_zero(elements: &[u8], kind: Datatype) -> usize {
    elements.chunks_exact(kind.bytes()).filter(|element| element.iter().any(|byte| *byte != 0)).count()
}

impl Column {
    const fn new(kind: ElementType) -> Self {
        match kind {
            ElementType::F32 => Self::F32(Vec::new()),
            ElementType::I64 => Self::I64(Vec::new()),
            ElementType::I32 => Self::I32(Vec::new()),
            ElementType::Bool => Self::Bool(Vec::new()),
        }
    }

    fn input(&self) -> Input<'_> {
        match self {
            Self::F32(data) => Input::F32(data),
            Self::I64(data) => Input::I64(data),
            Self::I32(data) => Input::I32(data),
            Self::Bool(data) => Input::Bool(data),
        }
    }

    /// Decodes little-endian elements.
    fn fill<'a>(&mut self, pieces: impl Iterator<Item = &'a Bytes>) {
        match self {
            Self::F32(data) => elements(data, pieces, f32::from_le_bytes),
            Self::I64(data) => elements(data, pieces, i64::from_le_bytes),
            Self::I32(data) => elements(data, pieces, i32::from_le_bytes),
            Self::Bool(data) => elements(data, pieces, |[byte]: [u8; 1]| byte != 0),
        }
    }
}

fn elements<'a, T, const N: usize>(data: &mut Vec<T>, pieces: impl Iterator<Item = &'a Bytes>, of: impl Fn([u8; N]) -> T) {
    data.clear();
    for piece in pieces {
        let (whole, _) = piece.as_chunks::<N>();
        data.extend(whole.iter().map(|bytes| of(*bytes)));
    }
}
