//! Captures a program as a CUDA graph: input copies, kernels, output copies, and optionally timing events in between.

use super::loaded::{CudaExecutor, GpuError};
use super::memory::ThreadMemory;
use super::selection::SelectedKernel;
use crate::gpu::args::BaseAddresses;
use crate::gpu::device::{Capture, CudaDevice, CudaGraph, DeviceError, Event, LaunchShape};
use crate::gpu::lower::{LoweredProgram, Step};
use crate::gpu::route::{Transfer, TransferPlan};
use std::sync::Arc;
use std::time::Duration;

/// Durations of the phases of a run, by the device's clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceTimes {
    /// From the first copied byte to the last, kernels included.
    pub all: Duration,
    /// Input copies; zero if kernels read the inputs in host memory.
    pub to_device: Duration,
    /// All kernels.
    pub kernels: Duration,
    /// Output copies; zero if kernels write the outputs in host memory.
    pub to_host: Duration,
}

/// A program bound to memory addresses.
pub(crate) struct BoundProgram<'a> {
    pub(crate) executor: &'a CudaExecutor,
    pub(crate) program: &'a LoweredProgram,
    pub(crate) route: TransferPlan,
    pub(crate) bases: BaseAddresses,
    /// The kernel selected for each step.
    pub(crate) selected: &'a [SelectedKernel],
}

/// Timing events at the boundaries of a run's phases. There is none around a phase without copies, because two events
/// without work in between are up to two microseconds apart.
#[derive(Debug)]
pub(crate) struct TimingEvents {
    /// Before the input copy, if there is one.
    begin: Option<Event>,
    copied_in: Event,
    computed: Event,
    /// After the output copy, if there is one.
    end: Option<Event>,
    /// After each step, if steps are timed.
    steps: Vec<Event>,
}

impl TimingEvents {
    pub(crate) fn new(device: &Arc<CudaDevice>, route: TransferPlan) -> Result<Self, DeviceError> {
        let event = || Event::timed(device);
        let copied = |way: Transfer| (way == Transfer::Copied).then(event).transpose();
        Ok(Self {
            begin: copied(route.inputs)?,
            copied_in: event()?,
            computed: event()?,
            end: copied(route.outputs)?,
            steps: Vec::new(),
        })
    }

    /// Also with an event after each of `count` steps.
    pub(crate) fn with_steps(device: &Arc<CudaDevice>, route: TransferPlan, count: usize) -> Result<Self, DeviceError> {
        let steps = (0..count).map(|_| Event::timed(device)).collect::<Result<_, _>>()?;
        Ok(Self { steps, ..Self::new(device, route)? })
    }

    /// The duration of each step of the last run, which must be done.
    pub(crate) fn steps(&self) -> Result<Vec<Duration>, DeviceError> {
        let before = std::iter::once(&self.copied_in).chain(&self.steps);
        before.zip(&self.steps).map(|(before, behind)| behind.since(before)).collect()
    }

    /// The durations of the last run's phases; the run must be done.
    pub(crate) fn times(&self) -> Result<DeviceTimes, DeviceError> {
        let (begin, end) = (self.begin.as_ref().unwrap_or(&self.copied_in), self.end.as_ref().unwrap_or(&self.computed));
        Ok(DeviceTimes {
            all: end.since(begin)?,
            to_device: self.begin.as_ref().map_or(Ok(Duration::ZERO), |begin| self.copied_in.since(begin))?,
            kernels: self.computed.since(&self.copied_in)?,
            to_host: self.end.as_ref().map_or(Ok(Duration::ZERO), |end| end.since(&self.computed))?,
        })
    }
}

/// Captures the program on the given memory.
#[allow(unsafe_code, reason = "a launch passes addresses to the device")]
pub(crate) fn capture(
    bound: &BoundProgram<'_>,
    memory: &mut ThreadMemory,
    events: Option<&TimingEvents>,
) -> Result<CudaGraph, GpuError> {
    let BoundProgram { executor, program, route, bases, selected } = bound;
    let layout = &program.layout;
    // kernels are looked up before: a capture must not load modules
    let mut functions = Vec::with_capacity(program.steps.len());
    for (at, step) in program.steps.iter().enumerate() {
        let launch = match (step, selected.get(at)) {
            (Step::Launch(launch), _) => Some(launch),
            (Step::Product(product), Some(SelectedKernel::Library(..))) => product.then.as_deref(),
            (Step::Product(product), _) => Some(&*product.own),
        };
        functions.push(launch.map(|launch| Ok::<_, GpuError>((launch, executor.function(launch.kernel)?))).transpose()?);
    }
    let ThreadMemory { stream, arena, inputs, outputs, to_device, to_host, lt, .. } = memory;
    let capture = Capture::begin(stream)?;
    let mark = |event: Option<&Event>| event.map_or(Ok(()), |event| capture.record(event));
    mark(events.and_then(|events| events.begin.as_ref()))?;
    if route.inputs == Transfer::Copied {
        capture.copy_in(to_device, 0, inputs, 0, layout.input_bytes)?;
    }
    mark(events.map(|events| &events.copied_in))?;
    let last = functions.len().saturating_sub(1);
    for (at, ours) in functions.iter().enumerate() {
        if let (Some(SelectedKernel::Library(plan, operands)), Some(lt)) = (selected.get(at), lt.as_ref()) {
            // SAFETY: the operands lie in the weights and in this thread's memory, like those of our own kernels (see
            // below)
            unsafe { capture.enqueue(lt, plan, operands)? };
        }
        if let Some((launch, function)) = ours {
            let is_last = at == last && route.outputs == Transfer::Mapped;
            let args = launch.args.bytes(bases, is_last);
            let shape = LaunchShape { grid: launch.grid, threads: launch.kernel.threads, shared_bytes: launch.shared };
            // SAFETY: the arguments are the fields of the kernel's parameter struct. Their addresses lie in the weights,
            // which the executor owns, and in this thread's memory, in regions that are as large as the program requires.
            // Graphs are dropped before either of them
            unsafe { capture.launch(function, shape, &args)? };
        }
        mark(events.and_then(|events| events.steps.get(at)))?;
    }
    mark(events.map(|events| &events.computed))?;
    if route.outputs == Transfer::Copied {
        capture.copy_out(outputs, 0, to_host, 0, layout.output_bytes)?;
    }
    mark(events.and_then(|events| events.end.as_ref()))?;
    debug_assert!(arena.bytes() >= layout.arena_bytes());
    Ok(capture.end()?)
}
