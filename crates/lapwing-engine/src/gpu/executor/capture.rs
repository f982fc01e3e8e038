//! Captures a program as a CUDA graph: input copies, kernels, output copies, and optionally timing events in between.

use super::choice::Chosen;
use super::state::Held;
use super::{Executor, GpuError, Times};
use crate::gpu::args::Bases;
use crate::gpu::device::{Capture, Device, DeviceError, Event, Graph, Shape};
use crate::gpu::lower::{Program, Step};
use crate::gpu::route::{Route, Way};
use std::sync::Arc;
use std::time::Duration;

/// A program bound to memory addresses.
pub(super) struct Bound<'a> {
    pub(super) executor: &'a Executor,
    pub(super) program: &'a Program,
    pub(super) route: Route,
    pub(super) bases: Bases,
    /// The kernel selected for each step.
    pub(super) chosen: &'a [Chosen],
}

/// Timing events at the boundaries of a run's phases. There is none around a phase without copies, because two events
/// without work in between are up to two microseconds apart.
#[derive(Debug)]
pub(super) struct Marks {
    /// Before the input copy, if there is one.
    begin: Option<Event>,
    copied_in: Event,
    computed: Event,
    /// After the output copy, if there is one.
    end: Option<Event>,
    /// After each step, if steps are timed.
    steps: Vec<Event>,
}

impl Marks {
    pub(super) fn new(device: &Arc<Device>, route: Route) -> Result<Self, DeviceError> {
        let event = || Event::timed(device);
        let copied = |way: Way| (way == Way::Copied).then(event).transpose();
        Ok(Self {
            begin: copied(route.inputs)?,
            copied_in: event()?,
            computed: event()?,
            end: copied(route.outputs)?,
            steps: Vec::new(),
        })
    }

    /// Also with an event after each of `count` steps.
    pub(super) fn with_steps(device: &Arc<Device>, route: Route, count: usize) -> Result<Self, DeviceError> {
        let steps = (0..count).map(|_| Event::timed(device)).collect::<Result<_, _>>()?;
        Ok(Self { steps, ..Self::new(device, route)? })
    }

    /// The duration of each step of the last run, which must be done.
    pub(super) fn steps(&self) -> Result<Vec<Duration>, DeviceError> {
        let before = std::iter::once(&self.copied_in).chain(&self.steps);
        before.zip(&self.steps).map(|(before, behind)| behind.since(before)).collect()
    }

    /// The durations of the last run's phases; the run must be done.
    pub(super) fn times(&self) -> Result<Times, DeviceError> {
        let (begin, end) = (self.begin.as_ref().unwrap_or(&self.copied_in), self.end.as_ref().unwrap_or(&self.computed));
        Ok(Times {
            all: end.since(begin)?,
            to_device: self.begin.as_ref().map_or(Ok(Duration::ZERO), |begin| self.copied_in.since(begin))?,
            kernels: self.computed.since(&self.copied_in)?,
            to_host: self.end.as_ref().map_or(Ok(Duration::ZERO), |end| end.since(&self.computed))?,
        })
    }
}

/// Captures the program on the given memory.
#[allow(unsafe_code, reason = "a launch passes addresses to the device")]
pub(super) fn capture(bound: &Bound<'_>, held: &mut Held, marks: Option<&Marks>) -> Result<Graph, GpuError> {
    let Bound { executor, program, route, bases, chosen } = bound;
    let places = &program.places;
    // kernels are looked up before: a capture must not load modules
    let mut functions = Vec::with_capacity(program.steps.len());
    for step in &program.steps {
        let launch = match step {
            Step::Launch(launch) => launch,
            Step::Product(product) => &product.own,
        };
        functions.push((launch, executor.function(launch.kernel)?));
    }
    let Held { stream, arena, inputs, outputs, to_device, to_host, lt, .. } = held;
    let capture = Capture::begin(stream)?;
    let mark = |event: Option<&Event>| event.map_or(Ok(()), |event| capture.record(event));
    mark(marks.and_then(|marks| marks.begin.as_ref()))?;
    if route.inputs == Way::Copied {
        capture.copy_in(to_device, 0, inputs, 0, places.input_bytes)?;
    }
    mark(marks.map(|marks| &marks.copied_in))?;
    let last = functions.len().saturating_sub(1);
    for (at, (launch, function)) in functions.iter().enumerate() {
        if let (Some(Chosen::Library(plan, operands)), Some(lt)) = (chosen.get(at), lt.as_ref()) {
            // SAFETY: the operands lie in the weights and in this thread's memory, like those of our own kernels (see
            // below)
            unsafe { capture.give(lt, plan, operands)? };
            mark(marks.and_then(|marks| marks.steps.get(at)))?;
            continue;
        }
        let is_last = at == last && route.outputs == Way::Mapped;
        let args = launch.args.bytes(bases, is_last);
        let shape = Shape { grid: launch.grid, threads: launch.kernel.threads, shared_bytes: launch.shared };
        // SAFETY: the arguments are the fields of the kernel's parameter struct. Their addresses lie in the weights,
        // which the executor owns, and in this thread's memory, in regions that are as large as the program requires.
        // Graphs are dropped before either of them
        unsafe { capture.launch(function, shape, &args)? };
        mark(marks.and_then(|marks| marks.steps.get(at)))?;
    }
    mark(marks.map(|marks| &marks.computed))?;
    if route.outputs == Way::Copied {
        capture.copy_out(outputs, 0, to_host, 0, places.output_bytes)?;
    }
    mark(marks.and_then(|marks| marks.end.as_ref()))?;
    debug_assert!(arena.bytes() >= places.arena_bytes());
    Ok(capture.end()?)
}
