//! The handler: hydrates, tokenizes, runs the model and calibrates, and times each step.
//!
//! Hydration, tokenizing and calibration take milliseconds, so they run on the runtime's blocking threads. The wait for a thread
//! counts as queue, like the wait in the model's own queue. The answer's `Server-Timing` cannot name hydration, so only the spans
//! report it.

use std::io;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use lapwing_model::batch;
use lapwing_model::served::Served;
use lapwing_model::service::{About, Answer, Call, CallError, Pending, Placement, Servable, Stages};
use lapwing_onnx::tensor::{Datatype, Tensor, TensorSpec};
use tokio::runtime::Handle;

use super::cache::{CacheCounts, CachedFeatures};
use super::calibration::Calibrator;
use super::classifier::{Classifier, tensors};
use super::corpus::{self, CLASSES};
use super::replay::Replay;
use super::table::{FeatureTable, id};
use super::tokenizer::Tokenizer;
use super::{MODEL, ROWS, SEED, WORKING_SET};
use crate::scenario::Script;
use crate::steps::{Step, StepRecorder};
use lapwing_ledger::{Stage, Stamp};

/// Teams per row in the answer, the most probable first.
pub(crate) const TOP: usize = 3;
/// The most rows that one request may hold.
const MAX_ROWS: usize = 256;
const INPUT: &str = "ticket_ids";
/// The most tokens of a batch with which the engine warms up; larger calls run alone.
const MAX_TOKENS: usize = 4096;
/// How long the start waits for the model's warm-up, which takes some 100 ms.
const WARM_UP: Duration = Duration::from_secs(30);

/// The served model.
#[derive(Debug)]
pub(crate) struct TicketModel {
    about: About,
    model: Arc<Served>,
    parts: Arc<Parts>,
    script: Option<Arc<Script>>,
    /// Its answers for the tickets that a script's requests name.
    replay: OnceLock<Replay>,
}

/// What a request needs besides the model.
#[derive(Debug)]
struct Parts {
    features: CachedFeatures,
    tokenizer: Tokenizer,
    calibrator: Calibrator,
    script: Option<Arc<Script>>,
}

/// A request before it reaches the model.
struct Prepared {
    inputs: Vec<Tensor>,
    /// The wait for a thread, without hydration.
    waited_ns: u64,
    preprocessing_ns: u64,
}

impl TicketModel {
    /// Builds the table and the model, and starts its thread. With a script, requests wait where it says.
    ///
    /// # Errors
    ///
    /// If a part cannot be built, or no thread can be started.
    pub(crate) fn start(script: Option<Arc<Script>>) -> io::Result<Self> {
        let table = FeatureTable::pack(&corpus::tickets(SEED, ROWS))?;
        let features = CachedFeatures::new(table, ROWS);
        let Classifier { tokenizer, model, calibrator } = Classifier::fit().map_err(io::Error::other)?;
        let limits = batch::Config { max_calls: 16, max_rows: MAX_ROWS, max_tokens: MAX_TOKENS, ..batch::Config::default() };
        let model = Arc::new(Served::start(MODEL, "1", model, limits, None)?);
        let port =
            |name: &str, datatype, shape: &[Option<usize>]| TensorSpec { name: name.to_owned(), datatype, shape: shape.to_vec() };
        let about = About {
            inputs: vec![port(INPUT, Datatype::Int64, &[None])],
            outputs: vec![
                port("label", Datatype::Int64, &[None, Some(TOP)]),
                port("probability", Datatype::Fp32, &[None, Some(TOP)]),
            ],
            ..model.about().clone()
        };
        let parts = Parts { features, tokenizer, calibrator, script: script.clone() };
        Ok(Self { about, model, parts: Arc::new(parts), script, replay: OnceLock::new() })
    }

    /// The counts of the feature cache.
    pub(crate) fn cache_counts(&self) -> &Arc<CacheCounts> {
        self.parts.features.counts()
    }

    /// Computes the answers that a script needs, and fills the cache with their rows. Blocks meanwhile; does nothing without a script.
    ///
    /// # Errors
    ///
    /// If a row cannot be read, or the model does not answer.
    pub(crate) fn learn_answers(&self) -> io::Result<()> {
        if self.script.is_none() {
            return Ok(());
        }
        let working_set: Vec<i64> = (0..WORKING_SET).map(id).collect();
        let inputs = |id: i64| -> io::Result<Vec<Tensor>> {
            let (texts, _) = self.parts.features.hydrate(&[id]).map_err(io::Error::other)?;
            let tokens = self.parts.tokenizer.tokenize(&texts).map_err(|error| io::Error::other(error.to_string()))?;
            Ok(tensors(&tokens))
        };
        let _ = self.replay.set(Replay::learn(&self.model, &working_set, inputs)?);
        Ok(())
    }

    /// Blocks until the model is warm.
    ///
    /// # Errors
    ///
    /// If it is not warm within 30 s.
    pub(crate) fn wait_until_ready(&self) -> io::Result<()> {
        let began = Stamp::now();
        while !self.model.is_ready() {
            if Duration::from_nanos(began.elapsed()) > WARM_UP {
                return Err(io::Error::new(io::ErrorKind::TimedOut, format!("the demo's model was not warm within {WARM_UP:?}")));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }
}

impl Servable for TicketModel {
    fn about(&self) -> &About {
        &self.about
    }

    fn placement(&self) -> Arc<Placement> {
        self.model.placement()
    }

    fn is_ready(&self) -> bool {
        self.model.is_ready()
    }

    fn infer(&self, call: Call) -> Pending {
        let recorder = StepRecorder::current().unwrap_or_default();
        let (called, deadline) = (Stamp::now(), call.deadline);
        let (ids, names) = match ids(&call.inputs).and_then(|ids| Ok((ids, self.wanted(call.outputs)?))) {
            Ok(asked) => asked,
            Err(error) => return Box::pin(std::future::ready(Err(error))),
        };
        let replayed = self.replay.get().and_then(|replay| replay.answer(&ids));
        let (parts, steps) = (Arc::clone(&self.parts), Arc::clone(&recorder));
        let preparing = on_thread(move || parts.prepare(&ids, called, &steps));
        let (parts, model, script) = (Arc::clone(&self.parts), Arc::clone(&self.model), self.script.clone());
        Box::pin(async move {
            let Prepared { inputs, waited_ns, preprocessing_ns } = preparing.await?;
            let rows = inputs.first().and_then(|ids| ids.shape.first().copied()).unwrap_or_default();
            let ready = Stamp::now();
            let interval = script.map(|script| script.reserve_instance(rows, ready));
            if let Some(interval) = interval {
                wait_until(interval.start).await;
                recorder.inject(Stage::Queue, interval.start.since(ready));
                recorder.inject(Stage::Forward, interval.end.since(interval.start));
            }
            let asked = Stamp::now();
            let waited_ns = waited_ns.saturating_add(asked.since(ready));
            let mut answer = match replayed {
                Some(answer) => answer,
                None => model.infer(Call { inputs, outputs: Vec::new(), deadline }).await?,
            };
            let forward = asked.plus(answer.stages.queue_ns).plus(answer.stages.preprocessing_ns);
            if let Some(interval) = interval {
                wait_until(interval.end).await;
                answer.stages.forward_ns = answer.stages.forward_ns.max(Stamp::now().since(forward));
            }
            recorder.record(Step::Forward { rows }, forward, forward.plus(answer.stages.forward_ns));
            let logits = answer.outputs.first().map(Tensor::to_f32).unwrap_or_default();
            let (outputs, postprocessing_ns) = on_thread(move || Ok(parts.finish(&logits, &names, &recorder))).await?;
            let stages = Stages {
                queue_ns: answer.stages.queue_ns.saturating_add(waited_ns),
                preprocessing_ns: answer.stages.preprocessing_ns.saturating_add(preprocessing_ns),
                forward_ns: answer.stages.forward_ns,
                postprocessing_ns: answer.stages.postprocessing_ns.saturating_add(postprocessing_ns),
            };
            Ok(Answer { outputs, stages, ..answer })
        })
    }
}

impl TicketModel {
    /// The requested outputs; all if the request names none.
    fn wanted(&self, names: Vec<String>) -> Result<Vec<String>, CallError> {
        let known = || self.about.outputs.iter().map(|output| output.name.clone());
        match names.iter().find(|name| !known().any(|output| output == **name)) {
            Some(name) => {
                let reason = format!("the model has no `{name}`; it has {:?}", known().collect::<Vec<_>>());
                Err(CallError::Input { tensor: "outputs".to_owned(), reason })
            }
            None if names.is_empty() => Ok(known().collect()),
            None => Ok(names),
        }
    }
}

impl Parts {
    fn prepare(&self, ids: &[i64], called: Stamp, recorder: &StepRecorder) -> Result<Prepared, CallError> {
        let began = Stamp::now();
        if let Some(script) = &self.script {
            if script.take_flush(began) {
                self.features.clear();
            }
            self.features.forget(&script.expired(ids));
        }
        let (texts, hits) = self.features.hydrate(ids).map_err(|error| input_error(error.to_string()))?;
        if let Some(script) = &self.script {
            self.wait_for(script.store_ns(ids.len() - hits), Stage::Hydration, recorder);
        }
        let hydrated = Stamp::now();
        let tokens = self.tokenizer.tokenize(&texts).map_err(|error| CallError::Failed { reason: error.to_string() })?;
        let inputs = tensors(&tokens);
        let tokenized = Stamp::now();
        recorder.record(Step::Hydration { rows: ids.len(), hits }, began, hydrated);
        recorder.record(Step::Preprocessing { tokens: tokens.ids.len() }, hydrated, tokenized);
        Ok(Prepared { inputs, waited_ns: began.since(called), preprocessing_ns: tokenized.since(hydrated) })
    }

    /// Waits on this thread as the script says.
    fn wait_for(&self, ns: u64, stage: Stage, recorder: &StepRecorder) {
        if ns > 0 {
            std::thread::sleep(Duration::from_nanos(ns));
            recorder.inject(stage, ns);
        }
    }

    /// The outputs of these names, and how long they took, in nanoseconds.
    fn finish(&self, logits: &[f32], names: &[String], recorder: &StepRecorder) -> (Vec<Tensor>, u64) {
        let began = Stamp::now();
        if let Some(script) = &self.script {
            self.wait_for(script.postprocessing_ns(), Stage::Postprocessing, recorder);
        }
        let rows = logits.as_chunks::<CLASSES>().0;
        let (mut labels, mut probabilities) = (Vec::with_capacity(rows.len() * TOP), Vec::with_capacity(rows.len() * TOP));
        for row in rows {
            let calibrated = self.calibrator.probabilities(row);
            for class in best(&calibrated) {
                labels.push(i64::try_from(class).unwrap_or(i64::MAX));
                probabilities.push(calibrated[class]);
            }
        }
        let shape = [rows.len(), TOP];
        let output = |name: &String| match name.as_str() {
            "label" => Tensor::i64("label", &shape, &labels),
            _ => Tensor::f32("probability", &shape, &probabilities),
        };
        let outputs = names.iter().map(output).collect();
        let ended = Stamp::now();
        recorder.record(Step::Postprocessing, began, ended);
        (outputs, ended.since(began))
    }
}

/// Waits without a thread.
async fn wait_until(moment: Stamp) {
    let early_ns = moment.since(Stamp::now());
    if early_ns > 0 {
        tokio::time::sleep(Duration::from_nanos(early_ns)).await;
    }
}

/// The most probable classes, the best first.
fn best(probabilities: &[f32; CLASSES]) -> [usize; TOP] {
    let mut order: [usize; CLASSES] = std::array::from_fn(|class| class);
    order.sort_unstable_by(|a, b| probabilities[*b].total_cmp(&probabilities[*a]));
    std::array::from_fn(|at| order[at])
}

fn input_error(reason: String) -> CallError {
    CallError::Input { tensor: INPUT.to_owned(), reason }
}

/// The tickets that a request names.
fn ids(inputs: &[Tensor]) -> Result<Vec<i64>, CallError> {
    let [tensor] = inputs else {
        let reason = format!("expected one tensor, `{INPUT}`, got {}", inputs.len());
        return Err(CallError::Input { tensor: "inputs".to_owned(), reason });
    };
    if tensor.name != INPUT {
        return Err(CallError::Input { tensor: tensor.name.clone(), reason: format!("expected `{INPUT}`") });
    }
    if tensor.datatype != Datatype::Int64 {
        return Err(input_error(format!("expected INT64, got {}", tensor.datatype.name())));
    }
    let ids = tensor.data.as_chunks::<8>().0.iter().map(|bytes| i64::from_le_bytes(*bytes));
    match tensor.shape[..] {
        [rows] if (1..=MAX_ROWS).contains(&rows) && ids.len() == rows => Ok(ids.collect()),
        _ => Err(input_error(format!("expected shape [N] with 1 to {MAX_ROWS} rows, got {:?}", tensor.shape))),
    }
}

/// Runs `work` on one of the runtime's blocking threads, as soon as one is free.
fn on_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, CallError> + Send + 'static,
) -> impl Future<Output = Result<T, CallError>> + Send {
    let failed = |reason: String| CallError::Failed { reason };
    let running = Handle::try_current().map(|runtime| runtime.spawn_blocking(work));
    async move { running.map_err(|error| failed(error.to_string()))?.await.map_err(|error| failed(error.to_string()))? }
}
