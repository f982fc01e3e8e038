//! Calls of a model: the check of their tensors against the model's ports, their size, and the result of several that ran as one batch.

use smallvec::SmallVec;

use lapwing_plan::EngineError;
use lapwing_plan::tensor::{Datatype, Tensor, TensorSpec};

/// The size of one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallWork {
    /// Sequences; rows where the model has none.
    pub rows: usize,
    /// Tokens of all sequences, masked-out tokens included; rows where the model has no sequences.
    pub executed: usize,
    /// Tokens that are not masked out.
    pub useful: usize,
    /// FLOPs of executed tokens, and of useful ones; `None` where the model has no plan.
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
    let bytes = elements.and_then(|elements| elements.checked_mul(tensor.datatype.bytes()));
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
            other => &whole[..other.bytes()],
        };
        let data = one.repeat(shape.iter().product()).into();
        Tensor { name: port.name.clone(), datatype: port.datatype, shape, data }
    };
    ports.iter().enumerate().map(tensor).collect()
}
