//! Text Embeddings Inference: its own routes and its gRPC services. A text is a row, a pair to classify too. Tokens and
//! stages come in headers over HTTP, and in `metadata` over gRPC.

use super::super::plan::{Spec, Watch};
use super::super::tag::Tag;
use super::super::wire::Shape;
use crate::ledger::{Basis, Server, Unit};

/// `POST /embed`, `/embed_all`, `/embed_sparse`, `/tokenize`
pub(super) const EMBED: Spec = Spec {
    primary: Unit::InputToken,
    row_each: false,
    request: Watch::Json(&[("inputs", Tag::Inputs), ("inputs[]", Tag::Input)]),
    response: Watch::Nothing,
    servers: &[Server::Tei],
};

/// `POST /predict`: a text, a pair of texts, or a list of lists of one or two
pub(super) const PREDICT: Spec =
    Spec { request: Watch::Json(&[("inputs", Tag::Pairs), ("inputs[]", Tag::Input), ("inputs[][]", Tag::Text)]), ..EMBED };

/// `POST /rerank`; of other servers `/v1/rerank` with `documents`
pub(super) const RERANK: Spec = Spec {
    request: Watch::Json(&[
        ("model", Tag::Model),
        ("query", Tag::Query),
        ("texts", Tag::Rows),
        ("texts[]", Tag::Text),
        ("documents", Tag::Rows),
        ("documents[]", Tag::Text),
        ("documents[].text", Tag::Text),
    ]),
    response: Watch::Json(&[("model", Tag::Model), ("usage.prompt_tokens", Tag::Amount(Unit::InputToken, Basis::Reported))]),
    ..EMBED
};

/// `POST /similarity`: the source is a row of its own
pub(super) const SIMILARITY: Spec = Spec {
    request: Watch::Json(&[
        ("inputs.source_sentence", Tag::Rows),
        ("inputs.sentences", Tag::Rows),
        ("inputs.sentences[]", Tag::Text),
    ]),
    ..EMBED
};

/// `Metadata.compute_tokens` of every response
const METADATA: Watch = Watch::Proto(&[(&[2, 2], Tag::Amount(Unit::InputToken, Basis::Reported), Shape::Varint)]);

/// `tei.v1.Embed/*` and `tei.v1.Predict/Predict*`: `inputs` is one text
pub(super) const GRPC_EMBED: Spec =
    Spec { request: Watch::Proto(&[(&[1], Tag::Rows, Shape::Text)]), response: METADATA, ..EMBED };

/// `tei.v1.Predict/PredictPair`: `inputs` are the two texts of a pair
pub(super) const GRPC_PAIR: Spec =
    Spec { row_each: true, request: Watch::Proto(&[(&[1], Tag::Text, Shape::Text)]), ..GRPC_EMBED };

/// `tei.v1.Rerank/Rerank`
pub(super) const GRPC_RERANK: Spec =
    Spec { request: Watch::Proto(&[(&[1], Tag::Query, Shape::Text), (&[2], Tag::Rows, Shape::Text)]), ..GRPC_EMBED };

/// `tei.v1.Rerank/RerankStream`: each message has the query again
pub(super) const GRPC_RERANK_STREAM: Spec =
    Spec { request: Watch::Proto(&[(&[1], Tag::Text, Shape::Text), (&[2], Tag::Rows, Shape::Text)]), ..GRPC_EMBED };
