//! Constants of a file: read from its messages or from the files beside it, and made anew where nodes compute with them.

use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use bytes::Bytes;
use half::{bf16, f16};

use crate::messages::TensorProto;
use crate::messages::tensor_proto::DataType;
use crate::shaped::{Constant, ShapedNode};
use crate::sizes;
use crate::tensor::{Datatype, text_data};

/// The type of elements for ONNX's number of it; `None` for those that no call can have.
pub(crate) fn datatype(number: i32) -> Option<Datatype> {
    Some(match DataType::try_from(number).ok()? {
        DataType::Bool => Datatype::Bool,
        DataType::Uint8 => Datatype::Uint8,
        DataType::Uint16 => Datatype::Uint16,
        DataType::Uint32 => Datatype::Uint32,
        DataType::Uint64 => Datatype::Uint64,
        DataType::Int8 => Datatype::Int8,
        DataType::Int16 => Datatype::Int16,
        DataType::Int32 => Datatype::Int32,
        DataType::Int64 => Datatype::Int64,
        DataType::Float16 => Datatype::Fp16,
        DataType::Bfloat16 => Datatype::Bf16,
        DataType::Float => Datatype::Fp32,
        DataType::Double => Datatype::Fp64,
        DataType::String => Datatype::Bytes,
        _ => return None,
    })
}

/// Whether numbers of this type have fractions.
pub(crate) const fn is_float(kind: Datatype) -> bool {
    matches!(kind, Datatype::Fp16 | Datatype::Bf16 | Datatype::Fp32 | Datatype::Fp64)
}

/// Reads a tensor. Its data may lie in a file of `folder`, which was checked before.
///
/// # Errors
///
/// The shape and the data do not fit, or the type is none of a call's.
pub(crate) fn read(tensor: &TensorProto, folder: Option<&Path>) -> Result<Constant, String> {
    let elements = sizes::elements(&tensor.dims)?;
    let shape = tensor.dims.iter().map(|length| usize::try_from(*length).unwrap_or(0)).collect();
    let unsupported = || format!("its element type, {} in ONNX, is not supported", tensor.data_type);
    let datatype = datatype(tensor.data_type).ok_or_else(unsupported)?;
    let data = if tensor.data_location == Some(1) {
        let bytes = datatype.bytes().ok_or_else(unsupported)?;
        external(tensor, folder.ok_or("lies outside of the file, which has no folder")?, elements.unsigned_abs() * bytes as u64)?
    } else if tensor.raw_data.is_empty() {
        typed(tensor, datatype)
    } else {
        tensor.raw_data.clone()
    };
    let wanted = usize::try_from(elements).map_err(|e| e.to_string())?;
    datatype.check(wanted, &data).map_err(|reason| format!("its shape {:?} does not fit its data: {reason}", tensor.dims))?;
    Ok(Constant { datatype, shape, data })
}

fn external(tensor: &TensorProto, folder: &Path, bytes: u64) -> Result<Bytes, String> {
    let entry = |key: &str| tensor.external_data.iter().find(|entry| entry.key == key).map(|entry| entry.value.as_str());
    let location = entry("location").ok_or("its external data has no location")?;
    let fails = |e: std::io::Error| format!("lies in {location:?}, which cannot be read: {e}");
    let offset: u64 = entry("offset").unwrap_or("0").parse().map_err(|_| "its external data has no offset".to_owned())?;
    let mut file = std::fs::File::open(folder.join(location)).map_err(fails)?;
    let size = file.metadata().map_err(fails)?.len();
    if offset.checked_add(bytes).is_none_or(|end| end > size) {
        return Err(format!("needs {bytes} bytes from {offset} on of {location:?}, which has {size}"));
    }
    let mut data = vec![0; usize::try_from(bytes).map_err(|e| e.to_string())?];
    file.seek(SeekFrom::Start(offset)).and_then(|_| file.read_exact(&mut data)).map_err(fails)?;
    Ok(data.into())
}

/// The data of a tensor whose elements are numbers of the message.
fn typed(tensor: &TensorProto, datatype: Datatype) -> Bytes {
    let narrow = tensor.int32_data.iter();
    match datatype {
        Datatype::Bool => narrow.map(|x| u8::from(*x != 0)).collect(),
        Datatype::Uint8 | Datatype::Int8 => narrow.map(|x| x.to_le_bytes()[0]).collect(),
        Datatype::Uint16 | Datatype::Int16 | Datatype::Fp16 | Datatype::Bf16 => {
            narrow.flat_map(|x| [x.to_le_bytes()[0], x.to_le_bytes()[1]]).collect()
        }
        Datatype::Int32 => narrow.flat_map(|x| x.to_le_bytes()).collect(),
        Datatype::Uint32 => tensor.uint64_data.iter().flat_map(|x| (*x as u32).to_le_bytes()).collect(),
        Datatype::Uint64 => tensor.uint64_data.iter().flat_map(|x| x.to_le_bytes()).collect(),
        Datatype::Int64 => tensor.int64_data.iter().flat_map(|x| x.to_le_bytes()).collect(),
        Datatype::Fp32 => tensor.float_data.iter().flat_map(|x| x.to_le_bytes()).collect(),
        Datatype::Fp64 => tensor.double_data.iter().flat_map(|x| x.to_le_bytes()).collect(),
        Datatype::Bytes => text_data(&tensor.string_data),
    }
}

macro_rules! of_width {
    ($data:expr, $width:literal, $number:expr) => {
        Box::new($data.as_chunks::<$width>().0.iter().map($number))
    };
}

impl ShapedNode {
    /// An attribute that is a tensor as a constant; `None` if it is absent, or cannot be read.
    #[must_use]
    pub fn constant(&self, name: &str) -> Option<Constant> {
        read(self.tensor(name)?, None).ok()
    }
}

impl Constant {
    /// Its elements in double precision; `None` for strings.
    #[must_use]
    pub fn floats(&self) -> Option<Box<dyn Iterator<Item = f64> + '_>> {
        let data = &self.data;
        Some(match self.datatype {
            Datatype::Fp16 => of_width!(data, 2, |bytes| f16::from_le_bytes(*bytes).to_f64()),
            Datatype::Bf16 => of_width!(data, 2, |bytes| bf16::from_le_bytes(*bytes).to_f64()),
            Datatype::Fp32 => of_width!(data, 4, |bytes| f64::from(f32::from_le_bytes(*bytes))),
            Datatype::Fp64 => of_width!(data, 8, |bytes| f64::from_le_bytes(*bytes)),
            Datatype::Uint64 => of_width!(data, 8, |bytes| u64::from_le_bytes(*bytes) as f64),
            _ => Box::new(self.ints()?.map(|x| x as f64)),
        })
    }

    /// Its elements as whole numbers; `None` for other types. Those of 64 bits without a sign are taken as if they had one.
    #[must_use]
    pub fn ints(&self) -> Option<Box<dyn Iterator<Item = i64> + '_>> {
        let data = &self.data;
        Some(match self.datatype {
            Datatype::Bool => of_width!(data, 1, |[byte]: &[u8; 1]| i64::from(*byte != 0)),
            Datatype::Uint8 => of_width!(data, 1, |[byte]: &[u8; 1]| i64::from(*byte)),
            Datatype::Int8 => of_width!(data, 1, |bytes| i64::from(i8::from_le_bytes(*bytes))),
            Datatype::Uint16 => of_width!(data, 2, |bytes| i64::from(u16::from_le_bytes(*bytes))),
            Datatype::Int16 => of_width!(data, 2, |bytes| i64::from(i16::from_le_bytes(*bytes))),
            Datatype::Uint32 => of_width!(data, 4, |bytes| i64::from(u32::from_le_bytes(*bytes))),
            Datatype::Int32 => of_width!(data, 4, |bytes| i64::from(i32::from_le_bytes(*bytes))),
            Datatype::Uint64 | Datatype::Int64 => of_width!(data, 8, |bytes| i64::from_le_bytes(*bytes)),
            Datatype::Fp16 | Datatype::Bf16 | Datatype::Fp32 | Datatype::Fp64 | Datatype::Bytes => return None,
        })
    }

    /// A constant of these numbers, rounded to the type's precision; `None` for strings, and if they do not fill the shape.
    pub(crate) fn of_floats(datatype: Datatype, shape: &[usize], numbers: impl Iterator<Item = f64>) -> Option<Self> {
        let data: Vec<u8> = match datatype {
            Datatype::Fp16 => numbers.map(|x| f16::from_f64(x).to_le_bytes()).collect::<Vec<_>>().into_flattened(),
            Datatype::Bf16 => numbers.map(|x| bf16::from_f64(x).to_le_bytes()).collect::<Vec<_>>().into_flattened(),
            Datatype::Fp32 => numbers.map(|x| (x as f32).to_le_bytes()).collect::<Vec<_>>().into_flattened(),
            Datatype::Fp64 => numbers.map(f64::to_le_bytes).collect::<Vec<_>>().into_flattened(),
            Datatype::Bool => numbers.map(|x| u8::from(x != 0.0)).collect(),
            Datatype::Uint64 => numbers.map(|x| (x as u64).to_le_bytes()).collect::<Vec<_>>().into_flattened(),
            _ => {
                let numbers: Box<dyn Iterator<Item = i64> + '_> = Box::new(numbers.map(|x| x as i64));
                return Self::of_ints(datatype, shape, numbers);
            }
        };
        Self::filling(datatype, shape, data.into())
    }

    /// A constant of these whole numbers, of which a narrow type keeps the lowest bits; `None` as for [`Self::of_floats`].
    pub(crate) fn of_ints(datatype: Datatype, shape: &[usize], numbers: impl Iterator<Item = i64>) -> Option<Self> {
        let data: Vec<u8> = match datatype {
            Datatype::Bool => numbers.map(|x| u8::from(x != 0)).collect(),
            Datatype::Uint8 | Datatype::Int8 => numbers.map(|x| x.to_le_bytes()[0]).collect(),
            Datatype::Uint16 | Datatype::Int16 => numbers.map(|x| (x as u16).to_le_bytes()).collect::<Vec<_>>().into_flattened(),
            Datatype::Uint32 | Datatype::Int32 => numbers.map(|x| (x as u32).to_le_bytes()).collect::<Vec<_>>().into_flattened(),
            Datatype::Uint64 | Datatype::Int64 => numbers.map(i64::to_le_bytes).collect::<Vec<_>>().into_flattened(),
            Datatype::Bytes => return None,
            _ => {
                let numbers: Box<dyn Iterator<Item = f64> + '_> = Box::new(numbers.map(|x| x as f64));
                return Self::of_floats(datatype, shape, numbers);
            }
        };
        Self::filling(datatype, shape, data.into())
    }

    /// A constant of this data, if it fills the shape.
    pub(crate) fn filling(datatype: Datatype, shape: &[usize], data: Bytes) -> Option<Self> {
        let elements = shape.iter().try_fold(1_usize, |product, length| product.checked_mul(*length))?;
        (elements.checked_mul(datatype.bytes()?)? == data.len()).then(|| Self { datatype, shape: shape.to_vec(), data })
    }
}
