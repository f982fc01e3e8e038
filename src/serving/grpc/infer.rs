//! `ModelInfer`: from the message to the answer. Outputs go raw, as Triton sends them.

use std::collections::HashMap;

use bytes::Bytes;
use prost::Message;

use super::contents;
use super::messages::{
    Choice, InferInputTensor, InferOutputTensor, InferParameter, InferRequestedOutputTensor, ModelInferRequest,
    ModelInferResponse,
};
use crate::serving::deadline::Patience;
use crate::serving::flight::Asked;
use crate::serving::refusal::Refusal;
use lapwing_engine::service::{About, Answer};
use lapwing_engine::tensor::{Datatype, Tensor};

/// Bytes of the message before what serving asks of the model.
pub(super) fn decode(message: ModelInferRequest, patience: Patience) -> Result<Asked, Refusal> {
    let raw = message.raw_input_contents;
    if !raw.is_empty() && raw.len() != message.inputs.len() {
        let (given, wanted) = (raw.len(), message.inputs.len());
        return Err(Refusal::Input(format!("raw_input_contents: {given} are given for {wanted} inputs; all come so, or none")));
    }
    let mut raw = raw.into_iter();
    let mut inputs = Vec::with_capacity(message.inputs.len());
    for (i, input) in message.inputs.into_iter().enumerate() {
        let place = format!("inputs[{i}] ({})", input.name);
        inputs.push(tensor(input, raw.next()).map_err(|reason| Refusal::Input(format!("{place}: {reason}")))?);
    }
    let outputs = message.outputs.into_iter().enumerate().map(|(i, output)| wanted(i, output)).collect::<Result<_, _>>()?;
    let patience = patience.and(timeout(&message.parameters)?);
    Ok(Asked { inputs, outputs, patience })
}

fn tensor(input: InferInputTensor, raw: Option<Bytes>) -> Result<Tensor, String> {
    if input.parameters.contains_key("shared_memory_region") {
        return Err("shared_memory_region: there is no shared memory here".to_owned());
    }
    let datatype = Datatype::from_name(&input.datatype)
        .ok_or_else(|| format!("datatype: {:?} is none of those that are read here", input.datatype))?;
    let shape: Result<Vec<usize>, _> = input.shape.iter().map(|axis| usize::try_from(*axis)).collect();
    let shape = shape.map_err(|_| format!("shape: {:?} has an axis below 0", input.shape))?;
    let size = shape.iter().try_fold(datatype.bytes(), |product, axis| product.checked_mul(*axis));
    let size = size.ok_or_else(|| format!("shape: {shape:?} has more elements than can be counted"))?;
    let (field, data) = match (raw, input.contents) {
        (Some(raw), None) => ("raw_input_contents", raw),
        (Some(_), Some(_)) => return Err("contents: must not stand beside raw_input_contents".to_owned()),
        (None, contents) => ("contents", contents::bytes(&contents.unwrap_or_default(), datatype)?),
    };
    if data.len() != size {
        let (given, name) = (data.len(), datatype.name());
        return Err(format!("{field}: {given} bytes where {name} of shape {shape:?} takes {size}"));
    }
    Ok(Tensor { name: input.name, datatype, shape, data })
}

fn wanted(i: usize, output: InferRequestedOutputTensor) -> Result<String, Refusal> {
    for refused in ["classification", "shared_memory_region"] {
        if output.parameters.contains_key(refused) {
            return Err(Refusal::Input(format!("outputs[{i}] ({}): {refused}: is not served here", output.name)));
        }
    }
    Ok(output.name)
}

/// Triton's parameter, in microseconds.
fn timeout(parameters: &HashMap<String, InferParameter>) -> Result<Patience, Refusal> {
    let Some(given) = parameters.get("timeout") else { return Ok(Patience::default()) };
    let micros = match given.parameter_choice {
        Some(Choice::Int64(micros)) => u64::try_from(micros).ok(),
        Some(Choice::Uint64(micros)) => Some(micros),
        _ => None,
    };
    let fault = || Refusal::Input(format!("parameters.timeout: {:?} is no number of microseconds", given.parameter_choice));
    micros.map(Patience::of_micros).ok_or_else(fault)
}

/// The answer's message, encoded.
pub(super) fn encode(about: &About, id: String, answer: &Answer) -> Bytes {
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

/// Who ran it, and with what: as in REST.
fn parameters(about: &About, answer: &Answer) -> HashMap<String, InferParameter> {
    let text = |text: &str| Choice::String(text.to_owned());
    let count = |count: usize| Choice::Int64(i64::try_from(count).unwrap_or(i64::MAX));
    let all = [
        ("executor", text(about.executor)),
        ("device", text(&answer.placement.device)),
        ("precision", text(answer.placement.precision)),
        ("batch_calls", count(answer.batch.calls)),
        ("batch_rows", count(answer.batch.rows)),
        ("batch_tokens", count(answer.batch.executed)),
        ("padding_waste", Choice::Double(answer.batch.padding_waste())),
    ];
    let flops = [("batch_flops", answer.batch.flops), ("batch_useful_flops", answer.batch.useful_flops)];
    let flops =
        flops.into_iter().filter_map(|(name, flops)| Some((name, Choice::Int64(i64::try_from(flops?).unwrap_or(i64::MAX)))));
    all.into_iter()
        .chain(flops)
        .map(|(name, choice)| (name.to_owned(), InferParameter { parameter_choice: Some(choice) }))
        .collect()
}
