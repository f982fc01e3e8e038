//! Datatypes of the Open Inference Protocol, and single elements as numbers.

use bytes::{BufMut, Bytes, BytesMut};

/// A number: integers are exact.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Number {
    Integer(i128),
    Float(f64),
}

impl Number {
    /// The nearest double.
    #[expect(clippy::cast_precision_loss, reason = "the nearest double is what is asked for")]
    pub(crate) fn as_f64(self) -> f64 {
        match self {
            Self::Integer(n) => n as f64,
            Self::Float(n) => n,
        }
    }

    /// The distance of two numbers: exact for integers, then rounded once. Zero for equal infinities and for two NaN; infinite if one
    /// is NaN or infinite and the other is not the same.
    #[expect(clippy::cast_precision_loss, reason = "rounded once")]
    pub(crate) fn distance(self, other: Self) -> f64 {
        if let (Self::Integer(a), Self::Integer(b)) = (self, other) {
            return a.abs_diff(b) as f64;
        }
        let (a, b) = (self.as_f64(), other.as_f64());
        if a == b || (a.is_nan() && b.is_nan()) {
            return 0.0;
        }
        let distance = (b - a).abs();
        if distance.is_nan() { f64::INFINITY } else { distance }
    }
}

/// The type of a tensor's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ElementType {
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
    /// Texts or bytes.
    Bytes,
}

const NAMES: [(ElementType, &str); 14] = [
    (ElementType::Bool, "BOOL"),
    (ElementType::Uint8, "UINT8"),
    (ElementType::Uint16, "UINT16"),
    (ElementType::Uint32, "UINT32"),
    (ElementType::Uint64, "UINT64"),
    (ElementType::Int8, "INT8"),
    (ElementType::Int16, "INT16"),
    (ElementType::Int32, "INT32"),
    (ElementType::Int64, "INT64"),
    (ElementType::Fp16, "FP16"),
    (ElementType::Bf16, "BF16"),
    (ElementType::Fp32, "FP32"),
    (ElementType::Fp64, "FP64"),
    (ElementType::Bytes, "BYTES"),
];

impl ElementType {
    /// The type of this name in the protocol. `TYPE_` before it, as in Triton's configuration, and `STRING` are accepted.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        let name = name.strip_prefix("TYPE_").unwrap_or(name);
        let name = if name == "STRING" { "BYTES" } else { name };
        NAMES.iter().find(|(_, own)| *own == name).map(|(element, _)| *element)
    }

    /// Its name in the protocol.
    pub(crate) fn name(self) -> &'static str {
        NAMES[self as usize].1
    }

    /// The size of an element in bytes; `None` if it varies.
    pub(crate) const fn bytes(self) -> Option<usize> {
        Some(match self {
            Self::Bool | Self::Uint8 | Self::Int8 => 1,
            Self::Uint16 | Self::Int16 | Self::Fp16 | Self::Bf16 => 2,
            Self::Uint32 | Self::Int32 | Self::Fp32 => 4,
            Self::Uint64 | Self::Int64 | Self::Fp64 => 8,
            Self::Bytes => return None,
        })
    }

    /// The number of bits after which a float's pattern counts its distance from others in units in the last place.
    pub(crate) const fn is_float(self) -> bool {
        matches!(self, Self::Fp16 | Self::Bf16 | Self::Fp32 | Self::Fp64)
    }

    /// Whether both are floating-point numbers, or both whole ones.
    pub(crate) fn is_same_kind(self, other: Self) -> bool {
        let is_whole = |element: Self| !matches!(element, Self::Bool | Self::Bytes) && !element.is_float();
        (self.is_float() && other.is_float()) || (is_whole(self) && is_whole(other))
    }

    /// Reads the element at `index` of little-endian `data`; 0 beyond its end, which callers have excluded.
    pub(crate) fn read(self, data: &[u8], index: usize) -> Number {
        fn chunk<const N: usize>(data: &[u8], index: usize) -> [u8; N] {
            data.get(index * N..).and_then(|rest| rest.first_chunk()).copied().unwrap_or([0; N])
        }
        match self {
            Self::Bool => Number::Integer((chunk::<1>(data, index)[0] != 0).into()),
            Self::Uint8 => Number::Integer(chunk::<1>(data, index)[0].into()),
            Self::Int8 => Number::Integer(i8::from_le_bytes(chunk(data, index)).into()),
            Self::Uint16 => Number::Integer(u16::from_le_bytes(chunk(data, index)).into()),
            Self::Int16 => Number::Integer(i16::from_le_bytes(chunk(data, index)).into()),
            Self::Uint32 => Number::Integer(u32::from_le_bytes(chunk(data, index)).into()),
            Self::Int32 => Number::Integer(i32::from_le_bytes(chunk(data, index)).into()),
            Self::Uint64 => Number::Integer(u64::from_le_bytes(chunk(data, index)).into()),
            Self::Int64 => Number::Integer(i64::from_le_bytes(chunk(data, index)).into()),
            Self::Fp16 => Number::Float(half_to_f64(u16::from_le_bytes(chunk(data, index)))),
            Self::Bf16 => Number::Float(f32::from_bits(u32::from(u16::from_le_bytes(chunk(data, index))) << 16).into()),
            Self::Fp32 => Number::Float(f32::from_le_bytes(chunk(data, index)).into()),
            Self::Fp64 => Number::Float(f64::from_le_bytes(chunk(data, index))),
            Self::Bytes => Number::Integer(0),
        }
    }

    /// The position of a float among all floats of its type, so that neighbours differ by one. Both zeros have the same.
    pub(crate) fn ordinal(self, data: &[u8], index: usize) -> i64 {
        let bytes = self.bytes().unwrap_or(1);
        let mut pattern = [0; 8];
        if let Some(element) = data.get(index * bytes..(index + 1) * bytes) {
            pattern[..bytes].copy_from_slice(element);
        }
        let (pattern, bits) = (u64::from_le_bytes(pattern), bytes * 8);
        let sign = 1_u64 << (bits - 1);
        let magnitude = i64::try_from(pattern & (sign - 1)).unwrap_or(i64::MAX);
        if pattern & sign == 0 { magnitude } else { -magnitude }
    }
}

/// Numbers as little-endian FP64, or for any other type as FP32.
#[expect(clippy::cast_possible_truncation, reason = "rounded to the type's own precision")]
pub(crate) fn float_bytes(element: ElementType, values: impl IntoIterator<Item = f64>) -> Bytes {
    let mut data = BytesMut::new();
    match element {
        ElementType::Fp64 => values.into_iter().for_each(|x| data.put_f64_le(x)),
        _ => values.into_iter().for_each(|x| data.put_f32_le(x as f32)),
    }
    data.freeze()
}

/// IEEE 754 binary16: one sign bit, five of exponent, ten of fraction.
fn half_to_f64(bits: u16) -> f64 {
    let sign = if bits >> 15 == 0 { 1.0 } else { -1.0 };
    let (exponent, fraction) = (i32::from(bits >> 10 & 0x1f), f64::from(bits & 0x3ff));
    sign * match exponent {
        0 => fraction * 2_f64.powi(-24),
        31 if fraction == 0.0 => f64::INFINITY,
        31 => f64::NAN,
        _ => (1.0 + fraction / 1024.0) * 2_f64.powi(exponent - 15),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_in_order_and_read_back() {
        for (element, name) in NAMES {
            assert_eq!((element.name(), ElementType::parse(name)), (name, Some(element)));
        }
        assert_eq!(ElementType::parse("TYPE_STRING"), Some(ElementType::Bytes));
        assert_eq!(ElementType::parse("fp32"), None);
    }

    #[test]
    fn halves_are_read() {
        // values of IEEE 754's own examples of binary16
        for (bits, value) in [
            (0x3c00, 1.0),
            (0xc000, -2.0),
            (0x7bff, 65504.0),
            (0x0400, 6.103_515_625e-5),
            (0x0001, 5.960_464_477_539_063e-8),
            (0x7c00, f64::INFINITY),
            (0x3555, 0.333_251_953_125),
        ] {
            assert_eq!(half_to_f64(bits), value, "{bits:x}");
        }
        assert!(half_to_f64(0x7e00).is_nan());
        assert_eq!(ElementType::Bf16.read(&0x4049_u16.to_le_bytes(), 0), Number::Float(3.140625));
    }

    #[test]
    fn distances_treat_what_is_not_finite() {
        let float = Number::Float;
        let (nan, inf) = (float(f64::NAN), float(f64::INFINITY));
        assert_eq!(nan.distance(nan), 0.0);
        assert_eq!(inf.distance(inf), 0.0);
        for (a, b) in [(nan, float(1.0)), (inf, float(1.0)), (inf, float(f64::NEG_INFINITY)), (nan, inf)] {
            assert_eq!((a.distance(b), b.distance(a)), (f64::INFINITY, f64::INFINITY), "{a:?} {b:?}");
        }
        assert_eq!(Number::Integer(i128::from(u64::MAX)).distance(Number::Integer(i128::from(u64::MAX) - 1)), 1.0);
        assert_eq!(Number::Integer(1).distance(float(1.0)), 0.0);
    }

    #[test]
    fn ordinals_count_floats() {
        let ordinal = |x: f32| ElementType::Fp32.ordinal(&x.to_le_bytes(), 0);
        assert_eq!(ordinal(1.0_f32.next_up()) - ordinal(1.0), 1);
        assert_eq!(ordinal(f32::from_bits(1)) - ordinal(-f32::from_bits(1)), 2);
        assert_eq!(ordinal(0.0), ordinal(-0.0));
        assert_eq!(
            ElementType::Fp64.ordinal(&(-1.0_f64).to_le_bytes(), 0),
            -ElementType::Fp64.ordinal(&1.0_f64.to_le_bytes(), 0)
        );
    }
}
