//! The batch that several calls become: checks the tensors of each against one another, concatenates them without padding in the buffers that the executor reads, and makes what it wrote the calls' outputs, without another
//! copy.

use bytes::Bytes;
use smallvec::SmallVec;

use lapwing_engine::clock::Stamp;
use lapwing_onnx::EngineError;
use lapwing_onnx::tensor::{Datatype, Tensor, TensorSpec};
#[cfg(feature = "cuda")]
use lapwing_plan::exec::CallBatch;
use lapwing_plan::exec::{Batch, IdError, Input, RunError};
use lapwing_plan::plan::{BatchSize, ElementType, Lookup, Op, Plan, PlanPort, Rows};

/// The size of one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallWork {
    /// Sequences; rows where the model has none.
    pub rows: usize,
    /// Tokens of all sequences, masked-out tokens included; rows where the model has no sequences.
    pub executed: usize,
    /// Tokens that are not masked out.
    pub useful: usize,
    /// FLOPs of executed tokens, and of useful ones; without a plan all are useful. `None` where they are not counted.
    pub flops: Option<(u64, u64)>,
}

/// The outputs of a batch, and where its time went.
#[derive(Clone, Debug, Default)]
pub struct BatchResult {
    /// The outputs of each call, in the model's order.
    pub outputs: Vec<Vec<Tensor>>,
    /// The time to concatenate the inputs, in nanoseconds.
    pub preprocessing_ns: u64,
    /// The time of the model, in nanoseconds.
    pub forward_ns: u64,
    /// The time to split the outputs, in nanoseconds.
    pub postprocessing_ns: u64,
}

/// Which outputs are wanted, in the model's order.
pub type WantedOutputs = SmallVec<[bool; 8]>;

/// The size of a call to a model without a plan: the rows of its first tensor.
pub(crate) fn rows(tensors: &[Tensor]) -> CallWork {
    let rows = tensors.first().and_then(|tensor| tensor.shape.first().copied()).unwrap_or(1);
    CallWork { rows, executed: rows, useful: rows, flops: None }
}

/// What a plan asks of calls.
#[derive(Debug)]
pub(crate) struct BatchRules {
    /// The input that is the attention mask, if there is one.
    mask: Option<usize>,
    /// The most tokens of a sequence.
    longest: usize,
    flops: Flops,
}

/// The FLOPs of a batch are linear in its sequences, its tokens, the squares of its sequences' lengths, and their products with the pasts.
#[derive(Clone, Copy, Debug)]
struct Flops {
    batch: u64,
    token: u64,
    square: u64,
    by_past: u64,
}

impl Flops {
    fn of(plan: &Plan) -> Self {
        let none = BatchSize::uniform(0, 0);
        let of = |size| plan.total(size).cost.flops;
        Self {
            batch: of(BatchSize { batch: 1, ..none }),
            token: of(BatchSize { tokens: 1, ..none }),
            square: of(BatchSize { squares: 1, ..none }),
            by_past: of(BatchSize { by_past: 1, ..none }),
        }
    }

    const fn at(self, size: BatchSize) -> u64 {
        let linear = self.batch * size.batch as u64 + self.token * size.tokens as u64;
        linear + self.square * size.squares as u64 + self.by_past * size.by_past as u64
    }
}

/// The input of a batch, in buffers that a thread reuses from batch to batch.
#[derive(Debug, Default)]
pub(crate) struct BatchInput {
    offsets: Vec<usize>,
    past: Vec<usize>,
    inputs: Vec<Column>,
}

impl BatchInput {
    /// Where the sequences of `calls` begin; their inputs stay where they are. A GPU reads them there.
    #[cfg(feature = "cuda")]
    pub(crate) fn of_calls<'a>(&'a mut self, plan: &Plan, calls: &'a [&'a [Tensor]]) -> CallBatch<'a> {
        self.locate(plan, calls);
        CallBatch { offsets: &self.offsets, calls }
    }

    /// Calls `run` with the batch.
    pub(crate) fn with<T>(&self, run: impl FnOnce(&Batch<'_>) -> T) -> T {
        let inputs: SmallVec<[Input<'_>; 4]> = self.inputs.iter().map(Column::input).collect();
        run(&Batch { offsets: &self.offsets, past: &self.past, inputs: &inputs })
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
        let (mut rows, mut length, mut past, mut context) = (None, None, None, None);
        for (tensor, port) in tensors.iter().zip(&plan.inputs) {
            let kind = plan.value(port.value).rows;
            let known = match kind {
                Rows::Past => &mut past,
                Rows::Context => &mut context,
                Rows::Batch | Rows::Token => &mut length,
            };
            for (axis, known) in [Some((0, &mut rows)), port.token_axis(kind).map(|axis| (axis, known))].into_iter().flatten() {
                let got = tensor.shape.get(axis).copied().unwrap_or(1);
                if known.is_some_and(|known| known != got) {
                    let reason = format!("axis {axis} has length {got}, that of the inputs before it {}", known.unwrap_or(0));
                    return Err(EngineError::input(&tensor.name, reason));
                }
                *known = Some(got);
            }
        }
        let (rows, length, past) = (rows.unwrap_or(1), length.unwrap_or(1), past.unwrap_or(0));
        let named = |kind: Rows| {
            let port = plan.inputs.iter().find(|port| plan.value(port.value).rows == kind);
            port.map_or("inputs", |port| &port.name)
        };
        if let Some(context) = context.filter(|context| *context != length + past) {
            let reason = format!("axis 1 has length {context}, the past and the tokens are {past} and {length}");
            return Err(EngineError::input(named(Rows::Context), reason));
        }
        let most = self.longest;
        if length + past > most {
            let of_past = if past > 0 { format!(" after a past of {past}") } else { String::new() };
            let reason = format!("sequences have {length} tokens{of_past}, the model's positions end at {most}");
            return Err(EngineError::input(named(Rows::Token), reason));
        }
        let executed = BatchSize::uniform(rows, length).with_past(past);
        let useful = match self.mask.and_then(|at| Some((tensors.get(at)?, plan.value(plan.inputs[at].value).rows))) {
            Some((mask, kind)) => {
                let (each, columns) = (mask.datatype.least_bytes(), if kind == Rows::Context { past + length } else { length });
                // the last of a row are those of the tokens
                let of = |row: &[u8]| {
                    let (of_past, own) = row.split_at((columns - length) * each);
                    (not_zero(own, mask.datatype), not_zero(of_past, mask.datatype))
                };
                BatchSize::of_pairs(mask.data.chunks_exact(columns * each).map(of))
            }
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
        let has_past = plan.has_past();
        for (ends, kind) in [(&mut self.offsets, Rows::Token), (&mut self.past, Rows::Past)] {
            ends.clear();
            if kind == Rows::Past && !has_past {
                continue;
            }
            ends.push(0);
            let mut end = 0;
            for call in calls {
                let length = length(plan, call, kind);
                for _ in 0..rows_of(call) {
                    end += length;
                    ends.push(end);
                }
            }
        }
    }
}

/// Sequences of a call; 1 where there are none.
fn rows_of(call: &[Tensor]) -> usize {
    call.first().and_then(|tensor| tensor.shape.first().copied()).unwrap_or(1)
}

/// Rows of this kind that each sequence of a call has: tokens, 1 where there are none; of the past, or of both.
fn length(plan: &Plan, call: &[Tensor], kind: Rows) -> usize {
    let of = |wanted: Rows| {
        let found = plan.inputs.iter().zip(call).find(|(port, _)| plan.value(port.value).rows == wanted);
        found.and_then(|(port, tensor)| tensor.shape.get(port.token_axis(wanted)?).copied())
    };
    match kind {
        Rows::Batch => 1,
        Rows::Token => of(kind).unwrap_or(1),
        Rows::Past => of(kind).unwrap_or(0),
        Rows::Context => of(Rows::Past).unwrap_or(0) + of(Rows::Token).unwrap_or(1),
    }
}

/// What calls get of a batch that began at `began`, whose inputs took `laid_ns` to be laid end to end. `outputs` is emptied.
pub(crate) fn result(
    plan: &Plan,
    ports: &[TensorSpec],
    calls: &[&[Tensor]],
    outputs: &mut Vec<Vec<f32>>,
    began: Stamp,
    laid_ns: u64,
) -> BatchResult {
    let done = Stamp::now();
    let outputs = split(plan, ports, calls, outputs);
    let forward_ns = done.since(began).saturating_sub(laid_ns);
    BatchResult { outputs, preprocessing_ns: laid_ns, forward_ns, postprocessing_ns: done.elapsed() }
}

/// Splits the outputs among the calls: each gets its part of the memory that the executor wrote. `outputs` is emptied.
fn split(plan: &Plan, ports: &[TensorSpec], calls: &[&[Tensor]], outputs: &mut Vec<Vec<f32>>) -> Vec<Vec<Tensor>> {
    let written: SmallVec<[Bytes; 4]> = outputs.drain(..).map(bytes).collect();
    let mut at: SmallVec<[usize; 4]> = plan.outputs.iter().map(|_| 0).collect();
    let of = |call: &&[Tensor]| {
        let rows = rows_of(call);
        let tensor = |(place, (port, named)): (usize, (&PlanPort, &TensorSpec))| {
            let value = plan.value(port.value);
            let tokens = length(plan, call, value.rows);
            let size = 4 * rows * tokens * value.width;
            let range = at[place]..at[place] + size;
            at[place] = range.end;
            // an output that is not wanted is empty
            let data = if range.end <= written[place].len() { written[place].slice(range) } else { Bytes::new() };
            let mut shape = vec![rows];
            shape.extend(&port.features);
            if let Some(axis) = port.token_axis(value.rows) {
                shape.insert(axis, tokens);
            }
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
    elements.chunks_exact(kind.least_bytes()).filter(|element| element.iter().any(|byte| *byte != 0)).count()
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
