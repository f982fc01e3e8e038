//! Tensors of requests and answers: a name, one of the Open Inference Protocol's types, a shape, and little-endian bytes.

use bytes::Bytes;

/// An element type, by the names of the Open Inference Protocol. `BYTES` is not among them: no model here reads text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "their names say it")]
pub enum Datatype {
    Bool,
    Uint8,
    Uint16,
    Uint32,
    Uint64,
    Int8,
    Int16,
    Int32,
    Int64,
    Fp16,
    Bf16,
    Fp32,
    Fp64,
}

impl Datatype {
    /// Every type.
    pub const ALL: [Self; 13] = [
        Self::Bool,
        Self::Uint8,
        Self::Uint16,
        Self::Uint32,
        Self::Uint64,
        Self::Int8,
        Self::Int16,
        Self::Int32,
        Self::Int64,
        Self::Fp16,
        Self::Bf16,
        Self::Fp32,
        Self::Fp64,
    ];

    /// The protocol's name, in upper case.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bool => "BOOL",
            Self::Uint8 => "UINT8",
            Self::Uint16 => "UINT16",
            Self::Uint32 => "UINT32",
            Self::Uint64 => "UINT64",
            Self::Int8 => "INT8",
            Self::Int16 => "INT16",
            Self::Int32 => "INT32",
            Self::Int64 => "INT64",
            Self::Fp16 => "FP16",
            Self::Bf16 => "BF16",
            Self::Fp32 => "FP32",
            Self::Fp64 => "FP64",
        }
    }

    /// The type of that name; `None` if there is none.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Bytes of one element.
    #[must_use]
    pub const fn bytes(self) -> usize {
        match self {
            Self::Bool | Self::Uint8 | Self::Int8 => 1,
            Self::Uint16 | Self::Int16 | Self::Fp16 | Self::Bf16 => 2,
            Self::Uint32 | Self::Int32 | Self::Fp32 => 4,
            Self::Uint64 | Self::Int64 | Self::Fp64 => 8,
        }
    }
}

/// A tensor of a request or an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tensor {
    /// Its name in the model.
    pub name: String,
    /// The type of its elements.
    pub datatype: Datatype,
    /// Lengths of its axes.
    pub shape: Vec<usize>,
    /// Its elements, row-major and little-endian. The receiver checks that the length fits type and shape.
    pub data: Bytes,
}

impl Tensor {
    /// A tensor of single precision.
    #[must_use]
    pub fn f32(name: &str, shape: &[usize], data: &[f32]) -> Self {
        let data: Vec<u8> = data.iter().flat_map(|x| x.to_le_bytes()).collect();
        Self { name: name.to_owned(), datatype: Datatype::Fp32, shape: shape.to_vec(), data: data.into() }
    }

    /// A tensor of whole numbers of 64 bits.
    #[must_use]
    pub fn i64(name: &str, shape: &[usize], data: &[i64]) -> Self {
        let data: Vec<u8> = data.iter().flat_map(|x| x.to_le_bytes()).collect();
        Self { name: name.to_owned(), datatype: Datatype::Int64, shape: shape.to_vec(), data: data.into() }
    }

    /// Its elements in double precision; whole numbers above 2⁵³ are rounded.
    #[must_use]
    pub fn to_f64(&self) -> Vec<f64> {
        fn of<const N: usize>(data: &Bytes, number: impl Fn([u8; N]) -> f64) -> Vec<f64> {
            data.as_chunks::<N>().0.iter().map(|bytes| number(*bytes)).collect()
        }
        let data = &self.data;
        match self.datatype {
            Datatype::Bool => of(data, |[byte]: [u8; 1]| f64::from(u8::from(byte != 0))),
            Datatype::Uint8 => of(data, |[byte]: [u8; 1]| f64::from(byte)),
            Datatype::Uint16 => of(data, |bytes| f64::from(u16::from_le_bytes(bytes))),
            Datatype::Uint32 => of(data, |bytes| f64::from(u32::from_le_bytes(bytes))),
            Datatype::Uint64 => of(data, |bytes| u64::from_le_bytes(bytes) as f64),
            Datatype::Int8 => of(data, |bytes| f64::from(i8::from_le_bytes(bytes))),
            Datatype::Int16 => of(data, |bytes| f64::from(i16::from_le_bytes(bytes))),
            Datatype::Int32 => of(data, |bytes| f64::from(i32::from_le_bytes(bytes))),
            Datatype::Int64 => of(data, |bytes| i64::from_le_bytes(bytes) as f64),
            Datatype::Fp16 => of(data, |bytes| half(u16::from_le_bytes(bytes))),
            Datatype::Bf16 => of(data, |bytes| f64::from(f32::from_bits(u32::from(u16::from_le_bytes(bytes)) << 16))),
            Datatype::Fp32 => of(data, |bytes| f64::from(f32::from_le_bytes(bytes))),
            Datatype::Fp64 => of(data, f64::from_le_bytes),
        }
    }

    /// Its elements, if they are of single precision; else none.
    #[must_use]
    pub fn to_f32(&self) -> Vec<f32> {
        if self.datatype != Datatype::Fp32 {
            return Vec::new();
        }
        self.data.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
    }
}

/// A number of half precision: a sign, five bits of exponent, ten of fraction.
fn half(bits: u16) -> f64 {
    let (exponent, fraction) = (i32::from(bits >> 10 & 0x1f), f64::from(bits & 0x3ff) / 1024.0);
    let size = match exponent {
        0 => fraction * (-14_f64).exp2(),
        0x1f if fraction == 0.0 => f64::INFINITY,
        0x1f => f64::NAN,
        _ => (1.0 + fraction) * f64::from(exponent - 15).exp2(),
    };
    if bits >> 15 == 1 { -size } else { size }
}

/// The description of an input or output of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorSpec {
    /// Its name in the model.
    pub name: String,
    /// The type of its elements.
    pub datatype: Datatype,
    /// Lengths of its axes; `None` where a request chooses.
    pub shape: Vec<Option<usize>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_reads_as_double_precision() {
        let read = |datatype, bytes: &[u8]| {
            Tensor { name: String::new(), datatype, shape: Vec::new(), data: Bytes::copy_from_slice(bytes) }.to_f64()
        };
        let halves: Vec<u8> = [0x3c00_u16, 0xc000, 0x3555, 0x0001, 0x7bff, 0xfc00].iter().flat_map(|x| x.to_le_bytes()).collect();
        let numbers = [1.0, -2.0, 0.333_251_953_125, 2_f64.powi(-24), 65_504.0, f64::NEG_INFINITY];
        assert_eq!(read(Datatype::Fp16, &halves), numbers);
        assert!(read(Datatype::Fp16, &0x7e00_u16.to_le_bytes())[0].is_nan());
        assert_eq!(read(Datatype::Bf16, &0xc040_u16.to_le_bytes()), [-3.0]);
        assert_eq!(read(Datatype::Bool, &[0, 1, 7]), [0.0, 1.0, 1.0]);
        assert_eq!((read(Datatype::Int8, &[255]), read(Datatype::Uint8, &[255])), (vec![-1.0], vec![255.0]));
        assert_eq!(read(Datatype::Int64, &(-5_i64).to_le_bytes()), [-5.0]);
        for datatype in Datatype::ALL {
            assert_eq!(read(datatype, &vec![0; 3 * datatype.bytes()]), [0.0; 3], "{datatype:?}");
        }
    }
}
