//! A tensor's elements as JSON: integers, true and false, and floats in the shortest form that reads back as the same.

use serde::ser::Error;
use serde::{Serialize, Serializer};

use lapwing_plan::tensor::{Datatype, Tensor};

/// Serializes a tensor's elements as a flat array. It fails for FP16 and BF16, and writes `null` for values that are not finite: check
/// with [`first_not_finite`] first.
#[derive(Debug)]
pub(crate) struct Elements<'a>(pub(crate) &'a Tensor);

impl Serialize for Elements<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let data = &self.0.data;
        macro_rules! each {
            ($type:ty, $bytes:literal) => {
                serializer.collect_seq(data.as_chunks::<$bytes>().0.iter().map(|c| <$type>::from_le_bytes(*c)))
            };
        }
        match self.0.datatype {
            Datatype::Bool => serializer.collect_seq(data.iter().map(|b| *b != 0)),
            Datatype::Uint8 => each!(u8, 1),
            Datatype::Uint16 => each!(u16, 2),
            Datatype::Uint32 => each!(u32, 4),
            Datatype::Uint64 => each!(u64, 8),
            Datatype::Int8 => each!(i8, 1),
            Datatype::Int16 => each!(i16, 2),
            Datatype::Int32 => each!(i32, 4),
            Datatype::Int64 => each!(i64, 8),
            Datatype::Fp32 => each!(f32, 4),
            Datatype::Fp64 => each!(f64, 8),
            half @ (Datatype::Fp16 | Datatype::Bf16) => {
                Err(S::Error::custom(format!("{} goes as binary data only", half.name())))
            }
        }
    }
}

/// The index and value of the first element that JSON cannot hold.
pub(crate) fn first_not_finite(tensor: &Tensor) -> Option<(usize, f64)> {
    let data = &tensor.data;
    match tensor.datatype {
        Datatype::Fp32 => {
            let mut values = data.as_chunks::<4>().0.iter().map(|c| f64::from(f32::from_le_bytes(*c))).enumerate();
            values.find(|(_, value)| !value.is_finite())
        }
        Datatype::Fp64 => {
            let mut values = data.as_chunks::<8>().0.iter().map(|c| f64::from_le_bytes(*c)).enumerate();
            values.find(|(_, value)| !value.is_finite())
        }
        _ => None,
    }
}
