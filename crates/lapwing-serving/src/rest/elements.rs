//! A tensor's elements as JSON. Read: nested or flat arrays, flattened straight into little-endian bytes of the datatype; the caller has
//! checked that the text is one JSON value, so it is read in one pass over its tokens, without a tree, and each number is rounded once,
//! from the text to the datatype. Written: integers, true and false, strings, and floats in the shortest form that reads back as the same.

use std::borrow::Cow;

use bytes::{BufMut, Bytes, BytesMut};
use serde::ser::{Error as _, SerializeSeq};
use serde::{Serialize, Serializer};

use lapwing_onnx::tensor::{Datatype, Tensor, put_text, slices};

/// What is wrong with `data`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum DataError {
    #[error("must be an array")]
    NoArray,
    #[error("element {at}: {token} is no {datatype}")]
    Element { at: usize, token: String, datatype: &'static str },
    #[error("{0} comes as binary data only")]
    BinaryOnly(&'static str),
    #[error("holds {found} elements where the shape asks for {wanted}")]
    Count { found: usize, wanted: usize },
    #[error("holds more than the {wanted} elements that the shape asks for")]
    More { wanted: usize },
    #[error("is neither flat nor nested as the shape is: an array at depth {depth} holds {found} items")]
    Nesting { depth: usize, found: usize },
}

/// Characters of a token that a message shows.
const SHOWN: usize = 40;

/// The bytes of the elements in `json`, which are `wanted` by the shape; nested as the shape is, or flat.
pub(crate) fn flatten(json: &str, datatype: Datatype, shape: &[usize], wanted: usize) -> Result<Bytes, DataError> {
    // each element takes at least two characters, so the allocation is bounded by the received bytes, not by the shape
    let mut out = BytesMut::with_capacity(wanted.min(json.len() / 2 + 1).saturating_mul(datatype.least_bytes()));
    macro_rules! numbers {
        ($type:ty, $put:ident) => {
            walk(json, datatype, shape, wanted, |token| token.parse::<$type>().ok().map(|value| out.$put(value)))
        };
    }
    macro_rules! floats {
        ($type:ty, $put:ident) => {
            walk(json, datatype, shape, wanted, |token| {
                // Rust would parse `inf` and `nan`, which are not JSON numbers
                let number = token.parse::<$type>().ok().filter(|value| value.is_finite());
                number.map(|value| out.$put(value))
            })
        };
    }
    match datatype {
        Datatype::Bool => walk(json, datatype, shape, wanted, |token| {
            let value = ["false", "true"].iter().position(|word| *word == token);
            value.map(|value| out.put_u8(u8::from(value == 1)))
        }),
        Datatype::Uint8 => numbers!(u8, put_u8),
        Datatype::Uint16 => numbers!(u16, put_u16_le),
        Datatype::Uint32 => numbers!(u32, put_u32_le),
        Datatype::Uint64 => numbers!(u64, put_u64_le),
        Datatype::Int8 => numbers!(i8, put_i8),
        Datatype::Int16 => numbers!(i16, put_i16_le),
        Datatype::Int32 => numbers!(i32, put_i32_le),
        Datatype::Int64 => numbers!(i64, put_i64_le),
        Datatype::Fp32 => floats!(f32, put_f32_le),
        Datatype::Fp64 => floats!(f64, put_f64_le),
        Datatype::Bytes => walk(json, datatype, shape, wanted, |token| {
            let text: Option<Cow<'_, str>> = token.starts_with('"').then(|| serde_json::from_str(token).ok()).flatten();
            text.map(|text| put_text(&mut out, text.as_bytes()))
        }),
        Datatype::Fp16 | Datatype::Bf16 => Err(DataError::BinaryOnly(datatype.name())),
    }?;
    Ok(out.freeze())
}

/// The position of the walk in the arrays.
#[derive(Debug, Default)]
struct Nest {
    /// Items so far of each open array.
    open: Vec<usize>,
    /// The depth of the elements.
    leaves: Option<usize>,
}

/// Passes each element's token to `take`, which returns `None` if it is not of the datatype.
fn walk(
    json: &str,
    datatype: Datatype,
    shape: &[usize],
    wanted: usize,
    mut take: impl FnMut(&str) -> Option<()>,
) -> Result<(), DataError> {
    let bytes = json.as_bytes();
    if bytes.first() != Some(&b'[') {
        return Err(DataError::NoArray);
    }
    let (mut nest, mut found, mut at) = (Nest::default(), 0, 0);
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'[' => nest.open(shape)?,
            b']' => nest.close(shape)?,
            b',' | b' ' | b'\t' | b'\r' | b'\n' => {}
            _ => {
                let rest = &bytes[at..];
                let ends = |b: &u8| matches!(b, b',' | b']' | b'[' | b' ' | b'\t' | b'\r' | b'\n');
                let length = if *byte == b'"' { string_length(rest) } else { rest.iter().position(ends).unwrap_or(rest.len()) };
                let token = json.get(at..at + length).unwrap_or_default();
                nest.element(shape)?;
                if found == wanted {
                    return Err(DataError::More { wanted });
                }
                take(token).ok_or_else(|| DataError::Element { at: found, token: shown(token), datatype: datatype.name() })?;
                found += 1;
                at += length;
                continue;
            }
        }
        at += 1;
    }
    if found == wanted { Ok(()) } else { Err(DataError::Count { found, wanted }) }
}

/// The length of the string that `rest` begins with, quotes included.
fn string_length(rest: &[u8]) -> usize {
    let mut is_escaped = false;
    let end = rest.iter().skip(1).position(|byte| {
        let ends = *byte == b'"' && !is_escaped;
        is_escaped = *byte == b'\\' && !is_escaped;
        ends
    });
    end.map_or(rest.len(), |end| end + 2)
}

fn shown(token: &str) -> String {
    match token.char_indices().nth(SHOWN) {
        Some((cut, _)) => format!("{}…", &token[..cut]),
        None => token.to_owned(),
    }
}

impl Nest {
    fn open(&mut self, shape: &[usize]) -> Result<(), DataError> {
        if self.open.len() >= shape.len().max(1) {
            return Err(DataError::Nesting { depth: self.open.len(), found: 1 });
        }
        if let Some(items) = self.open.last_mut() {
            *items += 1;
        }
        self.open.push(0);
        Ok(())
    }

    /// An array of a flat tensor is counted as a whole; every other has the length of its axis.
    fn close(&mut self, shape: &[usize]) -> Result<(), DataError> {
        let depth = self.open.len();
        let found = self.open.pop().unwrap_or_default();
        let is_flat = depth == 1 && (found == 0 || self.leaves == Some(1));
        if is_flat || shape.get(depth.saturating_sub(1)) == Some(&found) {
            Ok(())
        } else {
            Err(DataError::Nesting { depth, found })
        }
    }

    /// Elements are in the outermost array, or in the innermost that the shape has; all at one depth.
    fn element(&mut self, shape: &[usize]) -> Result<(), DataError> {
        let depth = self.open.len();
        let Some(items) = self.open.last_mut() else { return Err(DataError::NoArray) };
        *items += 1;
        if *self.leaves.get_or_insert(depth) == depth && (depth == 1 || depth == shape.len()) {
            Ok(())
        } else {
            Err(DataError::Nesting { depth, found: *items })
        }
    }
}

/// Serializes a tensor's elements as a flat array. It fails for FP16, BF16 and strings that are not UTF-8, and writes `null` for values
/// that are not finite: check with [`first_without_json`] first.
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
            Datatype::Bytes => {
                let count = self.0.shape.iter().product();
                let mut sequence = serializer.serialize_seq(Some(count))?;
                for slice in slices(data, count) {
                    let text = std::str::from_utf8(slice.map_err(S::Error::custom)?).map_err(S::Error::custom)?;
                    sequence.serialize_element(text)?;
                }
                sequence.end()
            }
            half @ (Datatype::Fp16 | Datatype::Bf16) => {
                Err(S::Error::custom(format!("{} goes as binary data only", half.name())))
            }
        }
    }
}

/// The index and value of the first element that JSON cannot hold.
pub(crate) fn first_without_json(tensor: &Tensor) -> Option<(usize, String)> {
    if tensor.datatype == Datatype::Bytes {
        let texts = slices(&tensor.data, tensor.shape.iter().product());
        let at = texts.into_iter().position(|slice| slice.is_ok_and(|slice| std::str::from_utf8(slice).is_err()));
        return at.map(|at| (at, "a string that is not UTF-8".to_owned()));
    }
    first_not_finite(tensor).map(|(at, value)| (at, value.to_string()))
}

fn first_not_finite(tensor: &Tensor) -> Option<(usize, f64)> {
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn fp32(json: &str, shape: &[usize]) -> Result<Vec<f32>, DataError> {
        let bytes = flatten(json, Datatype::Fp32, shape, shape.iter().product())?;
        Ok(bytes.as_chunks::<4>().0.iter().map(|c| f32::from_le_bytes(*c)).collect())
    }

    #[test]
    fn flat_and_nested_are_the_same() {
        let flat = fp32("[1, 2.5,-3e1 ,4,5,6]", &[2, 3]).unwrap();
        assert_eq!(flat, [1.0, 2.5, -30.0, 4.0, 5.0, 6.0]);
        assert_eq!(fp32(" [[1,2.5,-30],\n[4,5,6] ]".trim(), &[2, 3]).unwrap(), flat);
        assert_eq!(fp32("[[[1],[2.5],[-30]],[[4],[5],[6]]]", &[2, 3, 1]).unwrap(), flat);
        assert_eq!(fp32("[7]", &[]).unwrap(), [7.0]);
        for (json, shape) in [("[]", &[0, 4][..]), ("[[],[]]", &[2, 0]), ("[]", &[2, 0])] {
            assert!(fp32(json, shape).unwrap().is_empty(), "{json}");
        }
    }

    #[test]
    fn what_is_nested_otherwise_is_refused() {
        let nesting = |depth, found| Err(DataError::Nesting { depth, found });
        assert_eq!(fp32("[[1,2,3],[4]]", &[2, 2]), nesting(2, 3));
        assert_eq!(fp32("[[1,2],[3,4],[5,6]]", &[2, 3]), nesting(2, 2));
        assert_eq!(fp32("[[1,2,3,4,5,6]]", &[2, 3]), nesting(2, 6));
        assert_eq!(fp32("[[1,2,3]]", &[2, 3]), nesting(1, 1));
        assert_eq!(fp32("[1,[2],3]", &[3]), nesting(1, 1));
        assert_eq!(fp32("[1,[2,3]]", &[3, 1]), nesting(2, 1));
        assert_eq!(fp32("[[1],2]", &[2, 1]), nesting(1, 2));
        assert_eq!(fp32("[1,2]", &[3]), Err(DataError::Count { found: 2, wanted: 3 }));
        assert_eq!(fp32("[1,2,3,4]", &[3]), Err(DataError::More { wanted: 3 }));
        assert_eq!(fp32("7", &[1]), Err(DataError::NoArray));
    }

    #[test]
    fn strings_may_hold_what_separates_elements() {
        let read = |json: &str, shape: &[usize]| flatten(json, Datatype::Bytes, shape, shape.iter().product());
        let texts = ["a, b", "]", "\"[\\", "", "é\n"];
        let json = r#"[ "a, b" ,"]","\"[\\","","\u00e9\n"]"#;
        let data = read(json, &[5]).unwrap();
        assert_eq!(data, lapwing_onnx::tensor::text_data(&texts));
        let tensor = Tensor { name: "x".into(), datatype: Datatype::Bytes, shape: vec![5], data };
        assert_eq!(serde_json::from_str::<Vec<String>>(&serde_json::to_string(&Elements(&tensor)).unwrap()).unwrap(), texts);
        assert_eq!(read(r#"[["a"],["b"]]"#, &[2, 1]), read(r#"["a","b"]"#, &[2, 1]));
        assert_eq!(read(r#"["a"]"#, &[2]), Err(DataError::Count { found: 1, wanted: 2 }));
        assert_eq!(read("[\"a\", 1]", &[2]).unwrap_err().to_string(), "element 1: 1 is no BYTES");
        let data = lapwing_onnx::tensor::text_data(&[b"ok".as_slice(), b"\xff"]);
        let broken = Tensor { name: "x".into(), datatype: Datatype::Bytes, shape: vec![2], data };
        assert_eq!(first_without_json(&broken), Some((1, "a string that is not UTF-8".to_owned())));
    }

    #[test]
    fn what_is_none_of_the_datatype_is_named() {
        let refused = |json: &str, datatype| flatten(json, datatype, &[2], 2).unwrap_err().to_string();
        assert_eq!(refused("[1,1.5]", Datatype::Int64), "element 1: 1.5 is no INT64");
        assert_eq!(refused("[1,256]", Datatype::Uint8), "element 1: 256 is no UINT8");
        assert_eq!(refused("[-1,0]", Datatype::Uint64), "element 0: -1 is no UINT64");
        assert_eq!(refused("[0,true]", Datatype::Bool), "element 0: 0 is no BOOL");
        assert_eq!(refused("[1e39,1]", Datatype::Fp32), "element 0: 1e39 is no FP32");
        assert_eq!(refused("[1e309,1]", Datatype::Fp64), "element 0: 1e309 is no FP64");
        assert_eq!(refused("[null,1]", Datatype::Fp64), "element 0: null is no FP64");
        assert_eq!(refused("[\"inf\",1]", Datatype::Fp32), "element 0: \"inf\" is no FP32");
        assert_eq!(refused("[{\"a\":1},1]", Datatype::Fp32), "element 0: {\"a\":1} is no FP32");
        assert_eq!(refused("[1,1]", Datatype::Fp16), "FP16 comes as binary data only");
        let long = refused(&format!("[\"{}\",1]", "é".repeat(100)), Datatype::Int8);
        assert!(long.contains("é…") && long.len() < 120, "{long}");
    }

    proptest! {
        #[test]
        fn floats_come_back_bit_for_bit(values in proptest::collection::vec(any::<f32>(), 1..50)) {
            let finite: Vec<f32> = values.into_iter().filter(|v| v.is_finite()).collect();
            let json = serde_json::to_string(&finite).unwrap();
            let read = fp32(&json, &[finite.len()]).unwrap();
            prop_assert_eq!(read.iter().map(|v| v.to_bits()).collect::<Vec<_>>(), finite.iter().map(|v| v.to_bits()).collect::<Vec<_>>());
        }

        #[test]
        fn integers_and_doubles_come_back(ints in proptest::collection::vec(any::<i64>(), 1..50), double in any::<f64>()) {
            let bytes = flatten(&serde_json::to_string(&ints).unwrap(), Datatype::Int64, &[ints.len()], ints.len()).unwrap();
            let read: Vec<i64> = bytes.as_chunks::<8>().0.iter().map(|c| i64::from_le_bytes(*c)).collect();
            prop_assert_eq!(read, ints);
            prop_assume!(double.is_finite());
            let bytes = flatten(&format!("[{}]", serde_json::to_string(&double).unwrap()), Datatype::Fp64, &[1], 1).unwrap();
            prop_assert_eq!(bytes.as_ref(), &double.to_le_bytes()[..]);
        }

        #[test]
        fn no_text_makes_it_panic(
            json in "[\\[\\], 0-9.eE+\\-truefalsn\"é{}:]{0,60}",
            at in 0..Datatype::ALL.len(),
            shape in proptest::collection::vec(0_usize..4, 0..4),
        ) {
            let wanted = shape.iter().product();
            if let Ok(bytes) = flatten(&json, Datatype::ALL[at], &shape, wanted) {
                prop_assert_eq!(Datatype::ALL[at].check(wanted, &bytes), Ok(()));
            }
        }
    }
}
