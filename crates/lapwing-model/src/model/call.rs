//! One call of a model: its tensors put in order and checked against the model's ports, and calls that are made up.

use lapwing_onnx::EngineError;
use lapwing_onnx::tensor::{Datatype, Tensor, TensorSpec};
use lapwing_plan::plan::{Plan, Rows};

/// Puts a call's tensors in the order of the ports, and checks each against its port. `may_be_empty` says of which input which axis may
/// have no elements.
pub(crate) fn order(
    ports: &[TensorSpec],
    tensors: &mut [Tensor],
    may_be_empty: impl Fn(usize, usize) -> bool,
) -> Result<(), EngineError> {
    for (at, port) in ports.iter().enumerate() {
        let Some(found) = tensors.iter().skip(at).position(|tensor| tensor.name == port.name) else {
            let got: Vec<_> = tensors.iter().map(|tensor| tensor.name.as_str()).collect();
            return Err(EngineError::input(
                &port.name,
                format!("is an input of the model, but is missing; the call has {got:?}"),
            ));
        };
        tensors.swap(at, at + found);
        fits(port, &tensors[at], |axis| may_be_empty(at, axis))?;
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

fn fits(port: &TensorSpec, tensor: &Tensor, may_be_empty: impl Fn(usize) -> bool) -> Result<(), EngineError> {
    let fails = |reason: String| Err(EngineError::input(&tensor.name, reason));
    if tensor.datatype != port.datatype {
        return fails(format!("expected {}, got {}", port.datatype.name(), tensor.datatype.name()));
    }
    let is_fit =
        |(axis, (want, got)): (usize, (&Option<usize>, &usize))| want.map_or(*got > 0 || may_be_empty(axis), |want| want == *got);
    if tensor.shape.len() != port.shape.len() || !port.shape.iter().zip(&tensor.shape).enumerate().all(is_fit) {
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

/// The lengths of a call that is made up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallLengths {
    /// Rows: open first axes.
    pub(crate) rows: usize,
    /// Tokens: other open axes.
    pub(crate) length: usize,
    /// Tokens of the past, of a model with a cache.
    pub(crate) past: usize,
}

impl CallLengths {
    /// The length of an open axis of the input at `at`.
    pub(crate) fn of_axis(self, plan: Option<&Plan>, at: usize, axis: usize) -> usize {
        match plan.map(|plan| plan.value(plan.inputs[at].value).rows) {
            _ if axis == 0 => self.rows,
            Some(Rows::Past) => self.past,
            Some(Rows::Context) => self.past + self.length,
            _ => self.length,
        }
    }
}

/// A synthetic call: floating-point numbers are 1, integers are 0, and the elements of the mask are 1. An open first axis has
/// length `rows`, other open axes have `length`, and there is no past.
pub(crate) fn synthetic_call(ports: &[TensorSpec], plan: Option<&Plan>, rows: usize, length: usize) -> Vec<Tensor> {
    let (mask, lengths) = (plan.and_then(Plan::mask), CallLengths { rows, length, past: 0 });
    let tensor = |(at, port): (usize, &TensorSpec)| {
        let open = |(axis, fixed): (usize, &Option<usize>)| fixed.unwrap_or_else(|| lengths.of_axis(plan, at, axis));
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
