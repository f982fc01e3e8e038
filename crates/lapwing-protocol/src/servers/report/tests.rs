//! Values that servers report and the summary made of them; expectations are written by hand from the servers' own definitions.

use proptest::prelude::*;

use super::super::field::FieldLocation;
use super::super::table;
use super::*;
use lapwing_ledger::Stamp;

const US: u64 = 1_000;
const MS: u64 = 1_000_000;

/// The row of `server` at `location`.
fn row(server: Server, location: FieldLocation) -> &'static ReportedField {
    table::of(server).iter().find(|row| row.location == location).unwrap_or_else(|| panic!("{location:?}"))
}

fn body_values(server: Server, fields: &[(&'static str, f64)]) -> ReportedValues {
    let mut values = ReportedValues::default();
    fields.iter().for_each(|(path, value)| values.note(row(server, FieldLocation::Body(path)), *value));
    values
}

fn attribute_values(server: Server, fields: &[(&'static str, f64)]) -> ReportedValues {
    let mut values = ReportedValues::default();
    fields.iter().for_each(|(key, value)| values.note(row(server, FieldLocation::SpanAttribute(key)), *value));
    values
}

/// Each part as stage, phase and nanoseconds.
fn parts(report: &ServerReport) -> Vec<(Stage, Option<Phase>, u64)> {
    report.parts.iter().map(|p| (p.stage, p.phase, p.duration_ns)).collect()
}

const PREFILL: Option<Phase> = Some(Phase::Prefill);
const DECODE: Option<Phase> = Some(Phase::Decode);

#[test]
fn vllm_body_measures_the_first_token_from_scheduling() {
    let report = body_values(
        Server::Vllm,
        &[
            ("metrics.time_to_first_token_ms", 20.5),
            ("metrics.generation_time_ms", 90.0),
            ("metrics.queue_time_ms", 4.25),
            ("metrics.mean_itl_ms", 10.0),
        ],
    )
    .summarize();
    assert_eq!(
        parts(&report),
        [(Stage::Queue, None, 4_250 * US), (Stage::Forward, PREFILL, 20_500 * US), (Stage::Forward, DECODE, 90 * MS)]
    );
    assert_eq!((report.first_token_ns, report.per_output_token_ns), (Some(24_750 * US), Some(10 * MS)));
    assert_eq!(report.server, Some(Server::Vllm));
}

#[test]
fn vllm_attribute_measures_it_from_arrival() {
    let report = attribute_values(
        Server::Vllm,
        &[
            ("gen_ai.latency.time_to_first_token", 0.030),
            ("gen_ai.latency.time_in_queue", 0.004),
            ("gen_ai.latency.time_in_model_prefill", 0.025),
            ("gen_ai.latency.time_in_model_decode", 0.090),
            ("gen_ai.latency.time_in_model_inference", 0.115),
            ("gen_ai.latency.e2e", 0.121),
            ("gen_ai.usage.prompt_tokens", 128.0),
            ("gen_ai.usage.completion_tokens", 10.0),
        ],
    )
    .summarize();
    let expected = [(Stage::Queue, None, 4 * MS), (Stage::Forward, PREFILL, 25 * MS), (Stage::Forward, DECODE, 90 * MS)];
    assert_eq!(parts(&report), expected);
    assert_eq!((report.first_token_ns, report.per_output_token_ns), (Some(30 * MS), Some(10 * MS)));
    assert_eq!(report.work[..], [(Unit::InputToken, 128), (Unit::OutputToken, 10)]);
}

#[test]
fn sglang_prefill_includes_the_queue() {
    let values = [
        ("gen_ai.latency.time_in_model_prefill", 0.040),
        ("gen_ai.latency.time_in_model_decode", 0.060),
        ("gen_ai.latency.time_in_model_inference", 0.100),
        ("gen_ai.latency.time_to_first_token", 0.045),
        ("gen_ai.latency.e2e", 0.110),
    ];
    let without = attribute_values(Server::Sglang, &values).summarize();
    assert_eq!(parts(&without), [(Stage::Forward, DECODE, 60 * MS)], "no queue known: nothing is called prefill");
    assert_eq!(without.first_token_ns, Some(45 * MS));
    let with = attribute_values(Server::Sglang, &[&values[..], &[("gen_ai.latency.time_in_queue", 0.030)]].concat()).summarize();
    let expected = [(Stage::Queue, None, 30 * MS), (Stage::Forward, PREFILL, 10 * MS), (Stage::Forward, DECODE, 60 * MS)];
    assert_eq!(parts(&with), expected);
}

#[test]
fn sglang_prefill_and_decode_are_derived_from_its_body() {
    let report = body_values(
        Server::Sglang,
        &[
            ("meta_info.prompt_tokens", 7.0),
            ("meta_info.completion_tokens", 5.0),
            ("meta_info.e2e_latency", 0.100),
            ("meta_info.first_token_latency", 0.060),
            ("meta_info.queue_time", 0.050),
        ],
    )
    .summarize();
    let expected = [(Stage::Queue, None, 50 * MS), (Stage::Forward, PREFILL, 10 * MS), (Stage::Forward, DECODE, 40 * MS)];
    assert_eq!(parts(&report), expected);
    assert_eq!((report.first_token_ns, report.per_output_token_ns), (Some(60 * MS), Some(10 * MS)));
    let total = body_values(Server::Sglang, &[("choices[].meta_info.e2e_latency", 0.1)]).summarize();
    assert_eq!((parts(&total), total.first_token_ns), (vec![], None), "a total claims nothing");
}

#[test]
fn tensorrt_llm_reports_three_values() {
    let values =
        [("gen_ai.latency.time_to_first_token", 0.5), ("gen_ai.latency.time_in_queue", 0.3), ("gen_ai.latency.e2e", 1.5)];
    let report = attribute_values(Server::TensorRtLlm, &values).summarize();
    let expected = [(Stage::Queue, None, 300 * MS), (Stage::Forward, PREFILL, 200 * MS), (Stage::Forward, DECODE, 1_000 * MS)];
    assert_eq!(parts(&report), expected);
}

#[test]
fn llama_cpp_adds_the_cached_prompt_and_repeats_it_with_every_chunk() {
    let mut values = body_values(Server::LlamaCpp, &[("timings.predicted_n", 1.0), ("timings.predicted_ms", 0.001)]);
    for (path, value) in [
        ("timings.cache_n", 100.0),
        ("timings.prompt_n", 28.0),
        ("timings.prompt_ms", 12.5),
        ("timings.predicted_n", 11.0),
        ("timings.predicted_ms", 50.0),
    ] {
        values.note(row(Server::LlamaCpp, FieldLocation::Body(path)), value);
    }
    let report = values.summarize();
    assert_eq!(parts(&report), [(Stage::Forward, PREFILL, 12_500 * US), (Stage::Forward, DECODE, 50 * MS)]);
    assert_eq!(report.work[..], [(Unit::InputToken, 128), (Unit::OutputToken, 11)]);
    assert_eq!((report.first_token_ns, report.per_output_token_ns), (None, Some(5 * MS)), "it does not know its queue");
}

#[test]
fn ollama_embeddings_have_two_parts() {
    let report =
        body_values(Server::Ollama, &[("total_duration", 14e6), ("load_duration", 1e6), ("prompt_eval_count", 8.0)]).summarize();
    assert_eq!(parts(&report), [(Stage::Queue, None, MS), (Stage::Forward, None, 13 * MS)]);
    let chat = body_values(
        Server::Ollama,
        &[("total_duration", 14e6), ("load_duration", 1e6), ("prompt_eval_duration", 3e6), ("eval_duration", 9e6)],
    );
    let expected = [(Stage::Queue, None, MS), (Stage::Forward, PREFILL, 3 * MS), (Stage::Forward, DECODE, 9 * MS)];
    assert_eq!(parts(&chat.summarize()), expected);
}

#[test]
fn tgi_time_per_token_includes_the_first_token() {
    let mut values = ReportedValues::default();
    for (key, text) in [
        ("total_time", "1.5s"),
        ("validation_time", "686.2µs"),
        ("queue_time", "41.5µs"),
        ("inference_time", "1.499272s"),
        ("time_per_token", "14.99272ms"),
    ] {
        values.note_text(row(Server::Tgi, FieldLocation::SpanAttribute(key)), text);
    }
    let report = values.summarize();
    let expected = [(Stage::Preprocessing, None, 686_200), (Stage::Queue, None, 41_500), (Stage::Forward, None, 1_499_272_000)];
    assert_eq!(parts(&report), expected);
    assert_eq!(report.per_output_token_ns, None);
}

#[test]
fn impossible_values_are_counted_and_not_used() {
    let queue = row(Server::Vllm, FieldLocation::Body("metrics.queue_time_ms"));
    let debug = row(Server::Tei, FieldLocation::SpanAttribute("queue_time"));
    let mut values = ReportedValues::default();
    for wrong in [-1.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 86_400_001.0] {
        values.note(queue, wrong);
    }
    for wrong in ["", "soon", "90000s"] {
        values.note_text(debug, wrong);
    }
    assert!(values.is_empty());
    let mut ledger = Ledger::open(Stamp::now(), 0);
    assert_eq!(values.write(ReportPlace::Body, &mut ledger), 8);
    assert!(ledger.reports.is_empty() && ledger.server.is_none() && ledger.generation.is_none());
}

#[test]
fn the_ledger_gets_reports_work_timing_and_server_and_keeps_better_values() {
    let mut ledger = Ledger::open(Stamp::now(), 0);
    ledger.work.set(Unit::OutputToken, 3, Basis::Counted);
    ledger.work.set(Unit::InputToken, 100, Basis::Reported);
    let values = attribute_values(
        Server::Vllm,
        &[
            ("gen_ai.usage.prompt_tokens", 128.0),
            ("gen_ai.usage.completion_tokens", 4.0),
            ("gen_ai.latency.time_to_first_token", 0.030),
            ("gen_ai.latency.time_in_queue", 0.004),
        ],
    );
    assert_eq!(values.write(ReportPlace::Trailer, &mut ledger), 0);
    let found: Vec<_> = ledger.reports.iter().map(|r| (r.stage, r.phase, r.duration_ns, r.place)).collect();
    let expected = [(Stage::Queue, None, 4 * MS, ReportPlace::Trailer), (Stage::Forward, PREFILL, 26 * MS, ReportPlace::Trailer)];
    assert_eq!(found, expected);
    assert_eq!(ledger.work.get(Unit::InputToken), Some((100, Basis::Reported)));
    assert_eq!(ledger.work.get(Unit::OutputToken), Some((4, Basis::Reported)));
    assert_eq!(ledger.generation.unwrap().server_first_token_ns, Some(30 * MS));
    assert_eq!(ledger.server, Some(Server::Vllm));
}

#[test]
fn whole_milliseconds_keep_their_resolution() {
    let mut values = ReportedValues::default();
    values.note(row(Server::Tei, FieldLocation::Header("x-queue-time")), 0.0);
    assert_eq!(values.summarize().parts[0].resolution_ns, 1_000_000);
}

proptest! {
    #[test]
    fn no_values_make_it_panic_and_parts_are_bounded(
        fields in proptest::collection::vec((0..1_000_usize, any::<f64>(), 0..200_000_u32), 0..40),
    ) {
        let rows: Vec<&'static ReportedField> = table::all().collect();
        let mut values = ReportedValues::default();
        for (at, wild, tame) in fields {
            let row = rows[at % rows.len()];
            values.note(row, wild);
            values.note(row, f64::from(tame));
            values.note_text(row, &wild.to_string());
        }
        let report = values.summarize();
        prop_assert!(report.parts.iter().all(|p| p.duration_ns <= 4 * 86_400_000_000_000));
        let mut ledger = Ledger::open(Stamp::now(), 0);
        values.write(ReportPlace::Body, &mut ledger);
        prop_assert_eq!(ledger.reports.len(), report.parts.len());
    }
}

#[test]
fn a_report_of_the_server_replaces_what_a_gateway_said_before_it() {
    let mut ledger = Ledger::open(Stamp::now(), 0);
    ledger.work.set_by_gateway(Unit::InputToken, 7);
    let mut values = ReportedValues::default();
    let input = table::of(Server::Tgi).iter().find(|row| row.quantity == Quantity::Work(Unit::InputToken)).unwrap();
    values.note(input, 9.0);
    values.summarize().note(&mut ledger, ServerEvidence::Span);
    assert_eq!(ledger.work.get(Unit::InputToken), Some((9, Basis::Reported)));
}
