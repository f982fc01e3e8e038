//! Typed contents of an input (`InferTensorContents`) as little-endian bytes of its datatype.

use bytes::{BufMut, Bytes, BytesMut};

use super::messages::InferTensorContents;
use lapwing_plan::tensor::Datatype;

/// The bytes of the elements, from the field that belongs to the datatype; any other must be empty.
pub(crate) fn bytes(contents: &InferTensorContents, datatype: Datatype) -> Result<Bytes, String> {
    let field = field(datatype).ok_or_else(|| format!("{} comes in raw_input_contents only", datatype.name()))?;
    let held = held(contents);
    if let Some((other, _)) = held.iter().find(|(name, length)| *length > 0 && *name != field) {
        return Err(format!("{other} is given, but {} comes in {field}", datatype.name()));
    }
    let length = held.iter().find(|(name, _)| *name == field).map_or(0, |(_, length)| *length);
    let mut out = BytesMut::with_capacity(length.saturating_mul(datatype.bytes()));
    macro_rules! each {
        ($values:expr, $put:ident) => {
            $values.iter().for_each(|value| out.$put(*value))
        };
    }
    macro_rules! narrowed {
        ($values:expr, $type:ty, $put:ident) => {
            for (i, value) in $values.iter().enumerate() {
                let narrow = <$type>::try_from(*value).map_err(|_| format!("{field}[{i}]: {value} is no {}", datatype.name()))?;
                out.$put(narrow);
            }
        };
    }
    match datatype {
        Datatype::Bool => contents.bool_contents.iter().for_each(|value| out.put_u8(u8::from(*value))),
        Datatype::Uint8 => narrowed!(contents.uint_contents, u8, put_u8),
        Datatype::Uint16 => narrowed!(contents.uint_contents, u16, put_u16_le),
        Datatype::Uint32 => each!(contents.uint_contents, put_u32_le),
        Datatype::Uint64 => each!(contents.uint64_contents, put_u64_le),
        Datatype::Int8 => narrowed!(contents.int_contents, i8, put_i8),
        Datatype::Int16 => narrowed!(contents.int_contents, i16, put_i16_le),
        Datatype::Int32 => each!(contents.int_contents, put_i32_le),
        Datatype::Int64 => each!(contents.int64_contents, put_i64_le),
        Datatype::Fp32 => each!(contents.fp32_contents, put_f32_le),
        Datatype::Fp64 => each!(contents.fp64_contents, put_f64_le),
        Datatype::Fp16 | Datatype::Bf16 => {}
    }
    Ok(out.freeze())
}

/// The field that holds elements of a datatype; `None` for the two that have no field in the protocol.
const fn field(datatype: Datatype) -> Option<&'static str> {
    match datatype {
        Datatype::Bool => Some("bool_contents"),
        Datatype::Uint8 | Datatype::Uint16 | Datatype::Uint32 => Some("uint_contents"),
        Datatype::Uint64 => Some("uint64_contents"),
        Datatype::Int8 | Datatype::Int16 | Datatype::Int32 => Some("int_contents"),
        Datatype::Int64 => Some("int64_contents"),
        Datatype::Fp32 => Some("fp32_contents"),
        Datatype::Fp64 => Some("fp64_contents"),
        Datatype::Fp16 | Datatype::Bf16 => None,
    }
}

/// How many elements each field holds.
const fn held(contents: &InferTensorContents) -> [(&'static str, usize); 8] {
    [
        ("bool_contents", contents.bool_contents.len()),
        ("int_contents", contents.int_contents.len()),
        ("int64_contents", contents.int64_contents.len()),
        ("uint_contents", contents.uint_contents.len()),
        ("uint64_contents", contents.uint64_contents.len()),
        ("fp32_contents", contents.fp32_contents.len()),
        ("fp64_contents", contents.fp64_contents.len()),
        ("bytes_contents", contents.bytes_contents.len()),
    ]
}
