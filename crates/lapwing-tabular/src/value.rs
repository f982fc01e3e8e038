//! A value between two operators: its shape, and its elements in row-major order, of one of the six types that classical models
//! compute with. Every value has at most [`MOST_ELEMENTS`].

use bytes::Bytes;
use lapwing_onnx::EngineError;
use lapwing_onnx::messages::TensorProto;
use lapwing_onnx::messages::tensor_proto::DataType;
use lapwing_onnx::tensor::{Datatype, Tensor};

use crate::attributes::Reason;

/// The most elements of a value: a model that makes larger ones is refused, and a call that asks for them fails.
pub(crate) const MOST_ELEMENTS: usize = 1 << 24;
/// The most axes of a value.
pub(crate) const MOST_AXES: usize = 8;

/// The elements of a value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Elements {
    F32(Vec<f32>),
    F64(Vec<f64>),
    I64(Vec<i64>),
    I32(Vec<i32>),
    Bool(Vec<bool>),
    /// Strings, which need not be UTF-8.
    Text(Vec<Bytes>),
}

/// Runs `$body` with `$items` bound to the elements' vector, whatever their type.
macro_rules! each {
    ($elements:expr, $items:ident => $body:expr) => {
        match $elements {
            $crate::value::Elements::F32($items) => $body,
            $crate::value::Elements::F64($items) => $body,
            $crate::value::Elements::I64($items) => $body,
            $crate::value::Elements::I32($items) => $body,
            $crate::value::Elements::Bool($items) => $body,
            $crate::value::Elements::Text($items) => $body,
        }
    };
}

/// Maps the elements' vector to another of the same type.
macro_rules! map_each {
    ($elements:expr, $items:ident => $body:expr) => {
        match $elements {
            $crate::value::Elements::F32($items) => $crate::value::Elements::F32($body),
            $crate::value::Elements::F64($items) => $crate::value::Elements::F64($body),
            $crate::value::Elements::I64($items) => $crate::value::Elements::I64($body),
            $crate::value::Elements::I32($items) => $crate::value::Elements::I32($body),
            $crate::value::Elements::Bool($items) => $crate::value::Elements::Bool($body),
            $crate::value::Elements::Text($items) => $crate::value::Elements::Text($body),
        }
    };
}

pub(crate) use map_each;

impl Elements {
    pub(crate) fn len(&self) -> usize {
        each!(self, items => items.len())
    }

    pub(crate) const fn datatype(&self) -> Datatype {
        match self {
            Self::F32(_) => Datatype::Fp32,
            Self::F64(_) => Datatype::Fp64,
            Self::I64(_) => Datatype::Int64,
            Self::I32(_) => Datatype::Int32,
            Self::Bool(_) => Datatype::Bool,
            Self::Text(_) => Datatype::Bytes,
        }
    }
}

/// A shape and the elements in it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Value {
    pub(crate) shape: Vec<usize>,
    pub(crate) elements: Elements,
}

/// The number of elements of a shape. Axes of length 0 do not lift the bound of the others, over which operators go, too.
pub(crate) fn count(shape: &[usize]) -> Result<usize, Reason> {
    if shape.len() > MOST_AXES {
        return Err(format!("a value has {} axes; the bound is {MOST_AXES}", shape.len()));
    }
    let largest = shape.iter().try_fold(1_usize, |product, length| product.checked_mul((*length).max(1)));
    largest
        .filter(|count| *count <= MOST_ELEMENTS)
        .map(|_| shape.iter().product())
        .ok_or_else(|| format!("a value of shape {shape:?} has more than {MOST_ELEMENTS} elements, which is the bound"))
}

impl Value {
    /// A value whose elements fill its shape.
    pub(crate) fn new(shape: &[usize], elements: Elements) -> Result<Self, Reason> {
        let wanted = count(shape)?;
        if elements.len() != wanted {
            return Err(format!("{} elements do not fill the shape {shape:?}", elements.len()));
        }
        Ok(Self { shape: shape.to_vec(), elements })
    }

    /// A matrix of single precision.
    pub(crate) fn matrix(rows: usize, columns: usize, numbers: Vec<f32>) -> Result<Self, Reason> {
        Self::new(&[rows, columns], Elements::F32(numbers))
    }

    /// Rows and columns as the operators of `ai.onnx.ml` read them: a vector is one row.
    pub(crate) fn rows_and_columns(&self) -> Result<(usize, usize), Reason> {
        match *self.shape {
            [columns] => Ok((1, columns)),
            [rows, columns] => Ok((rows, columns)),
            _ => Err(format!("reads a matrix, got the shape {:?}", self.shape)),
        }
    }

    /// The elements as single precision, rounded where they are of another number type.
    pub(crate) fn to_f32(&self) -> Result<std::borrow::Cow<'_, [f32]>, Reason> {
        Ok(match &self.elements {
            Elements::F32(items) => items.into(),
            Elements::F64(items) => items.iter().map(|x| *x as f32).collect::<Vec<_>>().into(),
            Elements::I64(items) => items.iter().map(|x| *x as f32).collect::<Vec<_>>().into(),
            Elements::I32(items) => items.iter().map(|x| *x as f32).collect::<Vec<_>>().into(),
            other => return Err(format!("reads numbers, got {}", other.datatype().name())),
        })
    }

    pub(crate) fn f32s(&self) -> Result<&[f32], Reason> {
        match &self.elements {
            Elements::F32(items) => Ok(items),
            other => Err(format!("reads FP32, got {}", other.datatype().name())),
        }
    }

    /// Whole numbers of either width.
    pub(crate) fn i64s(&self) -> Result<Vec<i64>, Reason> {
        match &self.elements {
            Elements::I64(items) => Ok(items.clone()),
            Elements::I32(items) => Ok(items.iter().map(|x| i64::from(*x)).collect()),
            other => Err(format!("reads whole numbers, got {}", other.datatype().name())),
        }
    }

    /// Bytes that the elements take, without those of strings.
    pub(crate) fn bytes(&self) -> u64 {
        let width = match self.elements {
            Elements::Bool(_) => 1,
            Elements::F32(_) | Elements::I32(_) => 4,
            _ => 8,
        };
        self.elements.len() as u64 * width
    }
}

/// A number without its fraction; the smallest whole number where it is not one of 64 bits, as x86 converts.
pub(crate) fn truncated(number: f64) -> i64 {
    const LIMIT: f64 = 9_223_372_036_854_775_808.0;
    if (-LIMIT..LIMIT).contains(&number) { number as i64 } else { i64::MIN }
}

/// Little-endian elements of a fixed width.
macro_rules! decoded {
    ($type:ty, $width:literal, $data:expr) => {
        $data.as_chunks::<$width>().0.iter().map(|bytes| <$type>::from_le_bytes(*bytes)).collect()
    };
}

/// Reads an initializer, or the value of an attribute.
pub(crate) fn from_proto(tensor: &TensorProto) -> Result<Value, Reason> {
    if tensor.data_location == Some(1) {
        return Err(format!("the tensor {} lies in another file", tensor.name));
    }
    let shape: Option<Vec<usize>> = tensor.dims.iter().map(|length| usize::try_from(*length).ok()).collect();
    let shape = shape.ok_or_else(|| format!("the tensor {} has the shape {:?}", tensor.name, tensor.dims))?;
    let raw = &tensor.raw_data;
    let elements = match DataType::try_from(tensor.data_type) {
        Ok(DataType::Float) if raw.is_empty() => Elements::F32(tensor.float_data.clone()),
        Ok(DataType::Float) => Elements::F32(decoded!(f32, 4, raw)),
        Ok(DataType::Double) if raw.is_empty() => Elements::F64(tensor.double_data.clone()),
        Ok(DataType::Double) => Elements::F64(decoded!(f64, 8, raw)),
        Ok(DataType::Int64) if raw.is_empty() => Elements::I64(tensor.int64_data.clone()),
        Ok(DataType::Int64) => Elements::I64(decoded!(i64, 8, raw)),
        Ok(DataType::Int32) if raw.is_empty() => Elements::I32(tensor.int32_data.clone()),
        Ok(DataType::Int32) => Elements::I32(decoded!(i32, 4, raw)),
        Ok(DataType::Bool) if raw.is_empty() => Elements::Bool(tensor.int32_data.iter().map(|x| *x != 0).collect()),
        Ok(DataType::Bool) => Elements::Bool(raw.iter().map(|x| *x != 0).collect()),
        Ok(DataType::String) => Elements::Text(tensor.string_data.iter().map(|text| Bytes::copy_from_slice(text)).collect()),
        _ => return Err(format!("the tensor {} has the element type {} of ONNX", tensor.name, tensor.data_type)),
    };
    Value::new(&shape, elements).map_err(|reason| format!("the tensor {}: {reason}", tensor.name))
}

/// Reads a tensor of a call.
///
/// # Errors
///
/// [`EngineError::Input`] names the tensor whose bytes do not fill its shape.
pub(crate) fn from_tensor(tensor: &Tensor) -> Result<Value, EngineError> {
    let data = &tensor.data;
    let elements = match tensor.datatype {
        Datatype::Fp32 => Elements::F32(decoded!(f32, 4, data)),
        Datatype::Fp64 => Elements::F64(decoded!(f64, 8, data)),
        Datatype::Int64 => Elements::I64(decoded!(i64, 8, data)),
        Datatype::Int32 => Elements::I32(decoded!(i32, 4, data)),
        Datatype::Bool => Elements::Bool(data.iter().map(|x| *x != 0).collect()),
        Datatype::Bytes => {
            let texts = count(&tensor.shape).and_then(|wanted| lapwing_onnx::tensor::texts(data, wanted));
            Elements::Text(texts.map_err(|reason| EngineError::input(&tensor.name, reason))?)
        }
        other => return Err(EngineError::input(&tensor.name, format!("{} is not computed with", other.name()))),
    };
    let width = tensor.datatype.bytes();
    if width.is_some_and(|width| !data.len().is_multiple_of(width)) {
        return Err(EngineError::input(&tensor.name, format!("{} bytes are no whole number of elements", data.len())));
    }
    Value::new(&tensor.shape, elements).map_err(|reason| EngineError::input(&tensor.name, reason))
}

/// The tensor of an answer.
pub(crate) fn into_tensor(name: &str, value: &Value) -> Tensor {
    macro_rules! encoded {
        ($items:expr) => {
            $items.iter().flat_map(|item| item.to_le_bytes()).collect::<Vec<u8>>().into()
        };
    }
    let data = match &value.elements {
        Elements::F32(items) => encoded!(items),
        Elements::F64(items) => encoded!(items),
        Elements::I64(items) => encoded!(items),
        Elements::I32(items) => encoded!(items),
        Elements::Bool(items) => items.iter().map(|x| u8::from(*x)).collect::<Vec<u8>>().into(),
        Elements::Text(items) => lapwing_onnx::tensor::text_data(items),
    };
    Tensor { name: name.to_owned(), datatype: value.elements.datatype(), shape: value.shape.clone(), data }
}
