//! Images of the OpenAI API (SGLang's diffusion, vLLM-Omni). An image is a row.

use super::super::plan::{ProtocolSpec, WatchSpec};
use super::super::tag::Tag;
use lapwing_ledger::{Basis, Unit};

/// `POST /v1/images/generations`, `/v1/images/edits`: JSON, or a form
pub(crate) const IMAGES: ProtocolSpec = ProtocolSpec {
    primary: Unit::Row,
    primary_otherwise: None,
    row_each: true,
    request: WatchSpec::Json(&[("model", Tag::Model), ("n", Tag::Amount(Unit::Row, Basis::Counted))]),
    response: WatchSpec::Json(&[
        ("usage.input_tokens", Tag::Amount(Unit::InputToken, Basis::Reported)),
        ("usage.output_tokens", Tag::Amount(Unit::OutputToken, Basis::Reported)),
    ]),
    servers: &[],
};
