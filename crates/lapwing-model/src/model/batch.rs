//! Calls of a model, and the batch that several of them become: checks their tensors against the model's ports and one another,
//! concatenates them without padding in the buffers that the executor reads, and makes what it wrote the calls' outputs, without another
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

/// Puts a call's tensors in the order of the ports, and checks each against its port.
pub(crate) fn order(ports: &[TensorSpec], tensors: &mut [Tensor]) -> Result<(), EngineError> {
    for (at, port) in ports.iter().enumerate() {
        let Some(found) = tensors.iter().skip(at).position(|tensor| tensor.name == port.name) else {
            let got: Vec<_> = tensors.iter().map(|tensor| tensor.name.as_str()).collect();
            return Err(EngineError::input(
                &port.name,
                format!("is an input of the model, but is missing; the call has {got:?}"),
            ));
        };
        tensors.swap(at, at + found);
        fits(port, &tensors[at])?;
    }
    if let Some(more) = tensors.get(ports.len()) {
        let known: Vec<_> = ports.iter().map(|port| port.name.as_str()).collect();
        return Err(EngineError::input(
            &more.name,
            format!("is no input of the model, or is repeated; its inputs are {known:?}"),
        ));
    }
    Ok(())
}

fn fits(port: &TensorSpec, tensor: &Tensor) -> Result<(), EngineError> {
    let fails = |reason: String| Err(EngineError::input(&tensor.name, reason));
    if tensor.datatype != port.datatype {
        return fails(format!("expected {}, got {}", port.datatype.name(), tensor.datatype.name()));
    }
    let is_fit = |(want, got): (&Option<usize>, &usize)| want.map_or(*got > 0, |want| want == *got);
    if tensor.shape.len() != port.shape.len() || !port.shape.iter().zip(&tensor.shape).all(is_fit) {
        return fails(format!("expected shape {}, got {:?}", shown(&port.shape), tensor.shape));
    }
    let elements = tensor.shape.iter().try_fold(1_usize, |product, length| product.checked_mul(*length));
    let Some(width) = tensor.datatype.bytes() else {
        let fit = tensor.datatype.check(elements.unwrap_or(usize::MAX), &tensor.data);
        return fit.or_else(|reason| fails(format!("shape {:?}: {reason}", tensor.shape)));
    };
    let bytes = elements.and_then(|elements| elements.checked_mul(width));
    if bytes != Some(tensor.data.len()) {
        let expected = bytes.map_or("more bytes than can be".to_owned(), |bytes| format!("{bytes} bytes"));
        return fails(format!("shape {:?} asks for {expected}, got {}", tensor.shape, tensor.data.len()));
    }
    Ok(())
}

/// `[-1, 64]`, as the protocol writes it.
fn shown(shape: &[Option<usize>]) -> String {
    let lengths: Vec<String> = shape.iter().map(|length| length.map_or("-1".to_owned(), |length| length.to_string())).collect();
    format!("[{}]", lengths.join(", "))
}

/// The size of a call to a model without a plan: the rows of its first tensor.
pub(crate) fn rows(tensors: &[Tensor]) -> CallWork {
    let rows = tensors.first().and_then(|tensor| tensor.shape.first().copied()).unwrap_or(1);
    CallWork { rows, executed: rows, useful: rows, flops: None }
}

/// A synthetic call: floating-point numbers are 1, integers are 0, and the elements of the mask are 1. An open first axis has
/// length `rows`, other open axes have `length`.
pub(crate) fn synthetic_call(ports: &[TensorSpec], mask: Option<usize>, rows: usize, length: usize) -> Vec<Tensor> {
    let tensor = |(at, port): (usize, &TensorSpec)| {
        let open = |(axis, fixed): (usize, &Option<usize>)| fixed.unwrap_or(if axis == 0 { rows } else { length });
        let shape: Vec<usize> = port.shape.iter().enumerate().map(open).collect();
        let whole = [u8::from(mask == Some(at)), 0, 0, 0, 0, 0, 0, 0];
        let one: &[u8] = match port.datatype {
            Datatype::Fp16 => &[0, 0x3c],
            Datatype::Bf16 => &[0x80, 0x3f],
            Datatype::Fp32 => &[0, 0, 0x80, 0x3f],
            Datatype::Fp64 => &[0, 0, 0, 0, 0, 0, 0xf0, 0x3f],
            // an empty string is its length
            other => &whole[..other.least_bytes()],
        };
        let data = one.repeat(shape.iter().product()).into();
        Tensor { name: port.name.clone(), datatype: port.datatype, shape, data }
    };
    ports.iter().enumerate().map(tensor).collect()
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
    /// Where the sequences of `calls` begin; their inputs stay where they are. A GPU reads them there.
    #[cfg(feature = "cuda")]
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
            Some(mask) => {
                BatchSize::of(mask.data.chunks(length * mask.datatype.least_bytes()).map(|row| not_zero(row, mask.datatype)))
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
