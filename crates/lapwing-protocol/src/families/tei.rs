//! Text Embeddings Inference: its own routes and its gRPC services. A text is a row, and so is a pair to classify. Tokens and
//! stages are in headers over HTTP, and in `metadata` over gRPC.

use super::super::plan::{ProtocolSpec, WatchSpec};
use super::super::tag::Tag;
use super::super::wire::ProtoShape;
use lapwing_ledger::{Basis, Server, Unit};

/// `POST /embed`, `/embed_all`, `/embed_sparse`
pub(crate) const EMBED: ProtocolSpec = ProtocolSpec {
    primary: Unit::InputToken,
    primary_otherwise: None,
    row_each: false,
    request: WatchSpec::Json(&[("inputs", Tag::Inputs), ("inputs[]", Tag::Input)]),
    response: WatchSpec::Nothing,
    servers: &[Server::Tei],
};

/// `POST /predict`: a text, a pair of texts, or a list of lists of one or two
pub(crate) const PREDICT: ProtocolSpec = ProtocolSpec {
    request: WatchSpec::Json(&[
        ("inputs", Tag::Pairs),
        ("inputs[]", Tag::Input),
        ("inputs[][]", Tag::Text),
        // containers of Google's
        ("instances", Tag::Rows),
    ]),
    ..EMBED
};

/// `POST /rerank`; on other servers with `documents`, also under `/v1`, `/v2` and the name `reranking`
pub(crate) const RERANK: ProtocolSpec = ProtocolSpec {
    request: WatchSpec::Json(&[
        ("model", Tag::Model),
        ("query", Tag::Query),
        ("texts", Tag::Rows),
        ("texts[]", Tag::Text),
        ("documents", Tag::Rows),
        ("documents[]", Tag::Text),
        ("documents[].text", Tag::Text),
    ]),
    response: WatchSpec::Json(&[
        ("model", Tag::Model),
        ("usage.prompt_tokens", Tag::Amount(Unit::InputToken, Basis::Reported)),
        ("usage.total_tokens", Tag::TotalTokens),
        // Cohere's
        ("meta.tokens.input_tokens", Tag::Amount(Unit::InputToken, Basis::Reported)),
    ]),
    ..EMBED
};

/// `POST /similarity`: the source is a separate row
pub(crate) const SIMILARITY: ProtocolSpec = ProtocolSpec {
    request: WatchSpec::Json(&[
        ("inputs.source_sentence", Tag::Rows),
        ("inputs.sentences", Tag::Rows),
        ("inputs.sentences[]", Tag::Text),
    ]),
    ..EMBED
};

/// `Metadata.compute_tokens` of every response
const METADATA: WatchSpec = WatchSpec::Proto(&[(&[2, 2], Tag::Amount(Unit::InputToken, Basis::Reported), ProtoShape::Varint)]);

/// `tei.v1.Embed/*` and `tei.v1.Predict/Predict*`: `inputs` is one text
pub(crate) const GRPC_EMBED: ProtocolSpec =
    ProtocolSpec { request: WatchSpec::Proto(&[(&[1], Tag::Rows, ProtoShape::Text)]), response: METADATA, ..EMBED };

/// `tei.v1.Predict/PredictPair`: `inputs` are the two texts of a pair
pub(crate) const GRPC_PAIR: ProtocolSpec =
    ProtocolSpec { row_each: true, request: WatchSpec::Proto(&[(&[1], Tag::Text, ProtoShape::Text)]), ..GRPC_EMBED };

/// `tei.v1.Rerank/Rerank`
pub(crate) const GRPC_RERANK: ProtocolSpec = ProtocolSpec {
    request: WatchSpec::Proto(&[(&[1], Tag::Query, ProtoShape::Text), (&[2], Tag::Rows, ProtoShape::Text)]),
    ..GRPC_EMBED
};

/// `tei.v1.Rerank/RerankStream`: each message has the query again
pub(crate) const GRPC_RERANK_STREAM: ProtocolSpec = ProtocolSpec {
    request: WatchSpec::Proto(&[(&[1], Tag::Text, ProtoShape::Text), (&[2], Tag::Rows, ProtoShape::Text)]),
    ..GRPC_EMBED
};
