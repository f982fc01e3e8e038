//! The spans of an exchange as a backend reads them.

use std::collections::BTreeMap;

use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;

use super::*;
use crate::spans::spans;
use lapwing_ledger::{Basis, Generation, SamplingThreshold, Server, Unit};

fn attributes(span: &Span) -> BTreeMap<String, Value> {
    let pairs = span.attributes.iter().map(|one| (one.key.clone(), one.value.clone().unwrap().value.unwrap()));
    let read: BTreeMap<_, _> = pairs.collect();
    assert_eq!(read.len(), span.attributes.len(), "each key once");
    read
}

fn sampled(exchange: Exchange, threshold: Option<SamplingThreshold>) -> SampledExchange {
    SampledExchange { exchange, reason: SamplingReason::Share, threshold, over_budget: Vec::new() }
}

fn text(value: &str) -> Value {
    Value::StringValue(value.to_owned())
}

#[test]
fn a_request_is_a_server_span_and_its_stages_are_its_children() {
    let setup = Setup::new();
    let mut exchange = setup.exchange(ROUTE, trace(1), Outcome::Ok, 100 * MS);
    exchange.ledger.parent = SpanId([5; 8]);
    let made = spans(&sampled(exchange, Some(SamplingThreshold::of_share(0.25))), &setup.labels);
    let (server, stages) = made.split_first().unwrap();
    assert_eq!((server.kind, &*server.name, &server.parent_span_id[..]), (2, ROUTE, &[5; 8][..]));
    assert_eq!((&*server.trace_state, server.flags), ("ot=th:c", 0x301));
    assert_eq!(server.end_time_unix_nano - server.start_time_unix_nano, 100 * MS);
    let own = attributes(server);
    assert_eq!((&own["http.request.method"], &own["http.route"]), (&text("POST"), &text("/v2/models/{model}/infer")));
    assert_eq!((&own["http.response.status_code"], &own["lapwing.model"]), (&Value::IntValue(200), &text("digits")));
    assert_eq!(own["lapwing.sampling.adjusted_count"], Value::DoubleValue(4.0));
    let seconds = own.iter().filter(|(key, _)| key.starts_with("lapwing.stage."));
    let sum: f64 = seconds.map(|(_, value)| if let Value::DoubleValue(seconds) = value { *seconds } else { 0.0 }).sum();
    assert!((sum - 0.1).abs() < 1e-12, "{sum}");
    let seen: Vec<_> = stages
        .iter()
        .map(|span| {
            assert_eq!(
                (&span.parent_span_id, &span.trace_id, span.kind, span.flags),
                (&server.span_id, &server.trace_id, 1, 0x101)
            );
            let own = attributes(span);
            let at = |ns: u64| (ns - server.start_time_unix_nano) / MS;
            (
                own["lapwing.stage"].clone(),
                own["lapwing.source"].clone(),
                at(span.start_time_unix_nano),
                at(span.end_time_unix_nano),
            )
        })
        .collect();
    assert_eq!(seen[0], (text("ingress"), text("observed"), 0, 10));
    assert!(seen.contains(&(text("egress"), text("observed"), 90, 100)));
    assert!(seen.iter().any(|(stage, source, ..)| (stage, source) == (&text("forward"), &text("reported"))), "{seen:?}");
}

#[test]
fn errors_of_the_server_are_errors_and_faults_of_the_caller_are_not() {
    let setup = Setup::new();
    let of = |outcome, status| {
        let mut exchange = setup.exchange(ROUTE, trace(1), outcome, MS);
        exchange.ledger.status = status;
        let span = spans(&sampled(exchange, None), &setup.labels).remove(0);
        assert_eq!((&*span.trace_state, &attributes(&span)["lapwing.sampling.adjusted_count"]), ("", &Value::DoubleValue(0.0)));
        assert_eq!((span.parent_span_id.len(), span.flags), (0, 0x101));
        (span.status.as_ref().map(|status| status.code), attributes(&span).remove("error.type"))
    };
    assert_eq!(of(Outcome::Ok, 200), (None, None));
    assert_eq!(of(Outcome::ClientError, 404), (None, None));
    assert_eq!(of(Outcome::Cancelled, 0), (None, Some(text("cancelled"))));
    assert_eq!(of(Outcome::ServerError, 503), (Some(2), Some(text("503"))));
    assert_eq!(of(Outcome::ServerError, 200), (Some(2), Some(text("server_error"))), "a status of gRPC");
    assert_eq!(of(Outcome::BodyError, 200), (Some(2), Some(text("body_error"))));
    assert_eq!(of(Outcome::TimedOut, 504), (Some(2), Some(text("timed_out"))));
}

#[test]
fn generated_answers_and_calls_of_grpc_have_the_attributes_of_their_conventions() {
    let setup = Setup::new();
    let mut chat = setup.exchange("POST /v1/chat/completions", trace(1), Outcome::Ok, 50 * MS);
    chat.ledger.server = Some(Server::LlamaCpp);
    chat.ledger.work.set(Unit::InputToken, 100, Basis::Estimated);
    chat.ledger.work.set(Unit::OutputToken, 11, Basis::Reported);
    let mut generation = Generation::default();
    generation.content(10 * MS);
    chat.ledger.generation = Some(Box::new(generation));
    let span = spans(&sampled(chat, None), &setup.labels).remove(0);
    let own = attributes(&span);
    assert_eq!((&own["gen_ai.operation.name"], &own["gen_ai.request.model"]), (&text("chat"), &text("digits")));
    assert_eq!((own.get("gen_ai.usage.input_tokens"), &own["gen_ai.usage.output_tokens"]), (None, &Value::IntValue(11)));
    assert_eq!(own["lapwing.work.input_token"], Value::IntValue(100));
    assert_eq!((span.events.len(), span.events[0].time_unix_nano), (1, span.start_time_unix_nano + 10 * MS));

    let call = setup.exchange("POST /inference.GRPCInferenceService/ModelInfer", trace(1), Outcome::Ok, MS);
    let span = spans(&sampled(call, None), &setup.labels).remove(0);
    let own = attributes(&span);
    assert_eq!(span.name, "inference.GRPCInferenceService/ModelInfer");
    assert_eq!((&own["rpc.system.name"], &own["rpc.response.status_code"]), (&text("grpc"), &text("OK")));
    assert_eq!((own.get("gen_ai.operation.name"), &own["rpc.method"]), (None, &text(&span.name)));
}
