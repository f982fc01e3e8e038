//! The Open Inference Protocol (Triton, MLServer, KServe, TorchServe): REST with its binary tensors, gRPC, and Triton's
//! `generate`. Rows are the first dimension of the inputs, elements the product of all. Responses of `infer` are not read:
//! they say nothing that the request did not.

use super::super::plan::{Spec, Watch};
use super::super::tag::Tag;
use super::super::wire::Shape;
use crate::ledger::{Server, Unit};

/// `POST /v2/models/M/infer`
pub(super) const REST: Spec = Spec {
    primary: Unit::Row,
    row_each: false,
    request: Watch::Json(&[("inputs[].shape[]", Tag::Dim), ("inputs[].shape", Tag::Shape)]),
    response: Watch::Nothing,
    servers: &[],
};

/// `inference.GRPCInferenceService/ModelInfer`: `ModelInferRequest.model_name`, `.inputs[].shape`
pub(super) const GRPC: Spec = Spec {
    primary: Unit::Row,
    row_each: false,
    request: Watch::Proto(&[
        (&[1], Tag::Model, Shape::Text),
        (&[5, 3], Tag::Dim, Shape::PackedVarints),
        (&[5], Tag::Shape, Shape::Message),
    ]),
    response: Watch::Nothing,
    servers: &[],
};

/// `ModelStreamInfer`: a stream of requests; `ModelStreamInferResponse.infer_response.outputs[].name` tells generated text.
pub(super) const GRPC_STREAM: Spec = Spec { response: Watch::Proto(&[(&[2, 5, 1], Tag::Output, Shape::Text)]), ..GRPC };

/// Triton's `POST /v2/models/M/generate` and `generate_stream`
pub(super) const GENERATE: Spec = Spec {
    primary: Unit::OutputToken,
    row_each: true,
    request: Watch::Json(&[("text_input", Tag::Text), ("prompt", Tag::Text)]),
    response: Watch::Json(&[("text_output", Tag::Content)]),
    servers: &[Server::Triton, Server::TensorRtLlm],
};
