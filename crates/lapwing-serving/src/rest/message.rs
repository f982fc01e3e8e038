//! The bodies of an inference request and of its answer: JSON, with tensors in it or as binary data behind it (Triton's extension).

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::elements::{Elements, first_without_json, flatten};
use super::list::{Axes, Tensors};
use crate::bounds::{MAX_ID, check_names, expands, expansion};
use crate::error::Bound;
use crate::error::RequestError;
use crate::in_flight::{InferenceRequest, RequestTimeout};
use lapwing_model::service::{About, Answer};
use lapwing_onnx::tensor::{Datatype, Tensor};

/// A decoded request, and the form in which its answer is encoded.
#[derive(Debug)]
pub(crate) struct DecodedRequest {
    pub(crate) id: Option<String>,
    pub(crate) asked: InferenceRequest,
    pub(crate) form: OutputFormat,
}

/// Which outputs are sent as binary data.
#[derive(Debug)]
pub(crate) struct OutputFormat {
    /// Outputs that the request does not mention.
    rest: bool,
    /// Outputs that it mentions, by name.
    named: Vec<(String, bool)>,
}

impl OutputFormat {
    /// Whether this output goes as binary data.
    pub(crate) fn is_binary(&self, output: &str) -> bool {
        self.named.iter().find(|(name, _)| name == output).map_or(self.rest, |(_, is_binary)| *is_binary)
    }
}

#[derive(Debug, Deserialize)]
struct RequestBody<'a> {
    id: Option<String>,
    parameters: Option<RequestParameters>,
    #[serde(borrow)]
    inputs: Tensors<GivenInput<'a>>,
    outputs: Option<Tensors<RequestedOutput>>,
}

#[derive(Debug, Default, Deserialize)]
struct RequestParameters {
    timeout: Option<u64>,
    binary_data_output: Option<bool>,
}

#[derive(Debug, Deserialize)]
struct GivenInput<'a> {
    name: String,
    shape: Axes,
    datatype: String,
    parameters: Option<InputParameters>,
    #[serde(borrow)]
    data: Option<&'a RawValue>,
}

#[derive(Debug, Default, Deserialize)]
struct InputParameters {
    binary_data_size: Option<usize>,
    shared_memory_region: Option<String>,
}

#[derive(Debug, Deserialize)]
struct RequestedOutput {
    name: String,
    parameters: Option<OutputParameters>,
}

#[derive(Debug, Default, Deserialize)]
struct OutputParameters {
    binary_data: Option<bool>,
    classification: Option<u64>,
    shared_memory_region: Option<String>,
}

fn input_fault(text: impl Into<String>) -> RequestError {
    RequestError::Input(text.into())
}

/// Reads a body of which the first `json_length` bytes are JSON; all of it if that is `None`. `received` is its size before it was
/// decompressed.
pub(crate) fn decode_request(
    body: &Bytes,
    json_length: Option<usize>,
    received: usize,
    about: &About,
) -> Result<DecodedRequest, RequestError> {
    let length = json_length.unwrap_or(body.len());
    if length > body.len() {
        let size = body.len();
        return Err(input_fault(format!("inference-header-content-length: {length} is more than the body's {size} bytes")));
    }
    let mut json = serde_json::Deserializer::from_slice(&body[..length]);
    let parsed: RequestBody<'_> = serde_path_to_error::deserialize(&mut json).map_err(|error| {
        let path = error.path().to_string();
        let at = if path == "." { String::new() } else { format!("{path}: ") };
        input_fault(format!("{at}{}", error.inner()))
    })?;
    json.end().map_err(|error| input_fault(error.to_string()))?;
    Bound::Id.check("id", parsed.id.as_ref().map_or(0, String::len), MAX_ID)?;
    let (given, wanted_outputs) = (parsed.inputs.checked("inputs")?, parsed.outputs.unwrap_or_default().checked("outputs")?);
    let mut binary = body.slice(length..);
    let mut inputs = Vec::with_capacity(given.len());
    let mut decoded = 0_usize;
    for (i, mut input) in given.into_iter().enumerate() {
        let place = format!("inputs[{i}] ({})", input.name);
        let shape = std::mem::take(&mut input.shape).checked(&place)?;
        // numbers in JSON become larger: two characters may be eight bytes
        if input.data.is_some() {
            let elements = shape.iter().try_fold(1_usize, |product, axis| product.checked_mul(*axis)).unwrap_or(usize::MAX);
            let held = input.data.map_or(0, |json| json.get().len() / 2 + 1);
            decoded = decoded.saturating_add(elements.min(held).saturating_mul(8));
            if decoded > expansion(received) {
                return Err(expands(received));
            }
        }
        inputs.push(tensor(input, shape, &mut binary).map_err(|reason| input_fault(format!("{place}: {reason}")))?);
    }
    if !binary.is_empty() {
        return Err(input_fault(format!("binary data: {} bytes are left that belong to no input", binary.len())));
    }
    let parameters = parsed.parameters.unwrap_or_default();
    let (outputs, form) = wanted(wanted_outputs, parameters.binary_data_output, about)?;
    check_names(&inputs, &outputs)?;
    let timeout = RequestTimeout::from_micros(parameters.timeout.unwrap_or_default());
    Ok(DecodedRequest { id: parsed.id, asked: InferenceRequest { inputs, outputs, timeout }, form })
}

/// A tensor of `input`, whose bytes are in it, or next in `binary`.
fn tensor(input: GivenInput<'_>, shape: Vec<usize>, binary: &mut Bytes) -> Result<Tensor, String> {
    let datatype = Datatype::from_name(&input.datatype)
        .ok_or_else(|| format!("datatype: {:?} is none of those that are read here", input.datatype))?;
    let elements = shape.iter().try_fold(1_usize, |product, axis| product.checked_mul(*axis));
    let sizes = elements.and_then(|elements| Some((elements, elements.checked_mul(datatype.least_bytes())?)));
    let (elements, size) = sizes.ok_or_else(|| format!("shape: {:?} has more elements than can be counted", shape))?;
    let parameters = input.parameters.unwrap_or_default();
    if let Some(region) = parameters.shared_memory_region {
        return Err(format!("shared_memory_region: {region:?}: there is no shared memory here"));
    }
    let data = match (parameters.binary_data_size, input.data) {
        (Some(_), Some(_)) => return Err("data: must not stand beside binary_data_size".to_owned()),
        (None, None) => return Err("data: is missing, and there is no binary_data_size".to_owned()),
        (None, Some(json)) => flatten(json.get(), datatype, &shape, elements).map_err(|reason| format!("data: {reason}"))?,
        (Some(given), None) if given != size && datatype.bytes().is_some() => {
            let name = datatype.name();
            return Err(format!("binary_data_size: {given} where {name} of shape {shape:?} takes {size}"));
        }
        (Some(given), None) if given > binary.len() => {
            return Err(format!("binary_data_size: {given} where {} bytes are left of the body", binary.len()));
        }
        (Some(given), None) => {
            let data = binary.split_to(given);
            datatype.check(elements, &data).map_err(|reason| format!("binary_data_size: {given}: {reason}"))?;
            data
        }
    };
    Ok(Tensor { name: input.name, datatype, shape, data })
}

/// The outputs' names, and their form; an output that cannot be represented in its form is refused before the model runs.
fn wanted(
    outputs: Vec<RequestedOutput>,
    default: Option<bool>,
    about: &About,
) -> Result<(Vec<String>, OutputFormat), RequestError> {
    let (mut names, mut form) =
        (Vec::with_capacity(outputs.len()), OutputFormat { rest: default.unwrap_or(false), named: Vec::new() });
    for (i, output) in outputs.into_iter().enumerate() {
        let parameters = output.parameters.unwrap_or_default();
        let place = format!("outputs[{i}] ({})", output.name);
        if parameters.classification.is_some_and(|count| count > 0) {
            return Err(input_fault(format!("{place}: classification: outputs are not sorted into classes here")));
        }
        if let Some(region) = parameters.shared_memory_region {
            return Err(input_fault(format!("{place}: shared_memory_region: {region:?}: there is no shared memory here")));
        }
        if let Some(is_binary) = parameters.binary_data {
            form.named.push((output.name.clone(), is_binary));
        }
        names.push(output.name);
    }
    let is_wanted = |name: &String| names.is_empty() || names.contains(name);
    let half = about.outputs.iter().find(|port| {
        matches!(port.datatype, Datatype::Fp16 | Datatype::Bf16) && is_wanted(&port.name) && !form.is_binary(&port.name)
    });
    match half {
        Some(port) => {
            let (name, datatype) = (&port.name, port.datatype.name());
            Err(input_fault(format!("outputs ({name}): {datatype} goes as binary data only: ask for binary_data")))
        }
        None => Ok((names, form)),
    }
}

/// An encoded answer.
#[derive(Debug)]
pub(crate) struct EncodedResponse {
    pub(crate) body: Bytes,
    /// Bytes of JSON before binary data, if there is any.
    pub(crate) json_length: Option<usize>,
}

#[derive(Serialize)]
struct ResponseBody<'a> {
    model_name: &'a str,
    model_version: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a str>,
    parameters: ResponseParameters<'a>,
    outputs: Vec<ResponseOutput<'a>>,
}

/// Which executor and device ran the request, and in which batch.
#[derive(Serialize)]
struct ResponseParameters<'a> {
    executor: &'a str,
    device: &'a str,
    precision: &'a str,
    batch_calls: usize,
    batch_rows: usize,
    batch_tokens: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    batch_flops: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    batch_useful_flops: Option<u64>,
    padding_waste: f64,
}

#[derive(Serialize)]
struct ResponseOutput<'a> {
    name: &'a str,
    datatype: &'static str,
    shape: &'a [usize],
    #[serde(skip_serializing_if = "Option::is_none")]
    parameters: Option<ResponseOutputParameters>,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<Elements<'a>>,
}

#[derive(Serialize)]
struct ResponseOutputParameters {
    binary_data_size: usize,
}

/// Writes an answer in the requested form.
pub(crate) fn encode_response(
    about: &About,
    id: Option<&str>,
    answer: &Answer,
    form: &OutputFormat,
) -> Result<EncodedResponse, RequestError> {
    let mut behind: Vec<&Tensor> = Vec::new();
    let mut outputs = Vec::with_capacity(answer.outputs.len());
    for tensor in &answer.outputs {
        let is_binary = form.is_binary(&tensor.name);
        if is_binary {
            behind.push(tensor);
        } else if let Some((at, value)) = first_without_json(tensor) {
            let name = &tensor.name;
            return Err(RequestError::Output(format!("outputs ({name}): element {at}: {value} cannot be said in JSON")));
        }
        outputs.push(ResponseOutput {
            name: &tensor.name,
            datatype: tensor.datatype.name(),
            shape: &tensor.shape,
            parameters: is_binary.then_some(ResponseOutputParameters { binary_data_size: tensor.data.len() }),
            data: (!is_binary).then_some(Elements(tensor)),
        });
    }
    let parameters = ResponseParameters {
        executor: about.executor.name(),
        device: &answer.placement.device,
        precision: answer.placement.precision,
        batch_calls: answer.batch.calls,
        batch_rows: answer.batch.rows,
        batch_tokens: answer.batch.executed,
        batch_flops: answer.batch.flops,
        batch_useful_flops: answer.batch.useful_flops,
        padding_waste: answer.batch.padding_waste(),
    };
    let body = ResponseBody { model_name: &about.name, model_version: &about.version, id, parameters, outputs };
    let mut written = serde_json::to_vec(&body).map_err(|error| RequestError::Output(format!("outputs: {error}")))?;
    let json_length = (!behind.is_empty()).then_some(written.len());
    written.reserve_exact(behind.iter().map(|tensor| tensor.data.len()).sum());
    for tensor in behind {
        written.extend_from_slice(&tensor.data);
    }
    Ok(EncodedResponse { body: written.into(), json_length })
}
