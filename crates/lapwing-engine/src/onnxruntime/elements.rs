//! Tensors as ONNX Runtime has them: inputs are read where they lie if they are aligned, outputs stay in the memory that was written.

use std::fmt::Debug;

use bytemuck::Pod;
use bytes::Bytes;
use half::slice::{HalfBitsSliceExt, HalfFloatSliceExt};
use half::vec::HalfBitsVecExt;
use half::{bf16, f16};
use ort::session::SessionInputValue;
use ort::value::{DynValue, TensorRef};
use ort::value::{PrimitiveTensorElementType, TensorElementType};

use lapwing_onnx::tensor::{Datatype, Tensor, slices, text_data};

/// The protocol's type for one of ONNX Runtime's; `None` if there is none.
pub(crate) const fn datatype(kind: TensorElementType) -> Option<Datatype> {
    Some(match kind {
        TensorElementType::Bool => Datatype::Bool,
        TensorElementType::Uint8 => Datatype::Uint8,
        TensorElementType::Uint16 => Datatype::Uint16,
        TensorElementType::Uint32 => Datatype::Uint32,
        TensorElementType::Uint64 => Datatype::Uint64,
        TensorElementType::Int8 => Datatype::Int8,
        TensorElementType::Int16 => Datatype::Int16,
        TensorElementType::Int32 => Datatype::Int32,
        TensorElementType::Int64 => Datatype::Int64,
        TensorElementType::Float16 => Datatype::Fp16,
        TensorElementType::Bfloat16 => Datatype::Bf16,
        TensorElementType::Float32 => Datatype::Fp32,
        TensorElementType::Float64 => Datatype::Fp64,
        TensorElementType::String => Datatype::Bytes,
        _ => return None,
    })
}

/// Numbers of half precision, which are their bits for everyone else.
macro_rules! halves {
    ($tensor:ident, $kind:ty) => {{
        let shape = &$tensor.shape[..];
        match bytemuck::try_cast_slice::<u8, u16>(&$tensor.data) {
            Ok(bits) => Ok(TensorRef::from_array_view((shape, bits.reinterpret_cast::<$kind>()))?.into()),
            Err(_) => {
                let bits = copied::<u16>($tensor);
                Ok(ort::value::Tensor::from_array((shape.to_vec(), bits.reinterpret_into::<$kind>()))?.into())
            }
        }
    }};
}

/// An input as ONNX Runtime reads it.
pub(crate) fn input(tensor: &Tensor) -> ort::Result<SessionInputValue<'_>> {
    match tensor.datatype {
        Datatype::Bool => booleans(tensor),
        Datatype::Uint8 => numbers::<u8>(tensor),
        Datatype::Uint16 => numbers::<u16>(tensor),
        Datatype::Uint32 => numbers::<u32>(tensor),
        Datatype::Uint64 => numbers::<u64>(tensor),
        Datatype::Int8 => numbers::<i8>(tensor),
        Datatype::Int16 => numbers::<i16>(tensor),
        Datatype::Int32 => numbers::<i32>(tensor),
        Datatype::Int64 => numbers::<i64>(tensor),
        Datatype::Fp16 => halves!(tensor, f16),
        Datatype::Bf16 => halves!(tensor, bf16),
        Datatype::Fp32 => numbers::<f32>(tensor),
        Datatype::Fp64 => numbers::<f64>(tensor),
        Datatype::Bytes => strings(tensor),
    }
}

fn numbers<T: PrimitiveTensorElementType + Pod + Debug>(tensor: &Tensor) -> ort::Result<SessionInputValue<'_>> {
    let shape = &tensor.shape[..];
    match bytemuck::try_cast_slice::<u8, T>(&tensor.data) {
        Ok(elements) => Ok(TensorRef::from_array_view((shape, elements))?.into()),
        // a tensor may begin anywhere in a request's body
        Err(_) => Ok(ort::value::Tensor::from_array((shape.to_vec(), copied::<T>(tensor)))?.into()),
    }
}

/// A tensor's elements where they are aligned.
fn copied<T: Pod>(tensor: &Tensor) -> Vec<T> {
    tensor.data.chunks_exact(size_of::<T>()).map(bytemuck::pod_read_unaligned).collect()
}

/// Any byte but 0 is true; for ONNX Runtime it has to be 1.
fn booleans(tensor: &Tensor) -> ort::Result<SessionInputValue<'_>> {
    let shape = &tensor.shape[..];
    match bytemuck::checked::try_cast_slice::<u8, bool>(&tensor.data) {
        Ok(elements) => Ok(TensorRef::from_array_view((shape, elements))?.into()),
        Err(_) => {
            let elements: Vec<bool> = tensor.data.iter().map(|byte| *byte != 0).collect();
            Ok(ort::value::Tensor::from_array((shape.to_vec(), elements))?.into())
        }
    }
}

/// ONNX Runtime's strings are UTF-8, and end at their first NUL: others are refused.
fn strings(tensor: &Tensor) -> ort::Result<SessionInputValue<'_>> {
    let refused =
        |reason: String| ort::Error::new_with_code(ort::ErrorCode::InvalidArgument, format!("{}: {reason}", tensor.name));
    let slices = slices(&tensor.data, tensor.shape.iter().product()).enumerate();
    let texts = slices.map(|(at, slice)| match std::str::from_utf8(slice.map_err(refused)?) {
        Ok(text) if !text.contains('\0') => Ok(text.to_owned()),
        Ok(_) => Err(refused(format!("string {at} contains a NUL, at which ONNX Runtime ends it"))),
        Err(_) => Err(refused(format!("string {at} is not UTF-8"))),
    });
    let texts = texts.collect::<ort::Result<Vec<_>>>()?;
    Ok(ort::value::Tensor::from_string_array((tensor.shape.clone(), texts.as_slice()))?.into())
}

/// An output as a tensor: in the same memory, but for strings.
///
/// # Errors
///
/// What it is, if it is no tensor, or has elements of a type that is not the protocol's.
pub(crate) fn output(name: &str, value: DynValue) -> Result<Tensor, String> {
    let kind = value.dtype().tensor_type().ok_or_else(|| format!("is a {}, no tensor", value.dtype()))?;
    let datatype = datatype(kind).ok_or_else(|| format!("has elements of type {kind}"))?;
    let lengths = value.dtype().tensor_shape().map(|shape| shape.iter().map(|length| usize::try_from(*length).unwrap_or(0)));
    let shape = lengths.map(Iterator::collect).unwrap_or_default();
    if datatype == Datatype::Bytes {
        let (_, texts) = value.try_extract_strings().map_err(|e| e.to_string())?;
        return Ok(Tensor { name: name.to_owned(), datatype, shape, data: text_data(&texts) });
    }
    bytes(&value, datatype).map_err(|e| e.to_string())?;
    Ok(Tensor { name: name.to_owned(), datatype, shape, data: Bytes::from_owner(Written { value, datatype }) })
}

/// The memory that ONNX Runtime wrote, for as long as the bytes live.
struct Written {
    value: DynValue,
    datatype: Datatype,
}

impl AsRef<[u8]> for Written {
    fn as_ref(&self) -> &[u8] {
        // it was read before, with success
        bytes(&self.value, self.datatype).unwrap_or_default()
    }
}

fn bytes(value: &DynValue, datatype: Datatype) -> ort::Result<&[u8]> {
    fn of<T: PrimitiveTensorElementType + bytemuck::NoUninit>(value: &DynValue) -> ort::Result<&[u8]> {
        Ok(bytemuck::cast_slice(value.try_extract_tensor::<T>()?.1))
    }
    match datatype {
        Datatype::Bool => of::<bool>(value),
        Datatype::Uint8 => of::<u8>(value),
        Datatype::Uint16 => of::<u16>(value),
        Datatype::Uint32 => of::<u32>(value),
        Datatype::Uint64 => of::<u64>(value),
        Datatype::Int8 => of::<i8>(value),
        Datatype::Int16 => of::<i16>(value),
        Datatype::Int32 => of::<i32>(value),
        Datatype::Int64 => of::<i64>(value),
        Datatype::Fp16 => Ok(bytemuck::cast_slice(value.try_extract_tensor::<f16>()?.1.reinterpret_cast())),
        Datatype::Bf16 => Ok(bytemuck::cast_slice(value.try_extract_tensor::<bf16>()?.1.reinterpret_cast())),
        Datatype::Fp32 => of::<f32>(value),
        Datatype::Fp64 => of::<f64>(value),
        Datatype::Bytes => Err(ort::Error::new("strings have no memory of their own form")),
    }
}
