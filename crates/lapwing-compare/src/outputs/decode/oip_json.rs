//! Tensors of the Open Inference Protocol's REST answers: `outputs[].{name, datatype, shape, data}`, or with
//! `parameters.binary_data_size` bytes after the JSON, in the order of the outputs.
//!
//! `null` in a float tensor is NaN, because that is how servers write it. Everything but `outputs` is left out: ids and versions are
//! not what a model computed.

use bytes::{BufMut, Bytes, BytesMut};

use super::AnswerDecodeError;
use super::document::{Document, DocumentValue, Node};
use super::element::{ElementType, Number};
use super::lenient::not_finite;
use super::tensor::{DecodedTensor, MAX_TENSORS, TensorData, shown_name};

/// Whether the document is an answer with outputs.
pub(crate) fn has_outputs(document: &Document) -> bool {
    document.root().get("outputs").is_some_and(|outputs| outputs.elements().is_some())
}

/// The tensors of an answer, of which `binary` follows the document.
pub(crate) fn decode(document: &Document, binary: &Bytes) -> Result<Vec<DecodedTensor>, AnswerDecodeError> {
    let outputs = document.root().get("outputs");
    let outputs = outputs.as_ref().and_then(|outputs| outputs.elements());
    let outputs = outputs.ok_or_else(|| AnswerDecodeError::malformed("the answer has no list of outputs"))?;
    let (mut tensors, mut rest) = (Vec::new(), binary.clone());
    for output in outputs {
        if tensors.len() == MAX_TENSORS {
            return Err(AnswerDecodeError::malformed(format!("more than {MAX_TENSORS} outputs")));
        }
        tensors.push(tensor(output, &mut rest)?);
    }
    if !rest.is_empty() {
        return Err(AnswerDecodeError::malformed(format!("{} bytes behind the last output", rest.len())));
    }
    Ok(tensors)
}

fn tensor(output: DocumentValue<'_>, rest: &mut Bytes) -> Result<DecodedTensor, AnswerDecodeError> {
    let name = output.get_text("name").unwrap_or_default().to_owned();
    let fault = |reason: &str| AnswerDecodeError::malformed(format!("tensor {}: {reason}", shown_name(&name)));
    let element = output.get_text("datatype").and_then(ElementType::parse).ok_or_else(|| fault("no known datatype"))?;
    let shape = output.get("shape");
    let shape = shape.as_ref().and_then(|shape| shape.elements()).ok_or_else(|| fault("no shape"))?;
    let shape: Option<Vec<i64>> = shape.take(64).map(|size| i64::try_from(size.count()?).ok()).collect();
    let shape = shape.ok_or_else(|| fault("a dimension that is no count"))?;
    let bytes = output.get("parameters").and_then(|parameters| parameters.get("binary_data_size")?.count());
    let data = if let Some(bytes) = bytes {
        let bytes = usize::try_from(bytes).ok().filter(|bytes| *bytes <= rest.len());
        TensorData::from_raw(element, rest.split_to(bytes.ok_or_else(|| fault("binary data are cut off"))?))?
    } else {
        let data = output.get("data").ok_or_else(|| fault("no data"))?;
        if element == ElementType::Bytes {
            let mut texts = Vec::new();
            flatten(data, &mut |value| value.text().map(|text| texts.push(Bytes::copy_from_slice(text.as_bytes()))))
                .ok_or_else(|| fault("data that are no texts"))?;
            TensorData::Texts(texts)
        } else {
            let stored = if matches!(element, ElementType::Fp16 | ElementType::Bf16) { ElementType::Fp32 } else { element };
            let mut numbers = BytesMut::new();
            flatten(data, &mut |value| write(value, stored, &mut numbers).or_else(|| write_word(value, stored, &mut numbers)))
                .ok_or_else(|| fault("data of another type"))?;
            TensorData::Numbers(stored, numbers.freeze())
        }
    };
    DecodedTensor::new(name, element, &shape, data)
}

/// Appends the value of a text such as `"NaN"` in a float tensor, as protobuf's JSON has it; `None` for any other.
#[expect(clippy::cast_possible_truncation, reason = "no finite number is written")]
fn write_word(value: DocumentValue<'_>, element: ElementType, out: &mut BytesMut) -> Option<()> {
    let number = value.text().and_then(|text| not_finite(text.as_bytes()))?;
    match element {
        ElementType::Fp32 => out.put_f32_le(number as f32),
        ElementType::Fp64 => out.put_f64_le(number),
        _ => return None,
    }
    Some(())
}

/// Calls `on` with each value that is not a list, in order; `None` as soon as it returns `None`. Lists nest at most 128 deep.
fn flatten(value: DocumentValue<'_>, on: &mut impl FnMut(DocumentValue<'_>) -> Option<()>) -> Option<()> {
    match value.elements() {
        Some(mut elements) => elements.try_for_each(|element| flatten(element, on)),
        None => on(value),
    }
}

/// Appends a value in this type; `None` if it does not fit.
pub(crate) fn write(value: DocumentValue<'_>, element: ElementType, out: &mut BytesMut) -> Option<()> {
    let number = match value.node() {
        Node::Bool(is_true) => Number::Integer(is_true.into()),
        Node::Null if element.is_float() => Number::Float(f64::NAN),
        _ => value.number()?,
    };
    write_number(number, element, out)
}

/// Appends a number in this type; `None` if it does not fit.
#[expect(clippy::cast_possible_truncation, reason = "a double is rounded to the tensor's own precision")]
pub(crate) fn write_number(number: Number, element: ElementType, out: &mut BytesMut) -> Option<()> {
    match (element, number) {
        (ElementType::Fp32, number) => out.put_f32_le(number.as_f64() as f32),
        (ElementType::Fp64, number) => out.put_f64_le(number.as_f64()),
        (_, Number::Float(_)) => return None,
        (ElementType::Bool, Number::Integer(n)) => out.put_u8((n != 0).into()),
        (ElementType::Uint8, Number::Integer(n)) => out.put_u8(n.try_into().ok()?),
        (ElementType::Int8, Number::Integer(n)) => out.put_i8(n.try_into().ok()?),
        (ElementType::Uint16, Number::Integer(n)) => out.put_u16_le(n.try_into().ok()?),
        (ElementType::Int16, Number::Integer(n)) => out.put_i16_le(n.try_into().ok()?),
        (ElementType::Uint32, Number::Integer(n)) => out.put_u32_le(n.try_into().ok()?),
        (ElementType::Int32, Number::Integer(n)) => out.put_i32_le(n.try_into().ok()?),
        (ElementType::Uint64, Number::Integer(n)) => out.put_u64_le(n.try_into().ok()?),
        (ElementType::Int64, Number::Integer(n)) => out.put_i64_le(n.try_into().ok()?),
        (ElementType::Fp16 | ElementType::Bf16 | ElementType::Bytes, _) => return None,
    }
    Some(())
}
