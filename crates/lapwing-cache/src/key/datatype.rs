//! The element types of the Open Inference Protocol.

/// The type of the elements of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Datatype {
    Bool,
    /// Without a sign, of so many bytes.
    Unsigned(usize),
    /// With a sign, of so many bytes.
    Signed(usize),
    /// Of 16 bits: FP16 or BF16.
    Half,
    Single,
    Double,
    /// Elements of any length.
    Bytes,
}

impl Datatype {
    /// By its name.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "BOOL" => Self::Bool,
            "UINT8" => Self::Unsigned(1),
            "UINT16" => Self::Unsigned(2),
            "UINT32" => Self::Unsigned(4),
            "UINT64" => Self::Unsigned(8),
            "INT8" => Self::Signed(1),
            "INT16" => Self::Signed(2),
            "INT32" => Self::Signed(4),
            "INT64" => Self::Signed(8),
            "FP16" | "BF16" => Self::Half,
            "FP32" => Self::Single,
            "FP64" => Self::Double,
            "BYTES" => Self::Bytes,
            _ => return None,
        })
    }

    /// How many bytes an element has in a binary tensor; `None` if that differs.
    pub(crate) const fn width(self) -> Option<usize> {
        match self {
            Self::Bool => Some(1),
            Self::Unsigned(bytes) | Self::Signed(bytes) => Some(bytes),
            Self::Half => Some(2),
            Self::Single => Some(4),
            Self::Double => Some(8),
            Self::Bytes => None,
        }
    }
}
