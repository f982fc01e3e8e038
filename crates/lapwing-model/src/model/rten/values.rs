//! Tensors as rten has them: whole numbers and truths in 32 bits, numbers of half and double precision in single. A value that does not
//! fit is an error that names it.

use ::rten::{Value, ValueOrView, ValueView};
use bytemuck::Pod;
use bytes::Bytes;
use half::{bf16, f16};
use rten_tensor::{AsView, Layout, Tensor as Values};

use super::super::ports::Ports;
use lapwing_onnx::EngineError;
use lapwing_onnx::tensor::{Datatype, Tensor, TensorSpec};

/// Checks that rten has the types of a model's inputs and outputs.
///
/// # Errors
///
/// [`EngineError::Model`] names the port and its type.
pub(crate) fn check(ports: &Ports) -> Result<(), EngineError> {
    let inputs = ports.inputs.iter().map(|port| ("input", port));
    for (what, port) in inputs.chain(ports.outputs.iter().map(|port| ("output", port))) {
        if matches!(port.datatype, Datatype::Bytes | Datatype::Uint32 | Datatype::Uint64) {
            let what = format!("{what} {}", port.name);
            return Err(EngineError::part(what, format!("rten has no elements of type {}", port.datatype.name())));
        }
    }
    Ok(())
}

/// An input, where it lies if it is aligned and of a type that rten has.
///
/// # Errors
///
/// [`EngineError::Input`] names the element that does not fit.
pub(crate) fn input(tensor: &Tensor) -> Result<ValueOrView<'_>, EngineError> {
    let shape = &tensor.shape[..];
    Ok(match tensor.datatype {
        Datatype::Fp32 => match aligned::<f32>(tensor) {
            Some(view) => ValueView::FloatTensor(rten_tensor::TensorView::from_data(shape, view)).into(),
            None => owned(tensor, elements::<f32>(tensor).collect()),
        },
        Datatype::Int32 => match aligned::<i32>(tensor) {
            Some(view) => ValueView::Int32Tensor(rten_tensor::TensorView::from_data(shape, view)).into(),
            None => owned(tensor, elements::<i32>(tensor).collect()),
        },
        Datatype::Int8 => {
            ValueView::Int8Tensor(rten_tensor::TensorView::from_data(shape, bytemuck::cast_slice(&tensor.data))).into()
        }
        Datatype::Uint8 => ValueView::UInt8Tensor(rten_tensor::TensorView::from_data(shape, &tensor.data[..])).into(),
        Datatype::Bool => owned(tensor, tensor.data.iter().map(|byte| i32::from(*byte != 0)).collect()),
        Datatype::Int16 => owned(tensor, elements::<i16>(tensor).map(i32::from).collect()),
        Datatype::Uint16 => owned(tensor, elements::<u16>(tensor).map(i32::from).collect()),
        Datatype::Int64 => {
            let whole = |(at, x): (usize, i64)| {
                i32::try_from(x).map_err(|_| refused(tensor, at, &x.to_string(), "rten holds whole numbers of 64 bits in 32"))
            };
            owned(tensor, elements::<i64>(tensor).enumerate().map(whole).collect::<Result<Vec<i32>, _>>()?)
        }
        Datatype::Fp16 => owned(tensor, elements::<u16>(tensor).map(|bits| f16::from_bits(bits).to_f32()).collect()),
        Datatype::Bf16 => owned(tensor, elements::<u16>(tensor).map(|bits| bf16::from_bits(bits).to_f32()).collect()),
        Datatype::Fp64 => {
            let single = |(at, x): (usize, f64)| {
                let single = x as f32;
                let is_beyond = x.is_finite() && single.is_infinite();
                if is_beyond { Err(refused(tensor, at, &x.to_string(), "rten holds it in single precision")) } else { Ok(single) }
            };
            owned(tensor, elements::<f64>(tensor).enumerate().map(single).collect::<Result<Vec<f32>, _>>()?)
        }
        other @ (Datatype::Bytes | Datatype::Uint32 | Datatype::Uint64) => {
            return Err(EngineError::input(&tensor.name, format!("rten has no elements of type {}", other.name())));
        }
    })
}

fn refused(tensor: &Tensor, at: usize, value: &str, why: &str) -> EngineError {
    EngineError::input(&tensor.name, format!("element {at} of {:?} is {value}, and {why}", tensor.shape))
}

fn aligned<T: Pod>(tensor: &Tensor) -> Option<&[T]> {
    bytemuck::try_cast_slice(&tensor.data).ok()
}

/// The elements, wherever they begin.
fn elements<T: Pod>(tensor: &Tensor) -> impl Iterator<Item = T> + '_ {
    tensor.data.chunks_exact(size_of::<T>()).map(bytemuck::pod_read_unaligned)
}

fn owned<'a, T>(tensor: &Tensor, data: Vec<T>) -> ValueOrView<'a>
where
    Value: From<Values<T>>,
{
    ValueOrView::Value(Values::from_data(&tensor.shape[..], data).into())
}

/// An output in the type that the file gives it.
///
/// # Errors
///
/// What rten made, if it is of another kind, or may be beyond what it holds.
pub(crate) fn output(port: &TensorSpec, value: Value) -> Result<Tensor, String> {
    let shape = value.shape().to_vec();
    let made = value.dtype();
    let data = match (port.datatype, value) {
        (Datatype::Fp32, Value::FloatTensor(t)) => written(t.into_data()),
        (Datatype::Int32, Value::Int32Tensor(t)) => written(t.into_data()),
        (Datatype::Int8, Value::Int8Tensor(t)) => written(t.into_data()),
        (Datatype::Uint8, Value::UInt8Tensor(t)) => Bytes::from(t.into_data()),
        (Datatype::Int64, Value::Int32Tensor(t)) => mapped(&t, whole)?,
        (Datatype::Bool, Value::Int32Tensor(t)) => mapped(&t, |x: i32| Ok(u8::from(x != 0)))?,
        (Datatype::Int16, Value::Int32Tensor(t)) => mapped(&t, |x: i32| i16::try_from(x).map_err(|_| beyond(x)))?,
        (Datatype::Uint16, Value::Int32Tensor(t)) => mapped(&t, |x: i32| u16::try_from(x).map_err(|_| beyond(x)))?,
        (Datatype::Fp64, Value::FloatTensor(t)) => mapped(&t, |x: f32| Ok(f64::from(x)))?,
        (Datatype::Fp16, Value::FloatTensor(t)) => mapped(&t, |x: f32| Ok(f16::from_f32(x).to_bits()))?,
        (Datatype::Bf16, Value::FloatTensor(t)) => mapped(&t, |x: f32| Ok(bf16::from_f32(x).to_bits()))?,
        (datatype, _) => return Err(format!("is {} in the file, and {made} in rten", datatype.name())),
    };
    Ok(Tensor { name: port.name.clone(), datatype: port.datatype, shape, data })
}

/// rten's conversions end at the limits of 32 bits: a number there may be another.
fn whole(x: i32) -> Result<i64, String> {
    if x == i32::MAX || x == i32::MIN { Err(beyond(x)) } else { Ok(i64::from(x)) }
}

fn beyond(x: i32) -> String {
    format!("has the value {x}, which may not be what the file computes: rten holds whole numbers in 32 bits")
}

fn mapped<T: Copy, U: Pod + Send>(tensor: &Values<T>, map: impl Fn(T) -> Result<U, String>) -> Result<Bytes, String> {
    Ok(written(tensor.iter().map(|x| map(*x)).collect::<Result<Vec<U>, _>>()?))
}

/// The memory that rten wrote, for as long as the bytes live.
fn written<T: Pod + Send + 'static>(elements: Vec<T>) -> Bytes {
    struct Written<T>(Vec<T>);
    impl<T: Pod> AsRef<[u8]> for Written<T> {
        fn as_ref(&self) -> &[u8] {
            bytemuck::cast_slice(&self.0)
        }
    }
    Bytes::from_owner(Written(elements))
}
