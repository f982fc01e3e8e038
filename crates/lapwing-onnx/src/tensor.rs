//! Tensors of requests and answers: a name, one of the Open Inference Protocol's types, a shape, and little-endian bytes.

use bytes::{BufMut, Bytes, BytesMut};
use half::{bf16, f16};

/// An element type, by the names of the Open Inference Protocol.
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
    /// Strings, each behind its length: in bytes, as a little-endian number of 32 bits. They need not be UTF-8.
    Bytes,
}

impl Datatype {
    /// Every type.
    pub const ALL: [Self; 14] = [
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
        Self::Bytes,
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
            Self::Bytes => "BYTES",
        }
    }

    /// The type of that name; `None` if there is none.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Whether its elements are floating-point numbers of 16 bits.
    #[must_use]
    pub const fn is_half(self) -> bool {
        matches!(self, Self::Fp16 | Self::Bf16)
    }

    /// Bytes of one element; `None` for strings, whose lengths are their own.
    #[must_use]
    pub const fn bytes(self) -> Option<usize> {
        Some(match self {
            Self::Bool | Self::Uint8 | Self::Int8 => 1,
            Self::Uint16 | Self::Int16 | Self::Fp16 | Self::Bf16 => 2,
            Self::Uint32 | Self::Int32 | Self::Fp32 => 4,
            Self::Uint64 | Self::Int64 | Self::Fp64 => 8,
            Self::Bytes => return None,
        })
    }

    /// The least bytes of one element: an empty string has those of its length.
    #[must_use]
    pub const fn least_bytes(self) -> usize {
        match self.bytes() {
            Some(bytes) => bytes,
            None => LENGTH,
        }
    }

    /// Checks that `data` is as long as `elements` elements are.
    ///
    /// # Errors
    ///
    /// How long it is, and how long it should be; for strings the first that does not fit.
    pub fn check(self, elements: usize, data: &[u8]) -> Result<(), String> {
        let Some(bytes) = self.bytes() else { return slices(data, elements).try_for_each(|slice| slice.map(drop)) };
        match elements.checked_mul(bytes) {
            Some(size) if size == data.len() => Ok(()),
            Some(size) => Err(format!("{} bytes where {} takes {size}", data.len(), self.name())),
            None => Err("more bytes than can be".into()),
        }
    }
}

/// Bytes of the length before each string.
const LENGTH: usize = 4;

/// The strings of a tensor of [`Datatype::Bytes`] that has `elements`. What does not fit is the last item.
pub fn slices(data: &[u8], elements: usize) -> impl Iterator<Item = Result<&[u8], String>> {
    let (mut rest, mut at, mut is_over) = (data, 0, false);
    std::iter::from_fn(move || {
        let fails = |reason: String| Some(Err(reason));
        if is_over {
            return None;
        }
        is_over = true;
        if at == elements {
            return if rest.is_empty() {
                None
            } else {
                fails(format!("{} bytes are left behind {elements} strings", rest.len()))
            };
        }
        let Some((length, behind)) = rest.split_first_chunk::<LENGTH>() else {
            return fails(format!("element {at} of {elements} has no length: {} bytes are left", rest.len()));
        };
        let length = u32::from_le_bytes(*length) as usize;
        let Some((element, behind)) = behind.split_at_checked(length) else {
            return fails(format!("element {at} has a length of {length} bytes, {} are left", behind.len()));
        };
        (rest, at, is_over) = (behind, at + 1, false);
        Some(Ok(element))
    })
}

/// The strings of a tensor of [`Datatype::Bytes`] that has `elements`; they share its memory.
///
/// # Errors
///
/// The first string that does not fit.
pub fn texts(data: &Bytes, elements: usize) -> Result<Vec<Bytes>, String> {
    // no more than there can be, whatever the shape says
    let mut texts = Vec::with_capacity(elements.min(data.len() / LENGTH));
    for slice in slices(data, elements) {
        texts.push(data.slice_ref(slice?));
    }
    Ok(texts)
}

/// The data of a tensor of these strings. A string of 4 GiB or more, which has no length, is cut.
#[must_use]
pub fn text_data<T: AsRef<[u8]>>(texts: &[T]) -> Bytes {
    let mut data = BytesMut::with_capacity(texts.iter().map(|text| LENGTH + text.as_ref().len()).sum());
    texts.iter().for_each(|text| put_text(&mut data, text.as_ref()));
    data.freeze()
}

/// Appends a string and its length. A string of 4 GiB or more, which has no length, is cut.
pub fn put_text(data: &mut BytesMut, text: &[u8]) {
    let length = u32::try_from(text.len()).unwrap_or(u32::MAX);
    data.put_u32_le(length);
    data.extend_from_slice(&text[..length as usize]);
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

    /// Its elements in double precision; whole numbers above 2⁵³ are rounded, and strings have none.
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
            Datatype::Fp16 => of(data, |bytes| f16::from_le_bytes(bytes).to_f64()),
            Datatype::Bytes => Vec::new(),
            Datatype::Bf16 => of(data, |bytes| bf16::from_le_bytes(bytes).to_f64()),
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

/// The same numbers in single precision; `None` if `data` is not of half.
#[must_use]
pub fn widened(datatype: Datatype, data: &[u8]) -> Option<Bytes> {
    let halves = data.as_chunks::<2>().0.iter();
    Some(match datatype {
        Datatype::Fp16 => halves.flat_map(|bytes| f16::from_le_bytes(*bytes).to_f32().to_le_bytes()).collect(),
        Datatype::Bf16 => halves.flat_map(|bytes| bf16::from_le_bytes(*bytes).to_f32().to_le_bytes()).collect(),
        _ => return None,
    })
}

/// Numbers of single precision, each rounded to the nearest of half; `None` if `datatype` is not of half.
#[must_use]
pub fn narrowed(datatype: Datatype, data: &[u8]) -> Option<Bytes> {
    let numbers = data.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes));
    Some(match datatype {
        Datatype::Fp16 => numbers.flat_map(|number| f16::from_f32(number).to_le_bytes()).collect(),
        Datatype::Bf16 => numbers.flat_map(|number| bf16::from_f32(number).to_le_bytes()).collect(),
        _ => return None,
    })
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
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn half_precision_widens_without_loss_and_narrows_to_the_nearest() {
        for datatype in Datatype::ALL {
            let single: Vec<u8> =
                [0.1_f32, -3.0, 65_504.0, 1e-8, f32::NEG_INFINITY].iter().flat_map(|x| x.to_le_bytes()).collect();
            let Some(half) = narrowed(datatype, &single) else {
                assert!(!datatype.is_half() && widened(datatype, &single).is_none(), "{datatype:?}");
                continue;
            };
            assert_eq!(half.len(), 10);
            let again = narrowed(datatype, &widened(datatype, &half).unwrap()).unwrap();
            assert_eq!(again, half, "{datatype:?}");
            let read = Tensor { name: String::new(), datatype, shape: vec![5], data: half }.to_f64();
            assert!(
                (read[0] - 0.1).abs() < 1e-3 && read[1] == -3.0 && (read[2] - 65_504.0).abs() < 256.0 && read[4].is_infinite()
            );
        }
    }

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
        for datatype in Datatype::ALL.into_iter().filter(|datatype| datatype.bytes().is_some()) {
            assert_eq!(read(datatype, &vec![0; 3 * datatype.least_bytes()]), [0.0; 3], "{datatype:?}");
        }
    }

    #[test]
    fn strings_that_do_not_fit_are_named() {
        let fault = |data: &[u8], elements| Datatype::Bytes.check(elements, data).unwrap_err();
        let data = text_data(&["ab", ""]);
        assert_eq!(data[..], *b"\x02\0\0\0ab\0\0\0\0");
        assert_eq!(Datatype::Bytes.check(2, &data), Ok(()));
        assert_eq!(fault(&data, 1), "4 bytes are left behind 1 strings");
        assert_eq!(fault(&data, 3), "element 2 of 3 has no length: 0 bytes are left");
        assert_eq!(fault(&data[..9], 2), "element 1 of 2 has no length: 3 bytes are left");
        assert_eq!(fault(b"\xff\xff\xff\xffab", 1), "element 0 has a length of 4294967295 bytes, 2 are left");
        assert_eq!(fault(b"", usize::MAX), format!("element 0 of {} has no length: 0 bytes are left", usize::MAX));
        assert_eq!(Datatype::Fp32.check(2, &data).unwrap_err(), "10 bytes where FP32 takes 8");
        assert_eq!(Datatype::Fp64.check(usize::MAX, &data).unwrap_err(), "more bytes than can be");
    }

    proptest! {
        #[test]
        fn strings_come_back(texts in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..20), 0..20)) {
            let read = super::texts(&text_data(&texts), texts.len()).unwrap();
            prop_assert!(read.iter().map(|text| text.as_ref()).eq(texts.iter().map(Vec::as_slice)));
        }

        #[test]
        fn no_data_makes_it_panic(data in proptest::collection::vec(any::<u8>(), 0..40), elements in 0_usize..9) {
            let data = Bytes::from(data);
            prop_assert_eq!(Datatype::Bytes.check(elements, &data).is_ok(), texts(&data, elements).is_ok());
        }
    }
}
