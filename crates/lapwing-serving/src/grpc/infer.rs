//! `ModelInfer`: from the message to the request, and from the answer to its message. Inputs come raw or as typed contents; outputs are
//! sent raw, as by Triton.

use std::collections::HashMap;

use bytes::{BufMut, Bytes, BytesMut};
use prost::Message;

use super::messages::infer_parameter::ParameterChoice;
use super::messages::model_infer_request::{InferInputTensor, InferRequestedOutputTensor};
use super::messages::model_infer_response::InferOutputTensor;
use super::messages::{InferParameter, InferTensorContents, ModelInferRequest, ModelInferResponse};
use crate::bounds::check_names;
use crate::error::RequestError;
use crate::in_flight::{InferenceRequest, RequestTimeout};
use lapwing_model::service::{About, Answer};
use lapwing_onnx::tensor::{Datatype, Tensor, put_text};

/// Decodes the message into a request to the model; raw tensors share the message's memory.
pub(crate) fn decode(message: ModelInferRequest, timeout: RequestTimeout) -> Result<InferenceRequest, RequestError> {
    let raw = message.raw_input_contents;
    if !raw.is_empty() && raw.len() != message.inputs.len() {
        let (given, wanted) = (raw.len(), message.inputs.len());
        return Err(RequestError::Input(format!(
            "raw_input_contents: {given} are given for {wanted} inputs; all come so, or none"
        )));
    }
    let mut raw = raw.into_iter();
    let mut inputs = Vec::with_capacity(message.inputs.len());
    for (i, input) in message.inputs.into_iter().enumerate() {
        let place = format!("inputs[{i}] ({})", input.name);
        inputs.push(tensor(input, raw.next()).map_err(|reason| RequestError::Input(format!("{place}: {reason}")))?);
    }
    let outputs = message.outputs.into_iter().enumerate().map(|(i, output)| wanted(i, output)).collect::<Result<Vec<_>, _>>()?;
    check_names(&inputs, &outputs)?;
    let timeout = timeout.shorter_of(timeout_parameter(&message.parameters)?);
    Ok(InferenceRequest { inputs, outputs, timeout })
}

fn tensor(input: InferInputTensor, raw: Option<Bytes>) -> Result<Tensor, String> {
    if input.parameters.contains_key("shared_memory_region") {
        return Err("shared_memory_region: there is no shared memory here".to_owned());
    }
    let datatype = Datatype::from_name(&input.datatype)
        .ok_or_else(|| format!("datatype: {:?} is none of those that are read here", input.datatype))?;
    let shape: Result<Vec<usize>, _> = input.shape.iter().map(|axis| usize::try_from(*axis)).collect();
    let shape = shape.map_err(|_| format!("shape: {:?} has an axis below 0", input.shape))?;
    let size = shape.iter().try_fold(datatype.least_bytes(), |product, axis| product.checked_mul(*axis));
    let size = size.ok_or_else(|| format!("shape: {shape:?} has more elements than can be counted"))?;
    let (field, data) = match (raw, input.contents) {
        (Some(raw), None) => ("raw_input_contents", raw),
        (Some(_), Some(_)) => return Err("contents: must not stand beside raw_input_contents".to_owned()),
        (None, contents) => ("contents", contents_bytes(&contents.unwrap_or_default(), datatype)?),
    };
    if datatype.bytes().is_none() {
        datatype.check(size / datatype.least_bytes(), &data).map_err(|reason| format!("{field}: {reason}"))?;
    } else if data.len() != size {
        let (given, name) = (data.len(), datatype.name());
        return Err(format!("{field}: {given} bytes where {name} of shape {shape:?} takes {size}"));
    }
    Ok(Tensor { name: input.name, datatype, shape, data })
}

fn wanted(i: usize, output: InferRequestedOutputTensor) -> Result<String, RequestError> {
    for refused in ["classification", "shared_memory_region"] {
        if output.parameters.contains_key(refused) {
            return Err(RequestError::Input(format!("outputs[{i}] ({}): {refused}: is not served here", output.name)));
        }
    }
    Ok(output.name)
}

/// Reads Triton's parameter `timeout`, in microseconds.
fn timeout_parameter(parameters: &HashMap<String, InferParameter>) -> Result<RequestTimeout, RequestError> {
    let Some(given) = parameters.get("timeout") else { return Ok(RequestTimeout::default()) };
    let micros = match given.parameter_choice {
        Some(ParameterChoice::Int64Param(micros)) => u64::try_from(micros).ok(),
        Some(ParameterChoice::Uint64Param(micros)) => Some(micros),
        _ => None,
    };
    let fault = || RequestError::Input(format!("parameters.timeout: {:?} is no number of microseconds", given.parameter_choice));
    micros.map(RequestTimeout::from_micros).ok_or_else(fault)
}

/// The answer's message, encoded.
pub(crate) fn encode(about: &About, id: String, answer: &Answer) -> Bytes {
    let outputs = answer.outputs.iter().map(|tensor| InferOutputTensor {
        name: tensor.name.clone(),
        datatype: tensor.datatype.name().to_owned(),
        shape: tensor.shape.iter().map(|axis| i64::try_from(*axis).unwrap_or(i64::MAX)).collect(),
        ..InferOutputTensor::default()
    });
    let response = ModelInferResponse {
        model_name: about.name.clone(),
        model_version: about.version.clone(),
        id,
        parameters: parameters(about, answer),
        outputs: outputs.collect(),
        raw_output_contents: answer.outputs.iter().map(|tensor| tensor.data.clone()).collect(),
    };
    response.encode_to_vec().into()
}

/// The parameters that say which executor and device ran the request, and in which batch; the same as in REST.
fn parameters(about: &About, answer: &Answer) -> HashMap<String, InferParameter> {
    let text = |text: &str| ParameterChoice::StringParam(text.to_owned());
    let count = |count: usize| ParameterChoice::Int64Param(i64::try_from(count).unwrap_or(i64::MAX));
    let all = [
        ("executor", text(about.executor.name())),
        ("device", text(&answer.placement.device)),
        ("precision", text(answer.placement.precision)),
        ("batch_calls", count(answer.batch.calls)),
        ("batch_rows", count(answer.batch.rows)),
        ("batch_tokens", count(answer.batch.executed)),
        ("padding_waste", ParameterChoice::DoubleParam(answer.batch.padding_waste())),
    ];
    let flops = [("batch_flops", answer.batch.flops), ("batch_useful_flops", answer.batch.useful_flops)];
    let flops = flops
        .into_iter()
        .filter_map(|(name, flops)| Some((name, ParameterChoice::Int64Param(i64::try_from(flops?).unwrap_or(i64::MAX)))));
    all.into_iter()
        .chain(flops)
        .map(|(name, choice)| (name.to_owned(), InferParameter { parameter_choice: Some(choice) }))
        .collect()
}

/// The bytes of the elements, from the field that belongs to the datatype; any other must be empty.
fn contents_bytes(contents: &InferTensorContents, datatype: Datatype) -> Result<Bytes, String> {
    let field = contents_field(datatype).ok_or_else(|| format!("{} comes in raw_input_contents only", datatype.name()))?;
    let held = contents_lengths(contents);
    if let Some((other, _)) = held.iter().find(|(name, length)| *length > 0 && *name != field) {
        return Err(format!("{other} is given, but {} comes in {field}", datatype.name()));
    }
    let length = held.iter().find(|(name, _)| *name == field).map_or(0, |(_, length)| *length);
    let mut out = BytesMut::with_capacity(length.saturating_mul(datatype.least_bytes()));
    macro_rules! each {
        ($values:expr, $put:ident) => {
            $values.iter().for_each(|value| out.$put(*value))
        };
    }
    macro_rules! narrowed {
        ($values:expr, $type:ty, $put:ident) => {
            for (i, value) in $values.iter().enumerate() {
                let narrow = <$type>::try_from(*value).map_err(|_| format!("{field}[{i}]: {value} is no {}", datatype.name()))?;
                out.$put(narrow);
            }
        };
    }
    match datatype {
        Datatype::Bool => contents.bool_contents.iter().for_each(|value| out.put_u8(u8::from(*value))),
        Datatype::Uint8 => narrowed!(contents.uint_contents, u8, put_u8),
        Datatype::Uint16 => narrowed!(contents.uint_contents, u16, put_u16_le),
        Datatype::Uint32 => each!(contents.uint_contents, put_u32_le),
        Datatype::Uint64 => each!(contents.uint64_contents, put_u64_le),
        Datatype::Int8 => narrowed!(contents.int_contents, i8, put_i8),
        Datatype::Int16 => narrowed!(contents.int_contents, i16, put_i16_le),
        Datatype::Int32 => each!(contents.int_contents, put_i32_le),
        Datatype::Int64 => each!(contents.int64_contents, put_i64_le),
        Datatype::Fp32 => each!(contents.fp32_contents, put_f32_le),
        Datatype::Fp64 => each!(contents.fp64_contents, put_f64_le),
        Datatype::Bytes => contents.bytes_contents.iter().for_each(|text| put_text(&mut out, text)),
        Datatype::Fp16 | Datatype::Bf16 => {}
    }
    Ok(out.freeze())
}

/// The field that holds elements of a datatype; `None` for the two that have no field in the protocol.
const fn contents_field(datatype: Datatype) -> Option<&'static str> {
    match datatype {
        Datatype::Bool => Some("bool_contents"),
        Datatype::Uint8 | Datatype::Uint16 | Datatype::Uint32 => Some("uint_contents"),
        Datatype::Uint64 => Some("uint64_contents"),
        Datatype::Int8 | Datatype::Int16 | Datatype::Int32 => Some("int_contents"),
        Datatype::Int64 => Some("int64_contents"),
        Datatype::Fp32 => Some("fp32_contents"),
        Datatype::Fp64 => Some("fp64_contents"),
        Datatype::Bytes => Some("bytes_contents"),
        Datatype::Fp16 | Datatype::Bf16 => None,
    }
}

/// How many elements each field holds.
const fn contents_lengths(contents: &InferTensorContents) -> [(&'static str, usize); 8] {
    [
        ("bool_contents", contents.bool_contents.len()),
        ("int_contents", contents.int_contents.len()),
        ("int64_contents", contents.int64_contents.len()),
        ("uint_contents", contents.uint_contents.len()),
        ("uint64_contents", contents.uint64_contents.len()),
        ("fp32_contents", contents.fp32_contents.len()),
        ("fp64_contents", contents.fp64_contents.len()),
        ("bytes_contents", contents.bytes_contents.len()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn raw_tensors_share_the_memory_of_their_message() {
        let raw_input_contents = vec![Bytes::from(vec![7; 4096]), Bytes::from_static(b"end")];
        let message = Bytes::from(ModelInferRequest { raw_input_contents, ..Default::default() }.encode_to_vec());
        let memory = message.as_ptr_range();
        let read = ModelInferRequest::decode(message.clone()).unwrap();
        assert_eq!(read.raw_input_contents.iter().map(Bytes::len).collect::<Vec<_>>(), [4096, 3]);
        for raw in &read.raw_input_contents {
            let range = raw.as_ptr_range();
            assert!(memory.start <= range.start && range.end <= memory.end, "{range:?} is not in {memory:?}");
        }
    }

    #[test]
    fn a_message_has_the_bytes_that_the_specification_gives_it() {
        let choice = |choice| InferParameter { parameter_choice: Some(choice) };
        let input = InferInputTensor { name: "x".into(), datatype: "BOOL".into(), shape: vec![1, 300], ..Default::default() };
        let message = ModelInferRequest {
            model_name: "m".into(),
            model_version: "2".into(),
            id: "7".into(),
            parameters: [("t".to_owned(), choice(ParameterChoice::Uint64Param(1)))].into(),
            inputs: vec![input],
            outputs: vec![InferRequestedOutputTensor { name: "y".into(), ..Default::default() }],
            raw_input_contents: vec![Bytes::from_static(b"\x01")],
        };
        let wanted: &[u8] = b"\x0a\x01m\x12\x012\x1a\x017\x22\x07\x0a\x01t\x12\x02\x28\x01\
            \x2a\x0e\x0a\x01x\x12\x04BOOL\x1a\x03\x01\xac\x02\x32\x03\x0a\x01y\x3a\x01\x01";
        assert_eq!(message.encode_to_vec(), wanted);
    }
}
