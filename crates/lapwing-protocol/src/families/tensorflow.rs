//! TensorFlow Serving: REST (`:predict` with `instances` by row or `inputs` by column, `:classify` and `:regress` with
//! `examples`) and gRPC `Predict`; also KServe's first protocol, which is the same. Responses are not read, because they contain
//! nothing about stages or work that the request did not.

use super::super::plan::{ProtocolSpec, WatchSpec};
use super::super::tag::Tag;
use super::super::wire::ProtoShape;
use lapwing_ledger::Unit;

/// `POST /v1/models/M:predict`, and KServe's `:explain`
pub(crate) const REST: ProtocolSpec = ProtocolSpec {
    primary: Unit::Row,
    primary_otherwise: None,
    row_each: false,
    request: WatchSpec::Json(&[("instances", Tag::Rows), ("inputs", Tag::Column), ("inputs.*", Tag::Column)]),
    response: WatchSpec::Nothing,
    servers: &[],
};

/// `POST /v1/models/M:classify`, `:regress`
pub(crate) const REST_EXAMPLES: ProtocolSpec = ProtocolSpec { request: WatchSpec::Json(&[("examples", Tag::Rows)]), ..REST };

/// `tensorflow.serving.PredictionService/Predict`: `PredictRequest.model_spec.name`,
/// `.inputs{}.tensor_shape.dim[].size`
pub(crate) const GRPC: ProtocolSpec = ProtocolSpec {
    request: WatchSpec::Proto(&[
        (&[1, 1], Tag::Model, ProtoShape::Text),
        (&[2, 2, 2, 2, 1], Tag::Dim, ProtoShape::Varint),
        (&[2], Tag::Tensor, ProtoShape::Message),
    ]),
    ..REST
};
