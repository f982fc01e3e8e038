//! A served model from call to answer: batches, refusals, faults of one call among others, and the end.

use std::sync::Arc;

use futures_util::future::join_all;

use super::{Served, ServedState};
use crate::batch::{Config, Policy};
use crate::choice::Backend;
use crate::model::{BatchAxis, BatchTrial, Model, ModelOptions};
use crate::service::{Answer, Call, CallError, Servable};
use lapwing_engine::clock::Stamp;
use lapwing_onnx::tensor::Tensor;

fn model(fixture: &str) -> Model {
    let folder = std::path::PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/plans");
    Model::read(&folder.join(format!("{fixture}.onnx")), &ModelOptions::default()).unwrap()
}

fn served(fixture: &str, config: Config) -> Served {
    let model = model(fixture);
    let served = Served::start("m", "1", model, config, None).unwrap();
    while !served.is_ready() {
        std::thread::yield_now();
    }
    served
}

/// A call to an encoder: the same id everywhere, nothing masked out.
fn call(served: &Served, rows: usize, length: usize, id: i64) -> Call {
    let tensor = |port: &lapwing_onnx::tensor::TensorSpec| {
        let value = if port.name == "ids" { id } else { 1 };
        Tensor::i64(&port.name, &[rows, length], &vec![value; rows * length])
    };
    Call { inputs: served.about().inputs.iter().map(tensor).collect(), outputs: Vec::new(), deadline: None }
}

/// Three calls meet, or what has come after a fifth of a second.
fn together() -> Config {
    Config { policy: Policy::Fixed { calls: 3 }, max_wait_ns: 200_000_000, ..Config::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_that_wait_together_run_together_and_get_their_own() {
    let served = served("0001", together());
    let lengths = [(1, 3), (2, 5), (1, 1)];
    let calls: Vec<Call> =
        lengths.iter().enumerate().map(|(id, (rows, length))| call(&served, *rows, *length, id as i64)).collect();
    let together: Vec<Answer> =
        join_all(calls.iter().map(|call| served.infer(call.clone()))).await.into_iter().map(Result::unwrap).collect();
    for (answer, call) in together.iter().zip(calls) {
        assert_eq!((answer.batch.calls, answer.batch.rows, answer.batch.executed, answer.batch.useful), (3, 4, 14, 14));
        assert!(answer.stages.forward_ns > 0, "{answer:?}");
        assert_eq!((&*answer.placement.device, answer.placement.precision), ("cpu", "fp32"));
        let alone = served.infer(call).await.unwrap();
        for (a, b) in answer.outputs.iter().zip(&alone.outputs) {
            assert_eq!((&a.name, &a.shape), (&b.name, &b.shape));
            assert!(a.to_f32().iter().zip(b.to_f32()).all(|(a, b)| (a - b).abs() < 1e-4));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_without_a_plan_run_together_where_their_lengths_are_the_same() {
    let path = std::path::PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/plans/0001.onnx");
    let options = ModelOptions { backend: Backend::Rten, batch_trial: Some(BatchTrial::Here), ..ModelOptions::default() };
    let served = Served::start("m", "1", Model::read(&path, &options).unwrap(), together(), None).unwrap();
    while !served.is_ready() {
        std::thread::yield_now();
    }
    assert_eq!(served.model().batch_axis(), &BatchAxis::Shown);
    let calls = [(1, 3, 1), (2, 5, 2), (2, 3, 3)].map(|(rows, length, id)| call(&served, rows, length, id));
    let answers = join_all(calls.iter().map(|call| served.infer(call.clone()))).await;
    let mut forwards = Vec::new();
    // the first and the last are three sequences of three tokens, and the other runs behind them
    for ((answer, call), batch) in answers.into_iter().map(Result::unwrap).zip(calls).zip([(2, 3), (1, 2), (2, 3)]) {
        assert_eq!((answer.batch.calls, answer.batch.rows), batch);
        forwards.push((answer.stages.forward_ns, answer.stages.queue_ns));
        let alone = served.infer(call).await.unwrap();
        for (a, b) in answer.outputs.iter().zip(&alone.outputs) {
            assert_eq!((&a.name, &a.shape), (&b.name, &b.shape));
            assert!(a.to_f32().iter().zip(b.to_f32()).all(|(a, b)| (a - b).abs() < 1e-4));
        }
    }
    assert!(forwards[0].0 == forwards[2].0 && forwards[1].1 > forwards[0].0, "it waited for the others: {forwards:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_warm_up_measured_stays_while_calls_run() {
    let served = served("0001", together());
    let line = served.warm_line().unwrap();
    assert!(line.counts_tokens && line.fixed_ns + line.unit_ns > 0.0, "{line:?}");
    served.infer(call(&served, 2, 5, 1)).await.unwrap();
    assert_eq!(served.warm_line(), Some(line));
}

#[tokio::test(flavor = "multi_thread")]
async fn models_without_a_plan_of_ours_have_a_line_over_rows() {
    // trees, a convolution that rten runs, and one whose rows are always two
    for file in ["../../../crates/lapwing-tabular/tests/golden/lightgbm", "refused-conv", "refused-fixed-conv"] {
        let served = served(file, Config::default());
        assert!(!served.model().batches(), "{file}");
        let line = served.warm_line().unwrap();
        assert!(!line.counts_tokens && line.fixed_ns + line.unit_ns > 0.0, "{file}: {line:?}");
        assert_eq!(served.model().has_open_batch(), file != "refused-fixed-conv");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_fault_of_one_call_is_not_that_of_the_others() {
    let served = served("0001", together());
    let calls = [call(&served, 1, 3, 1), call(&served, 1, 3, 1_000_000), call(&served, 1, 2, 2)];
    let answers = join_all(calls.map(|call| served.infer(call))).await;
    assert!(answers[0].is_ok() && answers[2].is_ok());
    let CallError::Input { tensor, reason } = answers[1].clone().unwrap_err() else { panic!("{answers:?}") };
    assert_eq!(tensor, "ids");
    assert!(reason.contains("asks for row 1000000"), "{reason}");
}

#[tokio::test(flavor = "multi_thread")]
async fn outputs_are_those_that_were_asked_for() {
    let served = served("0001", Config::default());
    let names: Vec<String> = served.about().outputs.iter().map(|output| output.name.clone()).collect();
    let last = names.last().unwrap().clone();
    let answer = served.infer(Call { outputs: vec![last.clone()], ..call(&served, 1, 3, 1) }).await.unwrap();
    assert_eq!(answer.outputs.iter().map(|output| &output.name).collect::<Vec<_>>(), [&last]);
    let none = served.infer(Call { outputs: vec!["none".into()], ..call(&served, 1, 3, 1) }).await.unwrap_err();
    assert_eq!(none.to_string(), format!("outputs: the model has no `none`; it has {names:?}"));
}

#[tokio::test(flavor = "multi_thread")]
async fn late_and_many_calls_are_refused_and_the_end_answers_the_rest() {
    let served = Arc::new(served("0001", Config { queue_calls: 2, ..together() }));
    let late = served.infer(Call { deadline: Some(Stamp::now()), ..call(&served, 1, 3, 1) });
    assert!(matches!(late.await, Err(CallError::Deadline { .. })));
    let waiting = [served.infer(call(&served, 1, 3, 1)), served.infer(call(&served, 1, 4, 1))];
    assert_eq!(served.infer(call(&served, 1, 3, 1)).await.unwrap_err(), CallError::Full { waiting: 2 });
    let stopping = served.clone();
    let stopped = tokio::task::spawn_blocking(move || stopping.stop());
    assert!(join_all(waiting).await.iter().all(Result::is_ok));
    stopped.await.unwrap();
    assert!(matches!(served.infer(call(&served, 1, 3, 1)).await, Err(CallError::NotReady { .. })));
}

const LOST: &str = "cuda:0: an illegal address was accessed (700)";

#[tokio::test(flavor = "multi_thread")]
async fn a_device_that_fails_ends_the_model_and_every_call_is_told_why() {
    // the fourth would wait for a minute, were it not answered at the end of the model
    let served = served("0001", Config { max_wait_ns: 60_000_000_000, ..together() });
    assert_eq!(served.placement().fault, None);
    *served.state.breaks.lock() = Some(LOST.into());
    let fault = Err(CallError::Device { reason: LOST.into() });
    let calls = join_all((0..4).map(|_| served.infer(call(&served, 1, 3, 1))));
    let answers = tokio::time::timeout(std::time::Duration::from_secs(30), calls).await.unwrap();
    assert!(answers.iter().all(|answer| *answer == fault), "{answers:?}");
    assert!(!served.is_ready());
    assert_eq!(served.placement().fault.as_deref(), Some(LOST));
    // for good, even where the device would run again
    *served.state.breaks.lock() = None;
    assert_eq!(served.infer(call(&served, 1, 3, 1)).await, fault);
    served.stop();
    assert_eq!((served.is_ready(), served.infer(call(&served, 1, 3, 1)).await), (false, fault));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_device_that_fails_at_warm_up_leaves_the_model_unready() {
    let state = ServedState::default();
    *state.breaks.lock() = Some(LOST.into());
    let served = Served::start_in(state, "m", "1", model("0001"), Config::default(), None).unwrap();
    served.stop(); // the thread has ended
    assert!(!served.is_ready());
    assert_eq!(served.infer(call(&served, 1, 3, 1)).await, Err(CallError::Device { reason: LOST.into() }));
}
