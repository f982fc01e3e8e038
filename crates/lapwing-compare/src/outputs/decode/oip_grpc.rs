//! Tensors of `ModelInferResponse` and `ModelStreamInferResponse`, from `raw_output_contents` or typed contents.
//!
//! The messages are read field by field rather than into a tree, so that an answer of a million empty outputs costs nothing: their
//! number is checked first. The field numbers are those of the Open Inference Protocol's `open_inference.proto`.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use prost::Message;
use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};

use super::AnswerDecodeError;
use super::element::ElementType;
use super::tensor::{DecodedTensor, MAX_TENSORS, TensorData, shown_name};

/// `ModelInferResponse.InferOutputTensor`, without parameters.
#[derive(Clone, PartialEq, Message)]
struct OutputTensor {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    datatype: String,
    #[prost(int64, repeated, tag = "3")]
    shape: Vec<i64>,
    #[prost(message, optional, boxed, tag = "5")]
    contents: Option<Box<Contents>>,
}

/// `InferTensorContents`
#[derive(Clone, PartialEq, Message)]
struct Contents {
    #[prost(bool, repeated, tag = "1")]
    bools: Vec<bool>,
    #[prost(int32, repeated, tag = "2")]
    ints: Vec<i32>,
    #[prost(int64, repeated, tag = "3")]
    longs: Vec<i64>,
    #[prost(uint32, repeated, tag = "4")]
    unsigned_ints: Vec<u32>,
    #[prost(uint64, repeated, tag = "5")]
    unsigned_longs: Vec<u64>,
    #[prost(float, repeated, tag = "6")]
    floats: Vec<f32>,
    #[prost(double, repeated, tag = "7")]
    doubles: Vec<f64>,
    #[prost(bytes = "bytes", repeated, tag = "8")]
    texts: Vec<Bytes>,
}

/// The fields of a message that are read.
#[derive(Default)]
struct Fields {
    outputs: Vec<Bytes>,
    raw: Vec<Bytes>,
    /// `ModelStreamInferResponse.infer_response`
    inner: Option<Bytes>,
    /// `ModelStreamInferResponse.error_message`; in a `ModelInferResponse` the model's name.
    first: Bytes,
}

/// The tensors of all messages, in order.
pub(crate) fn decode(messages: &[Bytes]) -> Result<Vec<DecodedTensor>, AnswerDecodeError> {
    let mut tensors = Vec::new();
    for message in messages {
        let mut fields = Fields::read(message.clone())?;
        if fields.outputs.is_empty() && fields.inner.is_none() && !fields.first.is_empty() {
            let error = shown_name(&String::from_utf8_lossy(&fields.first));
            return Err(AnswerDecodeError::malformed(format!("an answer without outputs, or an error in a stream: {error}")));
        }
        // in an answer field 2 is the model's version; in a stream it is the answer
        if let Some(inner) = fields.inner.take().filter(|_| fields.outputs.is_empty()) {
            fields = Fields::read(inner)?;
        }
        if tensors.len() + fields.outputs.len() > MAX_TENSORS {
            return Err(AnswerDecodeError::malformed(format!("more than {MAX_TENSORS} outputs")));
        }
        append(&fields.outputs, fields.raw, &mut tensors)?;
    }
    Ok(tensors)
}

impl Fields {
    /// Reads the top level of a message. Beyond [`MAX_TENSORS`] outputs nothing is kept.
    fn read(mut message: Bytes) -> Result<Self, AnswerDecodeError> {
        let mut fields = Self::default();
        while message.has_remaining() {
            let (number, wire) = decode_key(&mut message).map_err(not_protobuf)?;
            if wire != WireType::LengthDelimited {
                skip_field(wire, number, &mut message, DecodeContext::default()).map_err(not_protobuf)?;
                continue;
            }
            let length = usize::try_from(decode_varint(&mut message).map_err(not_protobuf)?).unwrap_or(usize::MAX);
            if length > message.remaining() {
                return Err(AnswerDecodeError::malformed("not protobuf: a field is cut off"));
            }
            let value = message.split_to(length);
            match number {
                1 => fields.first = value,
                2 => fields.inner = Some(value),
                5 if fields.outputs.len() <= MAX_TENSORS => fields.outputs.push(value),
                6 if fields.raw.len() <= MAX_TENSORS => fields.raw.push(value),
                _ => {}
            }
        }
        Ok(fields)
    }
}

fn not_protobuf(error: prost::DecodeError) -> AnswerDecodeError {
    AnswerDecodeError::malformed(format!("not protobuf: {error}"))
}

fn append(outputs: &[Bytes], raw: Vec<Bytes>, tensors: &mut Vec<DecodedTensor>) -> Result<(), AnswerDecodeError> {
    let is_raw = !raw.is_empty();
    let mut raw = raw.into_iter();
    for output in outputs {
        let output = OutputTensor::decode(output.clone()).map_err(not_protobuf)?;
        let fault = |reason: &str| AnswerDecodeError::malformed(format!("tensor {}: {reason}", shown_name(&output.name)));
        let element = ElementType::parse(&output.datatype).ok_or_else(|| fault("no known datatype"))?;
        let data = match output.contents {
            Some(contents) if !is_raw => {
                typed(element, *contents).ok_or_else(|| fault("contents that do not fit the datatype"))?
            }
            None if !is_raw => TensorData::from_raw(element, Bytes::new())?,
            _ => TensorData::from_raw(element, raw.next().ok_or_else(|| fault("no raw contents"))?)?,
        };
        tensors.push(DecodedTensor::new(output.name, element, &output.shape, data)?);
    }
    if raw.next().is_some() {
        return Err(AnswerDecodeError::malformed("more raw contents than outputs"));
    }
    Ok(())
}

/// Typed contents as little-endian data; `None` for a number that does not fit the type.
fn typed(element: ElementType, contents: Contents) -> Option<TensorData> {
    let mut data = BytesMut::new();
    match element {
        ElementType::Bool => contents.bools.iter().for_each(|value| data.put_u8((*value).into())),
        ElementType::Uint8 => contents.unsigned_ints.iter().try_for_each(|n| u8::try_from(*n).map(|n| data.put_u8(n))).ok()?,
        ElementType::Uint16 => {
            contents.unsigned_ints.iter().try_for_each(|n| u16::try_from(*n).map(|n| data.put_u16_le(n))).ok()?
        }
        ElementType::Uint32 => contents.unsigned_ints.iter().for_each(|n| data.put_u32_le(*n)),
        ElementType::Uint64 => contents.unsigned_longs.iter().for_each(|n| data.put_u64_le(*n)),
        ElementType::Int8 => contents.ints.iter().try_for_each(|n| i8::try_from(*n).map(|n| data.put_i8(n))).ok()?,
        ElementType::Int16 => contents.ints.iter().try_for_each(|n| i16::try_from(*n).map(|n| data.put_i16_le(n))).ok()?,
        ElementType::Int32 => contents.ints.iter().for_each(|n| data.put_i32_le(*n)),
        ElementType::Int64 => contents.longs.iter().for_each(|n| data.put_i64_le(*n)),
        ElementType::Fp32 => contents.floats.iter().for_each(|n| data.put_f32_le(*n)),
        ElementType::Fp64 => contents.doubles.iter().for_each(|n| data.put_f64_le(*n)),
        // the protocol has no typed contents for halves
        ElementType::Fp16 | ElementType::Bf16 => return None,
        ElementType::Bytes => return Some(TensorData::Texts(contents.texts)),
    }
    Some(TensorData::Numbers(element, data.freeze()))
}
