//! The demo server's handler without its socket: decode, hydrate, normalise, forward, top three; each step on the clock.
//!
//! Where the steps begin and end, so that they follow one another without a gap: hydration is the lookup of ids;
//! preprocessing makes the model's input of what came (decoding the JSON of a pixel tensor and normalising it, or
//! normalising what hydration gave); forward is the model; postprocessing is softmax, top-k and the response's JSON.
//! Decoding a list of ids, some microseconds, belongs to no step, as in many real handlers.

use std::io;

use arrayvec::ArrayVec;
use parking_lot::Mutex;

use super::data::{self, Normaliser, WIDTH};
use super::features::FeatureTable;
use super::oip::{BadRequest, InferRequest, InferResponse, Input, OutputTensor};
use crate::ledger::Stamp;
use lapwing_engine::model::{ModelOptions, Workspace};
use lapwing_engine::tensor::Tensor;
use lapwing_engine::{EngineError, Model};

/// Labels per row in the response.
pub(super) const TOP: usize = 3;

/// A step of the handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Hydration { rows: usize, hits: usize },
    Preprocessing,
    Forward { rows: usize },
    Postprocessing,
}

/// A step and when it ran.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timed {
    pub step: Step,
    pub start: Stamp,
    pub end: Stamp,
}

/// The steps of one request, in order.
pub(super) type Steps = ArrayVec<Timed, 4>;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum InferError {
    /// The client's fault.
    #[error(transparent)]
    BadRequest(#[from] BadRequest),
    /// The engine's.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The response could not be written.
    #[error("response: {0}")]
    Encode(serde_json::Error),
}

/// Everything that a request needs.
#[derive(Debug)]
pub(super) struct Pipeline {
    model: Model,
    normaliser: Normaliser,
    features: Mutex<FeatureTable>,
    workspace: Mutex<Workspace>,
}

impl Pipeline {
    /// Loads the embedded model and table (some tens of milliseconds).
    pub(super) fn load() -> io::Result<Self> {
        let model = Model::parse(data::MODEL, &ModelOptions::default()).map_err(io::Error::other)?;
        let features = Mutex::new(FeatureTable::new(&data::rows()?));
        Ok(Self { model, normaliser: Normaliser::load()?, features, workspace: Mutex::default() })
    }

    /// Answers one request: the response's JSON, and when each step ran.
    pub(super) fn infer(&self, body: &[u8]) -> Result<(Vec<u8>, Steps), InferError> {
        let mut steps = Steps::new();
        let mut lap = Lap(Stamp::now());
        let mut request: InferRequest = serde_json::from_slice(body).map_err(BadRequest::from)?;
        let id = request.id.take();
        let mut rows = match request.into_input()? {
            Input::Pixels(pixels) => pixels,
            Input::EntityIds(ids) => {
                lap = Lap(Stamp::now());
                let mut out = Vec::with_capacity(ids.len() * WIDTH);
                let hits = self.features.lock().hydrate(&ids, &mut out).map_err(BadRequest::from)?;
                steps.push(lap.end(Step::Hydration { rows: ids.len(), hits }));
                out
            }
        };
        self.normaliser.apply(&mut rows);
        steps.push(lap.end(Step::Preprocessing));
        let count = rows.len() / WIDTH;
        let logits = self.forward(count, &rows)?;
        steps.push(lap.end(Step::Forward { rows: count }));
        let (labels, probabilities) = top(&logits, logits.len() / count.max(1));
        let body = encode(id.as_deref(), count, &labels, &probabilities)?;
        steps.push(lap.end(Step::Postprocessing));
        Ok((body, steps))
    }

    /// The logits of so many rows.
    fn forward(&self, rows: usize, pixels: &[f32]) -> Result<Vec<f32>, EngineError> {
        let mut inputs = vec![Tensor::f32("x", &[rows, WIDTH], pixels)];
        self.model.accept(&mut inputs)?;
        let ran = self.model.run(&mut self.workspace.lock(), &[&inputs])?;
        Ok(ran.outputs[0][0].to_f32())
    }
}

/// Reads the clock once per border: one step's end is the next one's start.
struct Lap(Stamp);

impl Lap {
    fn end(&mut self, step: Step) -> Timed {
        let (start, end) = (self.0, Stamp::now());
        self.0 = end;
        Timed { step, start, end }
    }
}

/// Softmax over each row, and its three best classes, the best first.
fn top(logits: &[f32], classes: usize) -> (Vec<i64>, Vec<f32>) {
    let rows = logits.len() / classes;
    let (mut labels, mut probabilities) = (Vec::with_capacity(rows * TOP), Vec::with_capacity(rows * TOP));
    let mut order: Vec<usize> = Vec::with_capacity(classes);
    for row in logits.chunks_exact(classes) {
        let most = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let sum: f32 = row.iter().map(|v| (v - most).exp()).sum();
        order.clear();
        order.extend(0..classes);
        order.sort_unstable_by(|a, b| row[*b].total_cmp(&row[*a]));
        for class in order.iter().take(TOP) {
            labels.push(i64::try_from(*class).unwrap_or(i64::MAX));
            probabilities.push((row[*class] - most).exp() / sum);
        }
    }
    (labels, probabilities)
}

fn encode(id: Option<&str>, rows: usize, labels: &[i64], probabilities: &[f32]) -> Result<Vec<u8>, InferError> {
    let shape = [rows, TOP];
    let label = OutputTensor { name: "label", shape, datatype: "INT64", data: labels };
    let probability = OutputTensor { name: "probability", shape, datatype: "FP32", data: probabilities };
    let outputs = (label, probability);
    let response = InferResponse { model_name: "digits", model_version: "1", id, outputs };
    serde_json::to_vec(&response).map_err(InferError::Encode)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn top_orders_by_probability_and_survives_large_logits() {
        let (labels, probabilities) = top(&[1.0, 3.0, 2.0, 0.0, 1000.0, -1000.0, 999.0, 998.0], 4);
        assert_eq!(labels, [1, 2, 0, 0, 2, 3]);
        assert!((probabilities[0] - 0.643_914).abs() < 1e-5, "{}", probabilities[0]);
        assert!((probabilities[3] - 0.665_241).abs() < 1e-5, "{}", probabilities[3]);
        assert!(probabilities.iter().all(|p| p.is_finite()));
    }

    #[test]
    fn steps_follow_one_another_without_a_gap() {
        let pipeline = Pipeline::load().unwrap();
        let id = data::rows().unwrap()[0].entity_id;
        let body = format!(r#"{{"inputs":[{{"name":"entity_ids","shape":[2],"datatype":"INT64","data":[{id},{id}]}}]}}"#);
        let (_, steps) = pipeline.infer(body.as_bytes()).unwrap();
        assert_eq!(
            steps.iter().map(|t| t.step).collect::<Vec<_>>(),
            [Step::Hydration { rows: 2, hits: 1 }, Step::Preprocessing, Step::Forward { rows: 2 }, Step::Postprocessing]
        );
        for pair in steps.windows(2) {
            assert_eq!(pair[0].end, pair[1].start);
            assert!(pair[0].end > pair[0].start);
        }
    }
}
