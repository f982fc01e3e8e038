//! TensorFlow Serving: REST (`:predict` with `instances` by row or `inputs` by column, `:classify` and `:regress` with
//! `examples`) and gRPC `Predict`; KServe's first protocol too, which is the same. Responses are not read: they say nothing
//! of stages or work that the request did not.

use super::super::plan::{Spec, Watch};
use super::super::tag::Tag;
use super::super::wire::Shape;
use crate::ledger::Unit;

/// `POST /v1/models/M:predict`
pub(super) const REST: Spec = Spec {
    primary: Unit::Row,
    row_each: false,
    request: Watch::Json(&[("instances", Tag::Rows), ("inputs", Tag::Column), ("inputs.*", Tag::Column)]),
    response: Watch::Nothing,
    servers: &[],
};

/// `POST /v1/models/M:classify`, `:regress`
pub(super) const REST_EXAMPLES: Spec = Spec { request: Watch::Json(&[("examples", Tag::Rows)]), ..REST };

/// `tensorflow.serving.PredictionService/Predict`: `PredictRequest.model_spec.name`,
/// `.inputs{}.tensor_shape.dim[].size`
pub(super) const GRPC: Spec = Spec {
    request: Watch::Proto(&[
        (&[1, 1], Tag::Model, Shape::Text),
        (&[2, 2, 2, 2, 1], Tag::Dim, Shape::Varint),
        (&[2], Tag::Shape, Shape::Message),
    ]),
    ..REST
};
