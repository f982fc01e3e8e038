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

    /// Its elements, if they are of single precision; else none.
    #[must_use]
    pub fn to_f32(&self) -> Vec<f32> {
        if self.datatype != Datatype::Fp32 {
            return Vec::new();
        }
        self.data.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
    }
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
