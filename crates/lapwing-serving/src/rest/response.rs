//! The body of an inference response: JSON, with tensors in it or as binary data after it.

use bytes::Bytes;
use serde::Serialize;

use super::elements::{Elements, first_not_finite};
use super::request::OutputFormat;
use crate::error::RequestError;
use lapwing_model::service::{About, Answer};
use lapwing_plan::tensor::Tensor;

/// An encoded answer.
#[derive(Debug)]
pub(crate) struct EncodedResponse {
    pub(crate) body: Bytes,
    /// Bytes of JSON before binary data, if there is any.
    pub(crate) json_length: Option<usize>,
}

#[derive(Serialize)]
struct Body<'a> {
    model_name: &'a str,
    model_version: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a str>,
    parameters: Parameters<'a>,
    outputs: Vec<Output<'a>>,
}

/// Which executor and device ran the request, and in which batch.
#[derive(Serialize)]
struct Parameters<'a> {
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
struct Output<'a> {
    name: &'a str,
    datatype: &'static str,
    shape: &'a [usize],
    #[serde(skip_serializing_if = "Option::is_none")]
    parameters: Option<Binary>,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<Elements<'a>>,
}

#[derive(Serialize)]
struct Binary {
    binary_data_size: usize,
}

/// Writes an answer in the requested form.
pub(crate) fn write(
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
        } else if let Some((at, value)) = first_not_finite(tensor) {
            let name = &tensor.name;
            return Err(RequestError::Output(format!("outputs ({name}): element {at}: {value} cannot be said in JSON")));
        }
        outputs.push(Output {
            name: &tensor.name,
            datatype: tensor.datatype.name(),
            shape: &tensor.shape,
            parameters: is_binary.then_some(Binary { binary_data_size: tensor.data.len() }),
            data: (!is_binary).then_some(Elements(tensor)),
        });
    }
    let parameters = Parameters {
        executor: about.executor,
        device: &answer.placement.device,
        precision: answer.placement.precision,
        batch_calls: answer.batch.calls,
        batch_rows: answer.batch.rows,
        batch_tokens: answer.batch.executed,
        batch_flops: answer.batch.flops,
        batch_useful_flops: answer.batch.useful_flops,
        padding_waste: answer.batch.padding_waste(),
    };
    let body = Body { model_name: &about.name, model_version: &about.version, id, parameters, outputs };
    let mut written = serde_json::to_vec(&body).map_err(|error| RequestError::Output(format!("outputs: {error}")))?;
    let json_length = (!behind.is_empty()).then_some(written.len());
    written.reserve_exact(behind.iter().map(|tensor| tensor.data.len()).sum());
    for tensor in behind {
        written.extend_from_slice(&tensor.data);
    }
    Ok(EncodedResponse { body: written.into(), json_length })
}
