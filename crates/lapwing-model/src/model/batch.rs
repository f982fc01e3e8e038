//! The batch of a model with a plan: checks calls, concatenates their tensors without padding in the buffers that the executor reads, and
//! makes what it wrote the calls' outputs, without another copy.

use bytes::Bytes;
use smallvec::SmallVec;

use super::call::CallWork;
use lapwing_plan::EngineError;
use lapwing_plan::exec::{Batch, CallBatch, IdError, Input, RunError};
use lapwing_plan::plan::{BatchSize, ElementType, Lookup, Op, Plan, PlanPort, Rows};
use lapwing_plan::tensor::{Datatype, Tensor, TensorSpec};

/// What a plan asks of calls.
#[derive(Debug)]
pub(crate) struct BatchRules {
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

/// The input of a batch, in buffers that a thread reuses from batch to batch.
#[derive(Debug, Default)]
pub(crate) struct BatchInput {
    offsets: Vec<usize>,
    inputs: Vec<Column>,
}

impl BatchInput {
    /// Where the sequences of `calls` begin; their inputs stay where they are.
    pub(crate) fn of_calls<'a>(&'a mut self, plan: &Plan, calls: &'a [&'a [Tensor]]) -> CallBatch<'a> {
        self.locate(plan, calls);
        CallBatch { offsets: &self.offsets, calls }
    }

    /// Calls `run` with the batch.
    pub(crate) fn with<T>(&self, run: impl FnOnce(&Batch<'_>) -> T) -> T {
        let inputs: SmallVec<[Input<'_>; 4]> = self.inputs.iter().map(Column::input).collect();
        run(&Batch { offsets: &self.offsets, inputs: &inputs })
    }
}

/// One input of all calls, concatenated.
#[derive(Debug)]
enum Column {
    F32(Vec<f32>),
    I64(Vec<i64>),
    I32(Vec<i32>),
    Bool(Vec<bool>),
}

impl BatchRules {
    pub(crate) fn of(plan: &Plan) -> Self {
        Self { mask: plan.mask(), longest: plan.longest().unwrap_or(usize::MAX), flops: Flops::of(plan) }
    }

    /// Checks that a call's tensors, which fit their ports, fit one another.
    pub(crate) fn accept(&self, plan: &Plan, tensors: &[Tensor]) -> Result<CallWork, EngineError> {
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
}

impl BatchInput {
    /// Concatenates the calls' tensors.
    pub(crate) fn fill(&mut self, plan: &Plan, calls: &[&[Tensor]]) {
        self.locate(plan, calls);
        let inputs = &mut self.inputs;
        if inputs.len() != plan.inputs.len() {
            *inputs = plan.inputs.iter().map(|port| Column::new(plan.value(port.value).kind)).collect();
        }
        for (at, column) in inputs.iter_mut().enumerate() {
            column.fill(calls.iter().map(|call| &call[at].data));
        }
    }

    /// Notes where each sequence begins.
    fn locate(&mut self, plan: &Plan, calls: &[&[Tensor]]) {
        let offsets = &mut self.offsets;
        offsets.clear();
        offsets.push(0);
        let mut end = 0;
        for call in calls {
            let (rows, length) = shape(plan, call);
            for _ in 0..rows {
                end += length;
                offsets.push(end);
            }
        }
    }
}

/// Sequences of a call, and tokens of each; 1 where there are none.
fn shape(plan: &Plan, call: &[Tensor]) -> (usize, usize) {
    let rows = call.first().and_then(|tensor| tensor.shape.first().copied()).unwrap_or(1);
    let tokens = plan.inputs.iter().zip(call).find(|(port, _)| plan.value(port.value).rows == Rows::Token);
    (rows, tokens.and_then(|(_, tensor)| tensor.shape.get(1).copied()).unwrap_or(1))
}

/// Splits the outputs among the calls: each gets its part of the memory that the executor wrote. `outputs` is emptied.
pub(crate) fn split(plan: &Plan, ports: &[TensorSpec], calls: &[&[Tensor]], outputs: &mut Vec<Vec<f32>>) -> Vec<Vec<Tensor>> {
    let written: SmallVec<[Bytes; 4]> = outputs.drain(..).map(bytes).collect();
    let mut at: SmallVec<[usize; 4]> = plan.outputs.iter().map(|_| 0).collect();
    let of = |call: &&[Tensor]| {
        let (rows, length) = shape(plan, call);
        let tensor = |(place, (port, named)): (usize, (&PlanPort, &TensorSpec))| {
            let value = plan.value(port.value);
            let is_token = value.rows == Rows::Token;
            let size = 4 * rows * if is_token { length } else { 1 } * value.width;
            let range = at[place]..at[place] + size;
            at[place] = range.end;
            // an output that is not wanted is empty
            let data = if range.end <= written[place].len() { written[place].slice(range) } else { Bytes::new() };
            let mut shape = vec![rows];
            shape.extend(is_token.then_some(length));
            shape.extend(&port.features);
            Tensor { name: named.name.clone(), datatype: Datatype::Fp32, shape, data }
        };
        plan.outputs.iter().zip(ports).enumerate().map(tensor).collect()
    };
    calls.iter().map(of).collect()
}

/// An output as the bytes of a tensor, in the same memory.
fn bytes(mut output: Vec<f32>) -> Bytes {
    struct Owned(Vec<f32>);
    impl AsRef<[u8]> for Owned {
        fn as_ref(&self) -> &[u8] {
            bytemuck::cast_slice(&self.0)
        }
    }
    if cfg!(target_endian = "big") {
        output.iter_mut().for_each(|x| *x = f32::from_bits(x.to_bits().to_le()));
    }
    Bytes::from_owner(Owned(output))
}

/// The error of a run; an id that its table does not have is the caller's fault.
pub(crate) fn input_error(error: &RunError, plan: &Plan) -> EngineError {
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
