//! The Open Inference Protocol (Triton, MLServer, KServe, TorchServe): REST with its binary tensors, gRPC, and Triton's
//! `generate`. Rows are the first dimension of the inputs, elements the product of all dimensions; those of a tensor that is named
//! `input_ids`, as tokenizers name it, are input tokens too, padding included. Responses of `infer` are not read, because they
//! contain nothing that the request did not. The parameter `timeout` of a request is how long it may take.

use super::super::plan::{ProtocolSpec, WatchSpec};
use super::super::tag::ErrorField;
use super::super::tag::Tag;
use super::super::wire::ProtoShape;
use lapwing_ledger::{Server, Unit};

/// `POST /v2/models/M/infer`
pub(crate) const REST: ProtocolSpec = ProtocolSpec {
    primary: Unit::Row,
    primary_otherwise: None,
    row_each: false,
    request: WatchSpec::Json(&[
        ("inputs[].name", Tag::InputName),
        ("inputs[].shape[]", Tag::Dim),
        ("inputs[]", Tag::Tensor),
        ("parameters.timeout", Tag::Timeout),
        ("parameters.sequence_id", Tag::SequenceId),
    ]),
    response: WatchSpec::Nothing,
    servers: &[],
};

/// `inference.GRPCInferenceService/ModelInfer`: `ModelInferRequest.model_name`, `.inputs[].name`, `.inputs[].shape`, and the entries of
/// `.parameters`, each with a name and a value of its kind: text (so that one for `timeout` is seen to be malformed), `int64`, `uint64`
pub(crate) const GRPC: ProtocolSpec = ProtocolSpec {
    primary: Unit::Row,
    primary_otherwise: None,
    row_each: false,
    request: WatchSpec::Proto(&[
        (&[1], Tag::Model, ProtoShape::Text),
        (&[5, 1], Tag::InputName, ProtoShape::Text),
        (&[5, 3], Tag::Dim, ProtoShape::PackedVarints),
        (&[5], Tag::Tensor, ProtoShape::Message),
        (&[4, 1], Tag::ParameterName, ProtoShape::Text),
        (&[4, 2, 2], Tag::ParameterValue, ProtoShape::Varint),
        (&[4, 2, 3], Tag::ParameterValue, ProtoShape::Text),
        (&[4, 2, 5], Tag::ParameterValue, ProtoShape::Varint),
    ]),
    response: WatchSpec::Nothing,
    servers: &[],
};

/// `ModelStreamInfer`: a stream of requests; `ModelStreamInferResponse.infer_response.outputs[].name` marks generated text, and
/// `.error_message` is how one of them fails: the status of the call stays 0. The timeouts of its requests are not the call's.
pub(crate) const GRPC_STREAM: ProtocolSpec = ProtocolSpec {
    request: WatchSpec::Proto(&[
        (&[1], Tag::Model, ProtoShape::Text),
        (&[5, 1], Tag::InputName, ProtoShape::Text),
        (&[5, 3], Tag::Dim, ProtoShape::PackedVarints),
        (&[5], Tag::Tensor, ProtoShape::Message),
    ]),
    response: WatchSpec::Proto(&[
        (&[1], Tag::Error(ErrorField::Error), ProtoShape::Text),
        (&[2, 5, 1], Tag::Output, ProtoShape::Text),
    ]),
    ..GRPC
};

/// Triton's `POST /v2/models/M/generate` and `generate_stream`
pub(crate) const GENERATE: ProtocolSpec = ProtocolSpec {
    primary: Unit::OutputToken,
    primary_otherwise: None,
    row_each: true,
    request: WatchSpec::Json(&[
        ("text_input", Tag::Text),
        ("prompt", Tag::Text),
        ("sequence_id", Tag::SequenceId),
        ("parameters.sequence_id", Tag::SequenceId),
    ]),
    response: WatchSpec::Json(&[("text_output", Tag::Content)]),
    servers: &[Server::Triton, Server::TensorRtLlm],
};
