//! The cost of a chat and of rows on every admin path, compared with figures calculated by hand from the fixture.

use serde_json::{Value, json};

use super::fixture::{CHAT, ROUTE, busy};
use crate::*;
use lapwing_metrics::views::{self, ExchangeQuery, Names};
use lapwing_metrics::{Order, Window};

fn read(of: &impl serde::Serialize) -> Value {
    serde_json::from_str(&serde_json::to_string(of).unwrap()).unwrap()
}

fn series(route: &str) -> Value {
    let stats = read(&stats::stats(&busy(), Window::All, &Names::default()));
    let found = stats["series"].as_array().unwrap().iter().find(|s| s["route"] == route);
    found.unwrap().clone()
}

fn exchange(route: &str) -> Value {
    let all = read(&views::exchanges(&busy().registry, &ExchangeQuery::first(Order::Recent, 200)));
    let found = all["exchanges"].as_array().unwrap().iter().rev().find(|s| s["route"] == route);
    found.unwrap().clone()
}

/// A distribution of one value, of nanoseconds or picoseconds.
fn once(value: u64, unit: &str) -> Value {
    let names = ["mean", "p50", "p90", "p99", "p999", "max"].map(|name| (format!("{name}_{unit}"), json!(value)));
    names.into_iter().chain([("count".to_owned(), json!(1))]).collect()
}

fn with(mut base: Value, more: &Value) -> Value {
    base.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    base
}

#[test]
fn stats_divide_a_chat_by_its_tokens() {
    let chat = series(CHAT);
    assert_eq!((&chat["server"], &chat["model"]), (&json!("llama.cpp"), &json!("tiny")));
    assert_eq!(chat["units"], json!({"row": 1, "input_token": 100, "output_token": 11, "flop": 22_000_000}));
    let basis =
        json!({"row": {"counted": 1}, "input_token": {"estimated": 1}, "output_token": {"reported": 1}, "flop": {"counted": 1}});
    assert_eq!(chat["basis"], basis);
    let slots = [
        ("ingress", "byte", 64, 78_125_000_u64),
        ("forward", "output_token", 11, 3_181_818_182),
        ("prefill", "input_token", 100, 50_000_000),
        ("decode", "output_token", 10, 3_000_000_000),
        ("egress", "byte", 128, 39_062_500),
        ("forward_flop", "gflop", 22_000_000, 1_590_909_090_909),
    ];
    let per_unit = chat["per_unit"].as_object().unwrap();
    assert_eq!(per_unit.len(), slots.len());
    let told = |unit: &str, units: u64| if unit == "gflop" { json!(units as f64 / 1e9) } else { json!(units) };
    for (slot, unit, units, ps) in slots {
        let mut said = per_unit[slot].clone();
        let mean = said["mean_ps"].take().as_f64().unwrap();
        assert!((mean - ps as f64).abs() <= 0.5, "{slot}: {mean}");
        assert_eq!(said, with(once(ps, "ps"), &json!({"unit": unit, "units": told(unit, units), "mean_ps": null})), "{slot}");
    }
    let class = json!({"class": 3, "from": 8, "to": 15, "unit": "output_token"});
    assert_eq!(chat["classes"], json!([with(once(50_000_000, "ns"), &class)]));
    let phase = |ns, share| with(once(ns, "ns"), &json!({"share": share, "sources": {"reported": 1}}));
    assert_eq!(chat["phases"], json!({"prefill": phase(5_000_000, 0.1), "decode": phase(30_000_000, 0.6)}));
    assert_eq!((&chat["stages"]["queue"]["resolution_ns"], &chat["stages"]["queue"]["max_ns"]), (&json!(1_000_000), &json!(0)));
    assert_eq!(chat["stages"]["ingress"].get("resolution_ns"), None);
    assert_eq!(chat["batch"], json!({"size": 2.5, "padding": 0.25, "running": 3.0, "waiting": 1.0}));
}

#[test]
fn stats_show_what_the_server_counted_beside_the_stages() {
    let stats = read(&stats::stats(&busy(), Window::All, &Names::default()));
    let sum = |count: u64, sum_ns: u64| json!({"count": count, "sum_ns": sum_ns, "mean_ns": sum_ns / count});
    let sums = json!({
        "polls": 2,
        "covered_ns": 10_000_000_000_u64,
        "stages": {"queue": sum(5, 4_000_000), "forward": sum(5, 280_000_000)},
        "phases": {"prefill": sum(5, 40_000_000), "decode": sum(5, 240_000_000)},
    });
    let chat = series(CHAT);
    assert_eq!(chat["polled"], sums);
    let named = json!({"model": "tiny", "upstream": "http://127.0.0.1:8000", "routes": [CHAT], "batch": chat["batch"]});
    assert_eq!(stats["polled"], json!([with(sums, &named)]));
    // nothing of it is in a stage: the queue is below the millisecond by the response's own word
    assert_eq!(chat["stages"]["queue"]["max_ns"], 0);
    assert_eq!((series(ROUTE)["polled"].clone(), chat["first_byte"].clone()), (Value::Null, once(9_000_000, "ns")));
}

#[test]
fn stats_tell_the_pace_of_a_chat() {
    let generation = &series(CHAT)["generation"];
    let gaps = with(once(2_000_000, "ns"), &json!({"count": 10}));
    let wanted = json!({
        "first_token": once(10_000_000, "ns"),
        "per_output_token": once(2_000_000, "ns"),
        "inter_token": gaps,
        "server_first_token": once(6_000_000, "ns"),
        "server_per_output_token": once(3_000_000, "ns"),
        "output_tokens_per_s": {"p50": 500.0, "p10": 500.0, "p1": 500.0},
    });
    assert_eq!(*generation, wanted);
    let rows = series(ROUTE);
    assert_eq!((&rows["generation"], &rows["batch"], &rows["server"]), (&Value::Null, &Value::Null, &Value::Null));
    assert_eq!(rows["phases"], json!({}));
}

#[test]
fn stats_show_that_rows_cost_alike_whatever_the_request() {
    let rows = series(ROUTE);
    let forward = &rows["per_unit"]["forward"];
    assert_eq!((&forward["units"], &forward["mean_ps"]), (&json!(5_050), &json!(5e8)), "half a millisecond");
    assert_eq!(
        (&forward["p50_ps"], &forward["p99_ps"], &forward["unit"]),
        (&json!(500_000_000), &json!(500_000_000), &json!("row"))
    );
    let counts: Vec<_> = rows["classes"].as_array().unwrap().iter().map(|c| (c["from"].as_u64(), c["count"].as_u64())).collect();
    let wanted = [(1, 1), (2, 2), (4, 4), (8, 8), (16, 16), (32, 32), (64, 37)];
    assert_eq!(counts, wanted.map(|(from, count)| (Some(from), Some(count))));
}

#[test]
fn an_exchange_says_what_it_asked_for() {
    let chat = exchange(CHAT);
    assert_eq!((&chat["server"], &chat["class"]), (&json!("llama.cpp"), &json!(3)));
    let amount = |amount: u64, basis| json!({"amount": amount, "basis": basis});
    let work = json!({
        "primary": "output_token",
        "row": amount(1, "counted"),
        "input_token": amount(100, "estimated"),
        "output_token": amount(11, "reported"),
        "flop": amount(22_000_000, "counted"),
    });
    assert_eq!(chat["work"], work);
    let phase = |phase, ns| json!({"phase": phase, "ns": ns, "source": "reported"});
    assert_eq!(chat["phases"], json!([phase("prefill", 5_000_000), phase("decode", 30_000_000)]));
    assert_eq!(chat["per_unit"]["decode"], json!({"unit": "output_token", "units": 10, "ps": 3_000_000_000_u64}));
    assert_eq!(chat["per_unit"].as_object().unwrap().len(), 6);
    let generation = json!({
        "streamed": true, "first_token_ns": 10_000_000, "per_output_token_ns": 2_000_000, "output_tokens_per_s": 500.0,
        "chunks": 11, "gaps": 10, "gaps_dropped": 0,
        "server": {"first_token_ns": 6_000_000, "per_output_token_ns": 3_000_000},
    });
    assert_eq!(chat["generation"], generation);
    assert_eq!((&chat["first_byte_ns"], chat.get("batch")), (&json!(9_000_000), None));
    assert_eq!((&chat["annotations"], &chat["in_flight"]), (&json!(["split_write", "quick_ack"]), &json!(3)));
    assert_eq!(chat["body_gap_ns"], 4_000_000);
    let queue = json!({"stage": "queue", "ns": 0, "source": "reported", "resolution_ns": 1_000_000});
    assert!(chat["stages"].as_array().unwrap().contains(&queue));
    let decode = json!({
        "name": "decode", "stage": "forward", "phase": "decode", "start_ns": 15_000_000, "end_ns": 45_000_000, "source": "reported",
    });
    assert!(chat["spans"].as_array().unwrap().contains(&decode), "{}", chat["spans"]);
    let cancelled = read(&views::exchanges(&busy().registry, &ExchangeQuery::first(Order::Recent, 200)));
    let cancelled = cancelled["exchanges"].as_array().unwrap().iter().find(|e| e["outcome"] == "cancelled").unwrap().clone();
    let absent = ["work", "class", "generation", "first_byte_ns", "server", "in_flight", "body_gap_ns"];
    let absent = absent.map(|key| cancelled[key].clone());
    assert_eq!((absent, &cancelled["per_unit"]), ([const { Value::Null }; 7], &json!({})));
    assert_eq!(cancelled["annotations"], json!([]));
}
