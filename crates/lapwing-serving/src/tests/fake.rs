//! Fake models: `y` is `x` plus one, and `ids` and `flags` are returned unchanged.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use lapwing_engine::clock::Stamp;
use lapwing_model::service::{
    About, Answer, Batched, Call, CallError, Fallback, FallbackCause, Pending, Placement, Servable, Stages,
};
use lapwing_onnx::tensor::{Datatype, Tensor, TensorSpec};

/// What it does when it is called.
#[derive(Debug)]
pub(crate) enum Does {
    /// Adds one.
    Add,
    /// Adds one when the semaphore has a permit for it.
    Waits(Arc<Semaphore>),
    /// Never answers.
    Hangs,
    Fails(CallError),
    /// Answers `y` with this at element 1.
    Odd(f32),
}

#[derive(Debug)]
pub(crate) struct Fake {
    about: About,
    does: Does,
    pub(crate) ready: AtomicBool,
    pub(crate) placement: Mutex<Arc<Placement>>,
    /// Calls that began.
    pub(crate) calls: AtomicUsize,
    /// The time that the last call had, in nanoseconds; 0 for none.
    pub(crate) timeout_ns: AtomicUsize,
}

fn port(name: &str, datatype: Datatype, shape: &[Option<usize>]) -> TensorSpec {
    TensorSpec { name: name.to_owned(), datatype, shape: shape.to_vec() }
}

pub(crate) fn fake(name: &str, version: &str, does: Does) -> Arc<Fake> {
    let about = About {
        name: name.to_owned(),
        version: version.to_owned(),
        executor: lapwing_model::ExecutorName::Plan,
        unsupported: None,
        inputs: vec![port("x", Datatype::Fp32, &[None, Some(2)]), port("ids", Datatype::Int64, &[None])],
        outputs: vec![
            port("y", Datatype::Fp32, &[None, Some(2)]),
            port("ids", Datatype::Int64, &[None]),
            port("flags", Datatype::Bool, &[None]),
        ],
    };
    let (ready, calls, timeout_ns) = (AtomicBool::new(true), AtomicUsize::new(0), AtomicUsize::new(0));
    let placement = Mutex::new(Placement::cpu("fp32"));
    Arc::new(Fake { about, does, ready, placement, calls, timeout_ns })
}

/// A placement on a GPU, or on the processor as a fallback.
pub(crate) fn placement(device: &str, name: Option<&str>, fallback: Option<FallbackCause>) -> Placement {
    let detail = "libcuda.so.1: is not there".to_owned();
    Placement {
        device: device.into(),
        device_name: name.map(str::to_owned),
        precision: if name.is_some() { "fp16" } else { "fp32" },
        fallback: fallback.map(|cause| Fallback { cause, detail }),
        fault: None,
    }
}

/// A model that adds one.
pub(crate) fn adder() -> Vec<Arc<dyn Servable>> {
    vec![fake("m", "1", Does::Add)]
}

/// A model that does something else.
pub(crate) fn only(does: Does) -> Vec<Arc<dyn Servable>> {
    vec![fake("m", "1", does)]
}

pub(crate) const STAGES: Stages =
    Stages { queue_ns: 2_000_000, preprocessing_ns: 100_000, forward_ns: 7_500_000, postprocessing_ns: 50_000 };
pub(crate) const BATCH: Batched =
    Batched { calls: 4, rows: 8, executed: 32, useful: 24, flops: Some(96), useful_flops: Some(70) };

fn added(call: &Call, odd: Option<f32>) -> Result<Vec<Tensor>, CallError> {
    let mut outputs = Vec::new();
    for tensor in &call.inputs {
        let mut tensor = tensor.clone();
        if tensor.name == "x" {
            let values = tensor.data.as_chunks::<4>().0.iter().map(|c| f32::from_le_bytes(*c) + 1.0).enumerate();
            let values = values.map(|(i, value)| odd.filter(|_| i == 1).unwrap_or(value));
            tensor.data = values.flat_map(f32::to_le_bytes).collect::<Vec<u8>>().into();
            tensor.name = "y".to_owned();
        }
        outputs.push(tensor);
    }
    if call.outputs.is_empty() {
        return Ok(outputs);
    }
    let wanted = |name: &String| {
        let missing = || CallError::Input { tensor: "outputs".to_owned(), reason: format!("there is no {name}") };
        outputs.iter().find(|tensor| tensor.name == *name).cloned().ok_or_else(missing)
    };
    call.outputs.iter().map(wanted).collect()
}

impl Servable for Fake {
    fn about(&self) -> &About {
        &self.about
    }

    fn placement(&self) -> Arc<Placement> {
        Arc::clone(&self.placement.lock())
    }

    fn is_ready(&self) -> bool {
        self.ready.load(Ordering::SeqCst)
    }

    fn infer(&self, call: Call) -> Pending {
        self.calls.fetch_add(1, Ordering::SeqCst);
        let timeout = call.deadline.map_or(0, |deadline| deadline.since(Stamp::now()));
        self.timeout_ns.store(usize::try_from(timeout).unwrap(), Ordering::SeqCst);
        let answer = |odd| {
            let outputs = added(&call, odd);
            let placement = self.placement();
            let answer = outputs.map(|outputs| Answer { outputs, stages: STAGES, batch: BATCH, placement });
            Box::pin(std::future::ready(answer))
        };
        match &self.does {
            Does::Add => answer(None),
            Does::Odd(value) => answer(Some(*value)),
            Does::Fails(error) => Box::pin(std::future::ready(Err(error.clone()))),
            Does::Hangs => Box::pin(std::future::pending()),
            Does::Waits(turn) => {
                let (turn, answered) = (Arc::clone(turn), answer(None));
                Box::pin(async move {
                    turn.acquire().await.unwrap().forget();
                    answered.await
                })
            }
        }
    }
}

/// Little-endian bytes.
pub(crate) fn le(values: &[f32]) -> Bytes {
    values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>().into()
}
