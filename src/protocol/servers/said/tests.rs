//! What servers say, and what it comes to; expectations are written out by hand from the servers' own definitions.

use proptest::prelude::*;

use super::super::row::Carrier;
use super::super::table;
use super::*;
use crate::ledger::Stamp;

const US: u64 = 1_000;
const MS: u64 = 1_000_000;

/// The row of `server` that stands at `carrier`.
fn row(server: Server, carrier: Carrier) -> &'static Row {
    table::of(server).iter().find(|row| row.carrier == carrier).unwrap_or_else(|| panic!("{carrier:?}"))
}

fn bodies(server: Server, values: &[(&'static str, f64)]) -> Said {
    let mut said = Said::default();
    values.iter().for_each(|(path, value)| said.note(row(server, Carrier::Body(path)), *value));
    said
}

fn attributes(server: Server, values: &[(&'static str, f64)]) -> Said {
    let mut said = Said::default();
    values.iter().for_each(|(key, value)| said.note(row(server, Carrier::SpanAttribute(key)), *value));
    said
}

/// Each part as stage, phase and nanoseconds.
fn parts(told: &Told) -> Vec<(Stage, Option<Phase>, u64)> {
    told.parts.iter().map(|p| (p.stage, p.phase, p.duration_ns)).collect()
}

const PREFILL: Option<Phase> = Some(Phase::Prefill);
const DECODE: Option<Phase> = Some(Phase::Decode);

#[test]
fn vllms_body_counts_the_first_token_from_scheduling() {
    let told = bodies(
        Server::Vllm,
        &[
            ("metrics.time_to_first_token_ms", 20.5),
            ("metrics.generation_time_ms", 90.0),
            ("metrics.queue_time_ms", 4.25),
            ("metrics.mean_itl_ms", 10.0),
        ],
    )
    .told();
    assert_eq!(
        parts(&told),
        [(Stage::Queue, None, 4_250 * US), (Stage::Forward, PREFILL, 20_500 * US), (Stage::Forward, DECODE, 90 * MS)]
    );
    assert_eq!((told.first_token_ns, told.per_output_token_ns), (Some(24_750 * US), Some(10 * MS)));
    assert_eq!(told.server, Some(Server::Vllm));
}

#[test]
fn vllms_attribute_counts_it_from_arrival() {
    let told = attributes(
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
    .told();
    let expected = [(Stage::Queue, None, 4 * MS), (Stage::Forward, PREFILL, 25 * MS), (Stage::Forward, DECODE, 90 * MS)];
    assert_eq!(parts(&told), expected);
    assert_eq!((told.first_token_ns, told.per_output_token_ns), (Some(30 * MS), Some(10 * MS)));
    assert_eq!(told.work[..], [(Unit::InputToken, 128), (Unit::OutputToken, 10)]);
}

#[test]
fn sglangs_prefill_has_the_queue_in_it() {
    let values = [
        ("gen_ai.latency.time_in_model_prefill", 0.040),
        ("gen_ai.latency.time_in_model_decode", 0.060),
        ("gen_ai.latency.time_in_model_inference", 0.100),
        ("gen_ai.latency.time_to_first_token", 0.045),
        ("gen_ai.latency.e2e", 0.110),
    ];
    let without = attributes(Server::Sglang, &values).told();
    assert_eq!(parts(&without), [(Stage::Forward, DECODE, 60 * MS)], "no queue known: nothing is called prefill");
    assert_eq!(without.first_token_ns, Some(45 * MS));
    let with = attributes(Server::Sglang, &[&values[..], &[("gen_ai.latency.time_in_queue", 0.030)]].concat()).told();
    let expected = [(Stage::Queue, None, 30 * MS), (Stage::Forward, PREFILL, 10 * MS), (Stage::Forward, DECODE, 60 * MS)];
    assert_eq!(parts(&with), expected);
}

#[test]
fn sglangs_body_leaves_prefill_and_decode_to_be_reckoned() {
    let told = bodies(
        Server::Sglang,
        &[
            ("meta_info.prompt_tokens", 7.0),
            ("meta_info.completion_tokens", 5.0),
            ("meta_info.e2e_latency", 0.100),
            ("meta_info.first_token_latency", 0.060),
            ("meta_info.queue_time", 0.050),
        ],
    )
    .told();
    let expected = [(Stage::Queue, None, 50 * MS), (Stage::Forward, PREFILL, 10 * MS), (Stage::Forward, DECODE, 40 * MS)];
    assert_eq!(parts(&told), expected);
    assert_eq!((told.first_token_ns, told.per_output_token_ns), (Some(60 * MS), Some(10 * MS)));
    let total = bodies(Server::Sglang, &[("choices[].meta_info.e2e_latency", 0.1)]).told();
    assert_eq!((parts(&total), total.first_token_ns), (vec![], None), "a total claims nothing");
}

#[test]
fn tensorrt_llm_says_three_things() {
    let values =
        [("gen_ai.latency.time_to_first_token", 0.5), ("gen_ai.latency.time_in_queue", 0.3), ("gen_ai.latency.e2e", 1.5)];
    let told = attributes(Server::TensorRtLlm, &values).told();
    let expected = [(Stage::Queue, None, 300 * MS), (Stage::Forward, PREFILL, 200 * MS), (Stage::Forward, DECODE, 1_000 * MS)];
    assert_eq!(parts(&told), expected);
}

#[test]
fn llama_cpp_adds_the_cached_prompt_and_says_it_with_every_chunk() {
    let mut said = bodies(Server::LlamaCpp, &[("timings.predicted_n", 1.0), ("timings.predicted_ms", 0.001)]);
    for (path, value) in [
        ("timings.cache_n", 100.0),
        ("timings.prompt_n", 28.0),
        ("timings.prompt_ms", 12.5),
        ("timings.predicted_n", 11.0),
        ("timings.predicted_ms", 50.0),
    ] {
        said.note(row(Server::LlamaCpp, Carrier::Body(path)), value);
    }
    let told = said.told();
    assert_eq!(parts(&told), [(Stage::Forward, PREFILL, 12_500 * US), (Stage::Forward, DECODE, 50 * MS)]);
    assert_eq!(told.work[..], [(Unit::InputToken, 128), (Unit::OutputToken, 11)]);
    assert_eq!((told.first_token_ns, told.per_output_token_ns), (None, Some(5 * MS)), "it does not know its queue");
}

#[test]
fn ollamas_embeddings_have_two_parts() {
    let told = bodies(Server::Ollama, &[("total_duration", 14e6), ("load_duration", 1e6), ("prompt_eval_count", 8.0)]).told();
    assert_eq!(parts(&told), [(Stage::Queue, None, MS), (Stage::Forward, None, 13 * MS)]);
    let chat = bodies(
        Server::Ollama,
        &[("total_duration", 14e6), ("load_duration", 1e6), ("prompt_eval_duration", 3e6), ("eval_duration", 9e6)],
    );
    let expected = [(Stage::Queue, None, MS), (Stage::Forward, PREFILL, 3 * MS), (Stage::Forward, DECODE, 9 * MS)];
    assert_eq!(parts(&chat.told()), expected);
}

#[test]
fn text_generation_inferences_pace_has_the_first_token_in_it() {
    let mut said = Said::default();
    for (key, text) in [
        ("total_time", "1.5s"),
        ("validation_time", "686.2µs"),
        ("queue_time", "41.5µs"),
        ("inference_time", "1.499272s"),
        ("time_per_token", "14.99272ms"),
    ] {
        said.note_text(row(Server::Tgi, Carrier::SpanAttribute(key)), text);
    }
    let told = said.told();
    let expected = [(Stage::Preprocessing, None, 686_200), (Stage::Queue, None, 41_500), (Stage::Forward, None, 1_499_272_000)];
    assert_eq!(parts(&told), expected);
    assert_eq!(told.per_output_token_ns, None);
}

#[test]
fn what_cannot_be_is_counted_and_not_used() {
    let queue = row(Server::Vllm, Carrier::Body("metrics.queue_time_ms"));
    let debug = row(Server::Tei, Carrier::SpanAttribute("queue_time"));
    let mut said = Said::default();
    for wrong in [-1.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 86_400_001.0] {
        said.note(queue, wrong);
    }
    for wrong in ["", "soon", "90000s"] {
        said.note_text(debug, wrong);
    }
    assert!(said.is_empty());
    let mut ledger = Ledger::open(Stamp::now(), 0);
    assert_eq!(said.write(Place::Body, &mut ledger), 8);
    assert!(ledger.reports.is_empty() && ledger.server.is_none() && ledger.generation.is_none());
}

#[test]
fn the_ledger_gets_reports_work_pace_and_server_and_keeps_what_it_knows() {
    let mut ledger = Ledger::open(Stamp::now(), 0);
    ledger.work.set(Unit::OutputToken, 3, Basis::Counted);
    ledger.work.set(Unit::InputToken, 100, Basis::Reported);
    let said = attributes(
        Server::Vllm,
        &[
            ("gen_ai.usage.prompt_tokens", 128.0),
            ("gen_ai.usage.completion_tokens", 4.0),
            ("gen_ai.latency.time_to_first_token", 0.030),
            ("gen_ai.latency.time_in_queue", 0.004),
        ],
    );
    assert_eq!(said.write(Place::Trailer, &mut ledger), 0);
    let found: Vec<_> = ledger.reports.iter().map(|r| (r.stage, r.phase, r.duration_ns, r.place)).collect();
    let expected = [(Stage::Queue, None, 4 * MS, Place::Trailer), (Stage::Forward, PREFILL, 26 * MS, Place::Trailer)];
    assert_eq!(found, expected);
    assert_eq!(ledger.work.get(Unit::InputToken), Some((100, Basis::Reported)));
    assert_eq!(ledger.work.get(Unit::OutputToken), Some((4, Basis::Reported)));
    assert_eq!(ledger.generation.unwrap().server_first_token_ns, Some(30 * MS));
    assert_eq!(ledger.server, Some(Server::Vllm));
}

#[test]
fn whole_milliseconds_keep_their_resolution() {
    let mut said = Said::default();
    said.note(row(Server::Tei, Carrier::Header("x-queue-time")), 0.0);
    assert_eq!(said.told().parts[0].resolution_ns, 1_000_000);
}

proptest! {
    #[test]
    fn no_values_make_it_panic_and_parts_are_bounded(
        values in proptest::collection::vec((0..1_000_usize, any::<f64>(), 0..200_000_u32), 0..40),
    ) {
        let rows: Vec<&'static Row> = table::all().collect();
        let mut said = Said::default();
        for (at, wild, tame) in values {
            let row = rows[at % rows.len()];
            said.note(row, wild);
            said.note(row, f64::from(tame));
            said.note_text(row, &wild.to_string());
        }
        let told = said.told();
        prop_assert!(told.parts.iter().all(|p| p.duration_ns <= 4 * 86_400_000_000_000));
        let mut ledger = Ledger::open(Stamp::now(), 0);
        said.write(Place::Body, &mut ledger);
        prop_assert_eq!(ledger.reports.len(), told.parts.len());
    }
}
