//! `/invocations` of SageMaker and MLflow, behind which any server may be: MLflow's scoring server and MLServer (tables), vLLM and
//! SGLang (the OpenAI API), TGI, TEI; `/vertex`, its kind of Google's; and KServe's forecasts.
//!
//! Tables have rows and never tokens: in columns, in records, as instances, as CSV, or as JSON lines. Where the answer has tokens, the
//! server is one of language models, and output tokens are the primary unit.

use super::super::plan::{ProtocolSpec, WatchSpec};
use super::super::tag::Tag;
use lapwing_ledger::{Basis, Unit};

const INPUT_TOKENS: Tag = Tag::Amount(Unit::InputToken, Basis::Reported);
const OUTPUT_TOKENS: Tag = Tag::Amount(Unit::OutputToken, Basis::Reported);

/// `POST /invocations`
pub(crate) const INVOCATIONS: ProtocolSpec = ProtocolSpec {
    primary: Unit::OutputToken,
    primary_otherwise: Some(Unit::Row),
    row_each: true,
    request: WatchSpec::Json(&[
        ("model", Tag::Model),
        // tables: MLflow's forms, of which a request has one, and what it took before its second version
        ("dataframe_split.data", Tag::Rows),
        ("dataframe_records", Tag::Rows),
        ("instances", Tag::Rows),
        ("inputs", Tag::Column),
        ("inputs.*", Tag::Column),
        ("data", Tag::Column),
        ("", Tag::Records),
        // language models
        ("messages[]", Tag::Message),
        ("messages[].content", Tag::Text),
        ("messages[].content[].text", Tag::Text),
        ("prompt", Tag::Inputs),
        ("prompt[]", Tag::Input),
        ("input", Tag::Inputs),
        ("input[]", Tag::Input),
        ("n", Tag::Sequences),
    ]),
    response: WatchSpec::Json(&[
        ("predictions", Tag::Predictions),
        ("model", Tag::Model),
        ("usage.prompt_tokens", INPUT_TOKENS),
        ("usage.completion_tokens", OUTPUT_TOKENS),
        ("choices[].index", Tag::Sequence),
        ("choices[].text", Tag::Content),
        ("choices[].delta.content", Tag::Content),
        ("choices[].delta.reasoning_content", Tag::Content),
        ("choices[].delta.reasoning", Tag::Content),
        ("choices[].delta.tool_calls[].function.arguments", Tag::Content),
        ("choices[].message.content", Tag::Content),
        // TGI
        ("token.text", Tag::Content),
        ("generated_text", Tag::Done),
        ("details.generated_tokens", OUTPUT_TOKENS),
        ("details.input_length", INPUT_TOKENS),
        ("[].generated_text", Tag::Content),
        ("[].details.generated_tokens", OUTPUT_TOKENS),
    ]),
    servers: &[],
};

/// `POST /vertex` (TGI, TEI), `/vertex_generate` (SGLang)
pub(crate) const VERTEX: ProtocolSpec = ProtocolSpec {
    primary: Unit::Row,
    primary_otherwise: None,
    row_each: false,
    request: WatchSpec::Json(&[("instances", Tag::Rows)]),
    response: WatchSpec::Nothing,
    servers: &[],
};

/// `POST /v1/timeseries/forecast`: a series is a row
pub(crate) const FORECAST: ProtocolSpec =
    ProtocolSpec { request: WatchSpec::Json(&[("model", Tag::Model), ("inputs", Tag::Rows)]), ..VERTEX };
