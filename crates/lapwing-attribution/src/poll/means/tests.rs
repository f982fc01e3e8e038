//! The means between two polls of every server's metrics, against values worked out by hand from the fixtures.

use super::super::reading::WantedSamples;
use super::super::{detect, reading};
use super::*;
use lapwing_ledger::{Phase, Server};
use lapwing_protocol::servers::table;

const MS: u64 = 1_000_000;
const US: u64 = 1_000;

/// The two polls of a fixture.
fn polls(text: &str) -> (&str, &str) {
    text.split_once("# --- second poll\n").unwrap()
}

fn means(server: Server, before: &str, after: &str) -> BTreeMap<ModelLabel, Means> {
    let rows: Vec<&'static ReportedField> = table::metrics(server).map(|(_, row)| row).collect();
    let wants = WantedSamples::of(server, &rows);
    let [before, after] = [before, after].map(|text| wants.read(text));
    assert_eq!([before.malformed, after.malformed], [0, 0]);
    between(&before, &after, &rows)
}

fn named(name: &str) -> ModelLabel {
    Some(name.into())
}

fn reports(means: &Means) -> Vec<(Stage, Option<Phase>, u64)> {
    means.stages.iter().map(|time| (time.stage, time.phase, time.sum.mean_ns())).collect()
}

fn of(stage: Stage, ns: u64) -> (Stage, Option<Phase>, u64) {
    (stage, None, ns)
}

macro_rules! fixture {
    ($server:expr, $folder:literal, $model:expr) => {{
        let text = include_str!(concat!("../../../../../tests/fixtures/", $folder, "/metrics.txt"));
        let (before, after) = polls(text);
        assert_eq!(detect::by_metrics(before), Some($server), "detection");
        let all = means($server, before, after);
        let model: ModelLabel = $model;
        let means = all.get(&model).unwrap_or_else(|| panic!("{all:?}")).clone();
        (reports(&means), means.batch.unwrap_or_default())
    }};
}

#[test]
fn vllm() {
    let (stages, batch) = fixture!(Server::Vllm, "vllm", named("org/m"));
    // two engines, 8 requests: 0.08 s of queue, 0.4 s of prefill, 12 s of decode
    let prefill = (Stage::Forward, Some(Phase::Prefill), 50 * MS);
    let decode = (Stage::Forward, Some(Phase::Decode), 1500 * MS);
    assert_eq!(stages, [of(Stage::Queue, 10 * MS), prefill, decode]);
    assert_eq!(batch, BatchStatistics { running: Some(8.0), waiting: Some(3.0), ..BatchStatistics::default() });
}

#[test]
fn sglang() {
    let (stages, batch) = fixture!(Server::Sglang, "sglang", named("org/m"));
    // prefill 0.5 s of 2 requests; decode is new: 3 s of 2
    let prefill = (Stage::Forward, Some(Phase::Prefill), 250 * MS);
    let decode = (Stage::Forward, Some(Phase::Decode), 1500 * MS);
    assert_eq!(stages, [of(Stage::Queue, 15 * MS), prefill, decode]);
    assert_eq!(batch, BatchStatistics { running: Some(4.0), waiting: Some(1.0), ..BatchStatistics::default() });
}

#[test]
fn tei() {
    let (stages, batch) = fixture!(Server::Tei, "tei", None);
    assert_eq!(stages, [of(Stage::Preprocessing, 400 * US), of(Stage::Queue, 2 * MS), of(Stage::Forward, 20 * MS)]);
    assert_eq!(batch, BatchStatistics { size: Some(2.5), waiting: Some(2.0), ..BatchStatistics::default() });
}

#[test]
fn tgi() {
    let (stages, batch) = fixture!(Server::Tgi, "tgi", None);
    assert_eq!(stages, [of(Stage::Preprocessing, MS), of(Stage::Queue, 50 * MS), of(Stage::Forward, 1500 * MS)]);
    assert_eq!(batch, BatchStatistics { size: Some(3.0), running: Some(4.0), waiting: Some(7.0), ..BatchStatistics::default() });
}

#[test]
fn llama_cpp_counts_no_requests_so_its_seconds_are_of_nobody() {
    let (stages, batch) = fixture!(Server::LlamaCpp, "llama.cpp", None);
    assert_eq!(stages, []);
    assert_eq!(batch, BatchStatistics { size: Some(2.5), running: Some(2.0), waiting: Some(1.0), ..BatchStatistics::default() });
}

#[test]
fn tensorflow_serving() {
    let (stages, batch) = fixture!(Server::TfServing, "tensorflow-serving", named("half_plus_two"));
    // in µs; the runtime's 600 have the batch's queue in them; 2 executions of 12 rows, of which 4 were padding
    // the queue is that of the whole server
    assert_eq!(stages, [of(Stage::Forward, 100 * US)]);
    assert_eq!(batch.size, Some(4.0));
    assert!((batch.padding.unwrap() - 1.0 / 3.0).abs() < 1e-12);
}

#[test]
fn tensorflow_serving_without_batching_has_no_queue_in_its_runtime() {
    let (before, after) = polls(include_str!("../../../../../tests/fixtures/tensorflow-serving/metrics.txt"));
    let without = |text: &str, families: &str| {
        text.lines().filter(|line| !line.contains(families)).map(|line| format!("{line}\n")).collect::<String>()
    };
    let of_half = |before: &str, after: &str| reports(&means(Server::TfServing, before, after)[&named("half_plus_two")]);
    let [first, second] = [before, after].map(|text| without(text, "batching_session"));
    assert_eq!(of_half(&first, &second), [of(Stage::Forward, 600 * US)]); // 2400 µs of 4
    // a queue metric exists, but not for these requests, so it is unknown how much of the 600 was waiting
    let idle = after.lines().map(|line| {
        let old = before.lines().find(|old| old.contains(":queuing_latency") && old.split(' ').next() == line.split(' ').next());
        format!("{}\n", old.unwrap_or(line))
    });
    let all = means(Server::TfServing, before, &idle.collect::<String>());
    assert_eq!(reports(&all[&named("half_plus_two")]), []);
}

#[test]
fn torchserve() {
    let (stages, _) = fixture!(Server::TorchServe, "torchserve", named("digits"));
    // counters in µs over 4 requests: 2000 of queue, which is in the 32000
    assert_eq!(stages, [of(Stage::Queue, 500 * US), of(Stage::Forward, 7500 * US)]);
}

#[test]
fn mlserver_tells_no_queue_so_its_duration_is_no_forward() {
    let (stages, batch) = fixture!(Server::MlServer, "mlserver", named("iris"));
    assert_eq!(stages, []);
    assert_eq!(batch, BatchStatistics { waiting: Some(4.0), ..BatchStatistics::default() }); // 6/4 + 10/4
}

#[test]
fn kserve() {
    let (stages, _) = fixture!(Server::KServe, "kserve", named("sklearn"));
    assert_eq!(stages, [of(Stage::Preprocessing, 5 * MS), of(Stage::Forward, 60 * MS), of(Stage::Postprocessing, 2 * MS)]);
}

#[test]
fn ray_serve() {
    let (stages, batch) = fixture!(Server::RayServe, "ray-serve", None);
    // its times are of calls of deployments that call one another: no stage of a request
    assert_eq!(stages, []);
    assert_eq!(batch, BatchStatistics { running: Some(3.0), waiting: Some(5.0), ..BatchStatistics::default() });
}

#[test]
fn bentoml() {
    let (stages, batch) = fixture!(Server::BentoMl, "bentoml", None);
    assert_eq!(stages, []);
    assert_eq!(
        batch,
        BatchStatistics { running: Some(3.0), ..BatchStatistics::default() },
        "its batches count requests, not rows"
    );
}

#[test]
fn tensorrt_llm() {
    let (stages, batch) = fixture!(Server::TensorRtLlm, "tensorrt-llm", named("m"));
    assert_eq!(stages, [of(Stage::Queue, 50 * MS)]);
    assert_eq!(batch, BatchStatistics { running: Some(4.0), waiting: Some(9.0), ..BatchStatistics::default() });
}

#[test]
fn tritons_counters_do_where_only_its_metrics_are_known() {
    let text = include_str!("../../../../../tests/fixtures/triton/triton_2.51_metrics.txt");
    assert_eq!(detect::by_metrics(text), Some(Server::Triton));
    let all = means(Server::Triton, "", text); // since its start
    // nv_inference_queue_duration_us{model="fwd"} 4713 over 2 requests, and so on
    let fwd = reports(&all[&named("fwd")]);
    assert_eq!(fwd[0], of(Stage::Queue, 2_356_500));
    assert_eq!(fwd[1], of(Stage::Preprocessing, 38_500));
    assert!(!all.contains_key(&named("rowsum")), "no request, no mean");
}

const ONE: &str = "te_request_queue_duration_sum 1\nte_request_queue_duration_count 10\n";

#[test]
fn a_counter_that_fell_says_nothing_until_the_next_poll() {
    let restarted = "te_request_queue_duration_sum 0.2\nte_request_queue_duration_count 2\n";
    let later = "te_request_queue_duration_sum 0.5\nte_request_queue_duration_count 4\n";
    assert_eq!(means(Server::Tei, ONE, restarted), BTreeMap::new());
    assert_eq!(means(Server::Tei, ONE, "te_queue_size 3\n"), BTreeMap::new(), "gone is fallen");
    assert_eq!(reports(&means(Server::Tei, restarted, later)[&None]), [of(Stage::Queue, 150 * MS)]);
}

#[test]
fn without_requests_between_the_polls_nothing_is_said() {
    assert_eq!(means(Server::Tei, ONE, &format!("{ONE}te_queue_size 0\n")), BTreeMap::new());
}

#[test]
fn numbers_that_are_none_and_absurd_means_are_left_out() {
    let absurd = "te_request_queue_duration_sum 1e9\nte_request_queue_duration_count 11\nte_queue_size NaN\n";
    assert_eq!(means(Server::Tei, ONE, absurd), BTreeMap::new());
    let too_many = "te_request_queue_duration_sum 1e9\nte_request_queue_duration_count 1e18\n";
    assert_eq!(means(Server::Tei, ONE, too_many), BTreeMap::new());
    let infinite = "te_request_queue_duration_sum +Inf\nte_request_queue_duration_count 11\n";
    assert_eq!(means(Server::Tei, ONE, infinite), BTreeMap::new());
}

#[test]
fn models_are_told_apart_and_each_starts_anew_by_itself() {
    let poll = |a: u32, b: u32| {
        let one = |model: &str, n: u32| {
            format!(
                "vllm:request_queue_time_seconds_sum{{model_name=\"{model}\"}} {n}\n\
                 vllm:request_queue_time_seconds_count{{model_name=\"{model}\"}} {n}\n"
            )
        };
        one("a", a) + &one("b", b)
    };
    let all = means(Server::Vllm, &poll(5, 5), &poll(6, 1));
    assert_eq!(all.keys().collect::<Vec<_>>(), [&named("a")]);
}

#[test]
fn rows_name_families_and_one_label() {
    assert_eq!(reading::family("a:b"), ("a:b", None));
    assert_eq!(reading::family("a{stage=x}"), ("a", Some(("stage", "x"))));
}

proptest::proptest! {
    #[test]
    fn no_text_makes_means_panic(
        values in proptest::collection::vec(("[a-c]", 0..6_usize, proptest::num::f64::ANY), 0..24),
        cut in 0..24_usize,
    ) {
        let names = [
            "vllm:request_queue_time_seconds_sum",
            "vllm:request_queue_time_seconds_count",
            "vllm:request_decode_time_seconds_sum",
            "vllm:request_decode_time_seconds_count",
            "vllm:num_requests_waiting",
            "vllm:num_requests_running",
        ];
        let line = |(model, name, value): &(String, usize, f64)| format!("{}{{model_name=\"{model}\"}} {value}\n", names[*name]);
        let lines: Vec<String> = values.iter().map(line).collect();
        let (before, after) = lines.split_at(cut.min(lines.len()));
        for (_, means) in means(Server::Vllm, &before.concat(), &after.concat()) {
            for time in means.stages {
                proptest::prop_assert!(time.sum.mean_ns() as f64 <= ABSURD_NS);
            }
        }
    }
}
