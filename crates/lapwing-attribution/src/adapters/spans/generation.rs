//! Spans with durations in attributes: vLLM, SGLang and TensorRT-LLM (seconds under `gen_ai.latency.*`, with meanings that differ
//! by server), TEI and TGI (durations as Rust writes them); and the spans of stages of SGLang and TGI.
//!
//! Durations are placed end to end from the span's start. Prefill ends at the first token if that is reported.

use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;

use super::mapped::{MappedSpan, Sender, text};
use crate::span::{ServerSpan, SpanPiece};
use lapwing_ledger::{Phase, Server, Stage};
use lapwing_protocol::servers::{FieldLocation, Quantity, ReportPart, ReportedField, ReportedValues, Scale, ServerReport, table};

/// Reads a span of one of these servers; `None` for other spans.
pub(crate) fn read(span: &Span, sender: Sender<'_>) -> Option<MappedSpan> {
    if is_sglang(span, sender)
        && let Some(stage) = stage_of(Server::Sglang, &span.name)
    {
        return Some(inner(Server::Sglang, Some(stage)));
    }
    let Some(server) = server_of(span, sender) else {
        let server = router_of(span, sender)?;
        return Some(inner(server, stage_of(server, &span.name)));
    };
    let mut values = ReportedValues::default();
    for (key, row) in table::span_attributes(server) {
        if let Some(value) = span.attributes.iter().find(|a| a.key == key).and_then(value) {
            note(&mut values, row, value);
        }
    }
    let report = ServerReport { server: Some(server), ..values.summarize() };
    let mut server = ServerSpan { is_laid: true, ..ServerSpan::default() };
    server.pieces = laid(&report, span.start_time_unix_nano, span.end_time_unix_nano).collect();
    server.report = report;
    Some(MappedSpan::of(server))
}

fn value(attribute: &KeyValue) -> Option<&Value> {
    attribute.value.as_ref()?.value.as_ref()
}

/// Records an attribute if it has the type that its server sends.
#[allow(clippy::cast_precision_loss, reason = "amounts that a float does not hold exactly are refused anyway")]
fn note(values: &mut ReportedValues, row: &'static ReportedField, value: &Value) {
    match (row.scale, value) {
        (Scale::RustDebug, Value::StringValue(text)) => values.note_text(row, text),
        // whole numbers under these names are nanoseconds or milliseconds of other vendors
        (Scale::S, Value::DoubleValue(number)) => values.note(row, *number),
        (Scale::Count, Value::IntValue(number)) => values.note(row, *number as f64),
        (Scale::Count, Value::DoubleValue(number)) => values.note(row, *number),
        (Scale::Count, Value::StringValue(text)) => values.note_text(row, text),
        _ => {}
    }
}

/// The server that a span belongs to, by its sender, else by the attributes it has.
fn server_of(span: &Span, sender: Sender<'_>) -> Option<Server> {
    let latency = |name: &str| {
        span.attributes.iter().any(|a| {
            let is_such = a.key.strip_prefix("gen_ai.latency.").is_some_and(|key| key == name);
            is_such && matches!(value(a), Some(Value::DoubleValue(_)))
        })
    };
    let [queue, prefill, first, total] = ["time_in_queue", "time_in_model_prefill", "time_to_first_token", "e2e"].map(latency);
    if queue || prefill || first || total {
        return if is_sglang(span, sender) {
            Some(Server::Sglang)
        } else if sender.is_vllm || sender.is("vllm") {
            Some(Server::Vllm)
        } else if ["tensorrt", "trtllm", "trt_llm"].into_iter().any(|name| sender.is(name)) {
            Some(Server::TensorRtLlm)
        } else {
            // SGLang reports no queue attribute; TensorRT-LLM reports no prefill attribute
            match (queue, prefill) {
                (true, true) => Some(Server::Vllm),
                (true, false) => Some(Server::TensorRtLlm),
                (false, true) => Some(Server::Sglang),
                (false, false) => None,
            }
        };
    }
    let is_duration = |key| text(&span.attributes, key).is_some_and(|text| text.ends_with('s'));
    if !["total_time", "queue_time", "inference_time"].into_iter().all(is_duration) {
        return None;
    }
    match ["tokenization_time", "validation_time"].map(is_duration) {
        [true, _] => Some(Server::Tei),
        [false, true] => Some(Server::Tgi),
        [false, false] => None,
    }
}

/// A span whose own duration is a stage, or none, whatever its name is to others.
fn inner(server: Server, stage: Option<(Stage, Option<Phase>)>) -> MappedSpan {
    let report = ServerReport { server: Some(server), ..ServerReport::default() };
    let server = Some(Box::new(ServerSpan { report, ..ServerSpan::default() }));
    MappedSpan { stage: stage.map(|(stage, _)| stage), phase: stage.and_then(|(_, phase)| phase), server }
}

/// The Hugging Face router that a span belongs to. Each of its functions has a span: `predict` and `generate` contain the queue,
/// so that by name alone the queue would count as forward.
fn router_of(span: &Span, sender: Sender<'_>) -> Option<Server> {
    let module = text(&span.attributes, "code.namespace").unwrap_or_default();
    if sender.is("text-embeddings-inference") || module.starts_with("text_embeddings_") {
        Some(Server::Tei)
    } else if sender.is("text-generation-inference") || module.starts_with("text_generation_") {
        Some(Server::Tgi)
    } else {
        None
    }
}

/// SGLang's `decode_loop`, which is always inside a `decode_forward` (from its trace level 3 on, the default).
pub(crate) fn is_one_per_token(span: &Span, sender: Sender<'_>) -> bool {
    span.name == "decode_loop" && is_sglang(span, sender)
}

fn is_sglang(span: &Span, sender: Sender<'_>) -> bool {
    sender.is("sglang") || text(&span.attributes, "module").is_some_and(|module| module.starts_with("sglang"))
}

/// The stage of one of a server's spans, by name.
fn stage_of(server: Server, name: &str) -> Option<(Stage, Option<Phase>)> {
    let row = table::of(server).iter().find(|row| matches!(row.location, FieldLocation::Span(known) if known == name))?;
    match row.quantity {
        Quantity::Stage(stage) => Some((stage, None)),
        Quantity::Phase(phase) => Some((Stage::Forward, Some(phase))),
        _ => None,
    }
}

/// Places the parts of `report` end to end within the span.
fn laid(report: &ServerReport, start_unix_ns: u64, end_unix_ns: u64) -> impl Iterator<Item = SpanPiece> {
    let is_before = |part: &&ReportPart| part.phase != Some(Phase::Decode) && part.stage != Stage::Postprocessing;
    let before_ns = report.parts.iter().filter(is_before).fold(0_u64, |sum, part| sum.saturating_add(part.duration_ns));
    // work before the queue (the front end, parsing) has no name but takes time
    let has_prefill = report.parts.iter().any(|part| part.phase == Some(Phase::Prefill));
    let ahead_ns = report.first_token_ns.filter(|_| has_prefill).map_or(0, |first_ns| first_ns.saturating_sub(before_ns));
    let mut at = start_unix_ns.saturating_add(ahead_ns);
    // without prefill, decode still starts at the first token
    let decodes_at = report.first_token_ns.filter(|_| !has_prefill).map(|first_ns| start_unix_ns.saturating_add(first_ns));
    report.parts.iter().filter_map(move |part| {
        if part.phase == Some(Phase::Decode) {
            at = decodes_at.map_or(at, |decodes_at| decodes_at.max(at));
        }
        let start = at.min(end_unix_ns);
        at = at.saturating_add(part.duration_ns);
        let (stage, phase) = (part.stage, part.phase);
        let name = phase.map_or(stage.name(), Phase::name);
        let piece = SpanPiece { name, stage, phase, start_unix_ns: start, end_unix_ns: at.min(end_unix_ns), takes_role: false };
        (piece.start_unix_ns < piece.end_unix_ns).then_some(piece)
    })
}
