//! The state of one thread that runs a plan: a stream, memory for the largest batch so far, and the graphs of the batch
//! sizes used so far.

use std::time::Duration;

use super::capture::{BoundProgram, DeviceTimes, TimingEvents, capture};
use super::loaded::{CudaExecutor, GpuError};
use super::memory::ThreadMemory;
use super::selection::{SelectedKernel, select_kernels};
use crate::clock::Stamp;
use crate::gpu::Capacity;
use crate::gpu::args::Control;
use crate::gpu::device::{CudaGraph, DeviceError, WaitPolicy};
use crate::gpu::lower::LoweredProgram;
use crate::gpu::route::{self, Completion, TransferPlan};
use lapwing_plan::plan::BatchSize;

/// The most graphs kept at a time; beyond that, the least recently used one is dropped.
const GRAPHS: usize = 64;
/// The longest a batch may take; beyond that the device is considered hung.
const LONGEST: Duration = Duration::from_secs(60);

/// A batch size with its captured graph.
#[derive(Debug)]
pub(crate) struct SizedGraph {
    /// The largest batch of this graph.
    pub(crate) capacity: Capacity,
    wanted: Vec<bool>,
    pub(crate) program: LoweredProgram,
    pub(crate) route: TransferPlan,
    pub(crate) selected: Vec<SelectedKernel>,
    graph: CudaGraph,
    /// The same graph with timing events, captured when it is first requested.
    timed: Option<(CudaGraph, TimingEvents)>,
    /// The number of the last run that used it.
    used: u64,
}

/// The memory and graphs of one thread. The memory grows to the largest batch so far.
#[derive(Debug, Default)]
pub struct CudaState {
    // dropped before the memory that the graphs refer to
    sizes: Vec<SizedGraph>,
    memory: Option<ThreadMemory>,
    runs: u64,
    words: Vec<i32>,
}

/// One run: the graph of its batch size, and the memory that the graph uses.
#[derive(Debug)]
pub(crate) struct PreparedRun<'a> {
    pub(crate) executor: &'a CudaExecutor,
    pub(crate) memory: &'a mut ThreadMemory,
    pub(crate) sized: &'a mut SizedGraph,
    /// A buffer for a header.
    pub(crate) words: &'a mut Vec<i32>,
}

impl CudaState {
    /// Prepares the run of a batch of this size; captures its graph if there is none.
    pub(crate) fn prepare<'a>(
        &'a mut self,
        executor: &'a CudaExecutor,
        size: BatchSize,
        wanted: &[bool],
    ) -> Result<PreparedRun<'a>, GpuError> {
        let Self { sizes, memory, runs, words } = self;
        let memory = match memory {
            Some(memory) => memory,
            none => none.insert(ThreadMemory::new(executor)?),
        };
        let capacity = route::capacity(executor.plan(), size);
        let known = sizes.iter().position(|sized| sized.capacity == capacity && sized.wanted == wanted);
        let at = match known {
            Some(at) => at,
            None => add(sizes, memory, executor, capacity, wanted)?,
        };
        *runs += 1;
        sizes[at].used = *runs;
        Ok(PreparedRun { executor, memory, sized: &mut sizes[at], words })
    }

    /// Number of products in the last batch that used cublasLt.
    #[must_use]
    pub fn library_products(&self) -> usize {
        let last = self.sizes.iter().max_by_key(|sized| sized.used);
        let is_theirs = |selected: &&SelectedKernel| matches!(selected, SelectedKernel::Library(..));
        last.map_or(0, |sized| sized.selected.iter().filter(is_theirs).count())
    }
}

/// Captures the graph of a batch size and returns its index.
fn add(
    sizes: &mut Vec<SizedGraph>,
    memory: &mut ThreadMemory,
    executor: &CudaExecutor,
    capacity: Capacity,
    wanted: &[bool],
) -> Result<usize, GpuError> {
    // a lost device is detected here; any other failure belongs to another model and is only logged
    match executor.device().check() {
        Err(error) if error.is_fatal() => return Err(error.into()),
        Err(error) => tracing::warn!(%error, "releasing a device resource failed earlier"),
        Ok(()) => {}
    }
    let program = executor.program_for(capacity, wanted)?;
    if !memory.fits(&program.layout) {
        // graphs contain memory addresses, which change
        sizes.clear();
        memory.grow(executor.device(), &program.layout)?;
    }
    let route = TransferPlan::of(&program);
    let bases = memory.bases(executor, route);
    let mut selected = select_kernels(executor, memory, &program, capacity, &bases)?;
    let bound = BoundProgram { executor, program: &program, route, bases, selected: &selected };
    let graph = match capture(&bound, memory, None) {
        // the library failed, not the device
        Err(GpuError::Device(error @ DeviceError::Lt { .. })) => {
            tracing::warn!(%error, "cublasLt failed; products of this batch size run on Lapwing's own kernels");
            selected = vec![SelectedKernel::Own; program.steps.len()];
            capture(&BoundProgram { executor, program: &program, route, bases, selected: &selected }, memory, None)?
        }
        captured => captured?,
    };
    let oldest = (0..sizes.len()).min_by_key(|at| sizes[*at].used);
    if let (true, Some(oldest)) = (sizes.len() >= GRAPHS, oldest) {
        sizes.swap_remove(oldest);
    }
    sizes.push(SizedGraph { capacity, wanted: wanted.to_vec(), program, route, selected, graph, timed: None, used: 0 });
    Ok(sizes.len() - 1)
}

impl PreparedRun<'_> {
    /// Launches the graph and waits until it is done.
    pub(crate) fn launch(&mut self) -> Result<(), DeviceError> {
        let Self { memory, sized, .. } = self;
        memory.control.set_flag(Control::FLAG, 0)?;
        sized.graph.launch(&memory.stream)?;
        match sized.route.completion() {
            Completion::Flag => memory.stream.wait_flag(&memory.control, Control::FLAG, &wait_policy()).map(drop),
            Completion::Wait => memory.stream.wait(),
        }
    }

    /// Like `launch`, with timing events.
    pub(crate) fn launch_timed(&mut self) -> Result<DeviceTimes, GpuError> {
        let Self { executor, memory, sized, .. } = self;
        let (graph, events) = match &sized.timed {
            Some(timed) => timed,
            None => {
                let events = TimingEvents::new(executor.device(), sized.route)?;
                let bases = memory.bases(executor, sized.route);
                let bound =
                    BoundProgram { executor, program: &sized.program, route: sized.route, bases, selected: &sized.selected };
                let graph = capture(&bound, memory, Some(&events))?;
                sized.timed.insert((graph, events))
            }
        };
        memory.control.set_flag(Control::FLAG, 0)?;
        graph.launch(&memory.stream)?;
        memory.stream.wait()?;
        Ok(events.times()?)
    }
}

/// The flag is read some thousand times between two checks of the device. After two milliseconds, when latency matters
/// less, the thread sleeps between reads and leaves the processor to others.
fn wait_policy() -> WaitPolicy {
    fn clock() -> Duration {
        Duration::from_nanos(Stamp::now().as_ns())
    }
    WaitPolicy { reads: 2048, spin_for: Duration::from_millis(2), sleep: Duration::from_micros(100), limit: LONGEST, clock }
}
