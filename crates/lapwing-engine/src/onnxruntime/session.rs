//! One model in ONNX Runtime: loaded, described, and run call by call.

use std::panic::{AssertUnwindSafe, catch_unwind};

use ort::ep::{ArenaExtendStrategy, CPU, CUDA, ExecutionProviderDispatch, TensorRT};
use ort::logging::LogLevel;
use ort::session::builder::SessionBuilder;
use ort::session::{OutputSelector, RunOptions, SessionInputValue};
use ort::value::{Outlet, ValueType};
use parking_lot::Mutex;
use smallvec::SmallVec;

use super::elements;
use super::library::Runtime;
use crate::clock::Stamp;
use crate::cpu::threads::Threads;
use crate::placement::OrtProvider;
use lapwing_onnx::tensor::{Tensor, TensorSpec};
use lapwing_onnx::{EngineError, ModelSource};

/// A model that ONNX Runtime has loaded. Threads run it one after the other.
#[derive(Debug)]
pub struct Session {
    session: Mutex<ort::session::Session>,
    inputs: Vec<TensorSpec>,
    outputs: Vec<TensorSpec>,
}

/// The outputs of one call, and where its time went, in nanoseconds.
#[derive(Clone, Debug, Default)]
pub struct SessionRun {
    /// The outputs in the model's order; those that were not wanted have no elements.
    pub outputs: Vec<Tensor>,
    /// Handing the inputs over; a copy where they are not aligned.
    pub input_ns: u64,
    /// The model.
    pub forward_ns: u64,
    /// Taking the outputs over.
    pub output_ns: u64,
}

impl Session {
    /// Loads a model. A run uses as many threads as there are `threads`: the caller's, and its own from the second on, which it holds to the
    /// same processors.
    ///
    /// # Errors
    ///
    /// [`EngineError::Model`] with ONNX Runtime's reason, or the input or output that no call can have.
    pub fn load(runtime: &Runtime, source: &ModelSource, threads: &Threads, provider: OrtProvider) -> Result<Self, EngineError> {
        let fails = |reason: String| EngineError::part("graph", format!("ONNX Runtime cannot load it: {reason}"));
        let commit = || {
            let mut builder = options(runtime, threads, provider)?;
            match source {
                ModelSource::File(path) => builder.commit_from_file(path),
                ModelSource::Memory(bytes) => builder.commit_from_memory(bytes),
            }
        };
        // the library's wrapper asserts what a broken file may not hold
        let made = catch_unwind(AssertUnwindSafe(commit));
        let session = made.map_err(|_| fails("its wrapper panicked".to_owned()))?.map_err(|e| fails(short(&e)))?;
        let inputs = session.inputs().iter().map(|port| spec("input", port)).collect::<Result<_, _>>()?;
        let outputs = session.outputs().iter().map(|port| spec("output", port)).collect::<Result<_, _>>()?;
        Ok(Self { session: Mutex::new(session), inputs, outputs })
    }

    /// The inputs, in the model's order, without those that have a default. An input of unknown rank has no axes here.
    #[must_use]
    pub fn inputs(&self) -> &[TensorSpec] {
        &self.inputs
    }

    /// The outputs, in the model's order.
    #[must_use]
    pub fn outputs(&self) -> &[TensorSpec] {
        &self.outputs
    }

    /// Runs one call, whose tensors are in the order of [`Self::inputs`], for the wanted outputs.
    ///
    /// # Errors
    ///
    /// [`EngineError::Input`] where a node takes no such values, [`EngineError::Run`] where the run fails otherwise.
    pub fn run(&self, call: &[Tensor], wanted: &[bool]) -> Result<SessionRun, EngineError> {
        let began = Stamp::now();
        let inputs: SmallVec<[SessionInputValue<'_>; 4]> =
            call.iter().map(elements::input).collect::<ort::Result<_>>().map_err(failed)?;
        let handed = Stamp::now();
        let mut session = self.session.lock();
        let is_wanted = |at: usize| wanted.get(at).copied().unwrap_or(true);
        let selected = if (0..self.outputs.len()).all(is_wanted) { None } else { Some(self.selected(is_wanted)?) };
        let ran = match &selected {
            None => session.run(&inputs[..]),
            Some(selected) => session.run_with_options(&inputs[..], selected),
        };
        let values = ran.map_err(failed)?;
        let done = Stamp::now();
        let mut values = values.into_iter();
        let output = |(at, port): (usize, &TensorSpec)| {
            let none =
                || Tensor { name: port.name.clone(), datatype: port.datatype, shape: Vec::new(), data: bytes::Bytes::new() };
            if !is_wanted(at) {
                return Ok(none());
            }
            let fails = |reason: String| EngineError::Run { reason: format!("output {}: {reason}", port.name) };
            let (_, value) = values.next().ok_or_else(|| fails("was not made".to_owned()))?;
            elements::output(&port.name, value).map_err(fails)
        };
        let outputs = self.outputs.iter().enumerate().map(output).collect::<Result<_, _>>()?;
        Ok(SessionRun { outputs, input_ns: handed.since(began), forward_ns: done.since(handed), output_ns: done.elapsed() })
    }

    fn selected(&self, is_wanted: impl Fn(usize) -> bool) -> Result<RunOptions<ort::session::HasSelectedOutputs>, EngineError> {
        let wanted = self.outputs.iter().enumerate().filter(|(at, _)| is_wanted(*at)).map(|(_, port)| &port.name);
        let selector = wanted.fold(OutputSelector::no_default(), |selector, name| selector.with(name));
        Ok(RunOptions::new().map_err(failed)?.with_outputs(selector))
    }
}

/// How every session runs: node after node, on threads that sleep between runs, in memory that is given back.
fn options(runtime: &Runtime, threads: &Threads, provider: OrtProvider) -> ort::Result<SessionBuilder> {
    let mut builder = ort::session::Session::builder(runtime.environment())?;
    if let Some(affinities) = affinities(threads) {
        builder = builder.with_config_entry("session.intra_op_thread_affinities", affinities)?;
    }
    let builder = builder
        .with_intra_threads(threads.count())?
        .with_inter_threads(1)?
        .with_parallel_execution(false)?
        .with_intra_op_spinning(false)?
        .with_inter_op_spinning(false)?
        // a pattern is for shapes that stay the same; an arena keeps the most that any call took
        .with_memory_pattern(false)?
        .with_log_level(LogLevel::Error)?
        .with_execution_providers(providers(provider))?;
    Ok(builder)
}

/// The providers that are asked for nodes, the first one first. ONNX Runtime multiplies fp32 in tf32 on a GPU unless it is told not to.
fn providers(provider: OrtProvider) -> Vec<ExecutionProviderDispatch> {
    let cuda = |device: u8| {
        let arena = ArenaExtendStrategy::SameAsRequested;
        CUDA::default().with_device_id(device.into()).with_tf32(false).with_arena_extend_strategy(arena).build()
    };
    let gpu = match provider {
        OrtProvider::Cpu => Vec::new(),
        OrtProvider::Cuda(device) => vec![cuda(device)],
        OrtProvider::TensorRt(device) => vec![TensorRT::default().with_device_id(device.into()).build(), cuda(device)],
    };
    let cpu = CPU::default().with_arena_allocator(false).build();
    gpu.into_iter().chain([cpu]).map(ExecutionProviderDispatch::error_on_failure).collect()
}

/// The processors of a session's own threads as it reads them: counted from one, and without the first thread, which is the caller's.
/// `None` if they may use all.
fn affinities(threads: &Threads) -> Option<String> {
    let of = |thread: usize| threads.places(thread).iter().map(|cpu| (cpu + 1).to_string()).collect::<Vec<_>>().join(",");
    let all: Vec<String> = (1..threads.count()).map(of).collect();
    if all.iter().all(String::is_empty) { None } else { Some(all.join(";")) }
}

fn spec(what: &str, port: &Outlet) -> Result<TensorSpec, EngineError> {
    let fails = |reason: String| Err(EngineError::part(format!("{what} {}", port.name()), reason));
    let ValueType::Tensor { ty, shape, .. } = port.dtype() else {
        return fails(format!("is a {}; only tensors can be served", port.dtype()));
    };
    let Some(datatype) = elements::datatype(*ty) else {
        return fails(format!("its element type, {ty}, is not supported"));
    };
    if port.name().is_empty() {
        return fails("has no name".to_owned());
    }
    let shape = shape.iter().map(|length| usize::try_from(*length).ok()).collect();
    Ok(TensorSpec { name: port.name().to_owned(), datatype, shape })
}

/// The error of a run. Values that a node does not take are the caller's.
fn failed(error: ort::Error) -> EngineError {
    let reason = short(&error);
    match error.code() {
        ort::ErrorCode::InvalidArgument => EngineError::input("inputs", reason),
        _ => EngineError::Run { reason },
    }
}

/// ONNX Runtime's message in one line, without the places in its sources.
fn short(error: &ort::Error) -> String {
    const MOST: usize = 400;
    let line: String = error.message().split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}
