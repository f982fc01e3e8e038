//! The state of one thread that runs a plan: a stream, memory for the largest batch so far, and the graphs of the batch
//! sizes used so far.

use std::sync::Arc;
use std::time::Duration;

use super::capture::{Bound, Marks, capture};
use super::choice::{Chosen, choose};
use super::{Executor, GpuError, Times};
use crate::clock::Stamp;
use crate::gpu::Capacity;
use crate::gpu::args::{Bases, Control};
use crate::gpu::device::{Block, CublasLt, Device, DeviceError, Found, Graph, Patience, Pinned, Stream, Toward};
use crate::gpu::lower::{Places, Program};
use crate::gpu::route::{self, Completion, Route, Way};
use crate::plan::Size;

/// The most graphs kept at a time; beyond that, the least recently used one is dropped.
const GRAPHS: usize = 64;
/// The least size of an allocation, in bytes.
const LEAST: usize = 256;
/// The longest a batch may take; beyond that the device is considered hung.
const LONGEST: Duration = Duration::from_secs(60);

/// A batch size with its captured graph.
#[derive(Debug)]
pub(super) struct Sized {
    /// The largest batch of this graph.
    pub(super) capacity: Capacity,
    wanted: Vec<bool>,
    pub(super) program: Program,
    pub(super) route: Route,
    pub(super) chosen: Vec<Chosen>,
    graph: Graph,
    /// The same graph with timing events, captured when it is first requested.
    timed: Option<(Graph, Marks)>,
    /// The number of the last run that used it.
    used: u64,
}

/// The memory and graphs of one thread. The memory grows to the largest batch so far.
#[derive(Debug, Default)]
pub struct State {
    // dropped before the memory that the graphs refer to
    sizes: Vec<Sized>,
    held: Option<Held>,
    runs: u64,
    words: Vec<i32>,
    bytes: Vec<u8>,
}

/// One run: the graph of its batch size, and the memory that the graph uses.
#[derive(Debug)]
pub(super) struct Run<'a> {
    pub(super) executor: &'a Executor,
    pub(super) held: &'a mut Held,
    pub(super) sized: &'a mut Sized,
    /// A buffer for a header.
    pub(super) words: &'a mut Vec<i32>,
    /// A buffer for an input or an output.
    pub(super) bytes: &'a mut Vec<u8>,
}

/// The device and host memory of one thread.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) stream: Stream,
    pub(super) arena: Block,
    pub(super) inputs: Block,
    pub(super) outputs: Block,
    counter: Block,
    /// cublasLt, if products may use it: its workspace serves one stream.
    pub(super) lt: Option<CublasLt>,
    pub(super) control: Pinned,
    pub(super) to_device: Pinned,
    pub(super) to_host: Pinned,
}

impl Held {
    /// The minimum of memory, too small for any batch.
    fn new(executor: &Executor) -> Result<Self, DeviceError> {
        let device = executor.device();
        let stream = Stream::new(device)?;
        let counter = Block::new(device, 256)?;
        stream.fill(&counter, 0, 256, 0)?;
        stream.wait()?;
        Ok(Self {
            stream,
            arena: Block::new(device, LEAST)?,
            inputs: Block::new(device, LEAST)?,
            outputs: Block::new(device, LEAST)?,
            counter,
            lt: executor.gemm.libraries().and_then(|found| library(found, device)),
            control: Pinned::new(device, 4 * Control::WORDS, Toward::Host)?,
            to_device: Pinned::new(device, LEAST, Toward::Device)?,
            to_host: Pinned::new(device, LEAST, Toward::Host)?,
        })
    }

    /// Whether the memory is large enough for a program.
    fn holds(&self, places: &Places) -> bool {
        places.arena_bytes() <= self.arena.bytes()
            && places.input_bytes <= self.inputs.bytes()
            && places.output_bytes <= self.outputs.bytes()
    }

    /// Grows the memory to a program. The old memory is freed first, because both may not fit.
    fn grow(&mut self, device: &Arc<Device>, places: &Places) -> Result<(), DeviceError> {
        let (arena, inputs, outputs) = (places.arena_bytes(), places.input_bytes, places.output_bytes);
        for (block, bytes) in [(&mut self.arena, arena), (&mut self.inputs, inputs), (&mut self.outputs, outputs)] {
            if block.bytes() < bytes {
                *block = Block::new(device, LEAST)?;
                *block = Block::new(device, bytes)?;
            }
        }
        for (staging, bytes) in [(&mut self.to_device, inputs), (&mut self.to_host, outputs)] {
            if staging.bytes() < bytes {
                *staging = Pinned::new(device, bytes, staging.toward())?;
            }
        }
        Ok(())
    }

    pub(super) fn bases(&self, executor: &Executor, route: Route) -> Bases {
        Bases {
            weights: executor.weights.address(),
            arena: self.arena.address(),
            inputs: if route.inputs == Way::Mapped { self.to_device.mapped() } else { self.inputs.address() },
            outputs: if route.outputs == Way::Mapped { self.to_host.mapped() } else { self.outputs.address() },
            control: self.control.mapped(),
            counter: self.counter.address(),
        }
    }
}

impl State {
    /// Prepares the run of a batch of this size; captures its graph if there is none.
    pub(super) fn ready<'a>(&'a mut self, executor: &'a Executor, size: Size, wanted: &[bool]) -> Result<Run<'a>, GpuError> {
        let Self { sizes, held, runs, words, bytes } = self;
        let held = match held {
            Some(held) => held,
            none => none.insert(Held::new(executor)?),
        };
        let capacity = route::capacity(executor.plan(), size);
        let known = sizes.iter().position(|sized| sized.capacity == capacity && sized.wanted == wanted);
        let at = match known {
            Some(at) => at,
            None => add(sizes, held, executor, capacity, wanted)?,
        };
        *runs += 1;
        sizes[at].used = *runs;
        Ok(Run { executor, held, sized: &mut sizes[at], words, bytes })
    }

    /// Number of products in the last batch that used cublasLt.
    #[must_use]
    pub fn library_products(&self) -> usize {
        let last = self.sizes.iter().max_by_key(|sized| sized.used);
        let is_theirs = |chosen: &&Chosen| matches!(chosen, Chosen::Library(..));
        last.map_or(0, |sized| sized.chosen.iter().filter(is_theirs).count())
    }
}

/// Captures the graph of a batch size and returns its index.
fn add(
    sizes: &mut Vec<Sized>,
    held: &mut Held,
    executor: &Executor,
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
    if !held.holds(&program.places) {
        // graphs contain memory addresses, which change
        sizes.clear();
        held.grow(executor.device(), &program.places)?;
    }
    let route = Route::of(&program);
    let bases = held.bases(executor, route);
    let mut chosen = choose(executor, held, &program, capacity, &bases)?;
    let bound = Bound { executor, program: &program, route, bases, chosen: &chosen };
    let graph = match capture(&bound, held, None) {
        // the library failed, not the device
        Err(GpuError::Device(error @ DeviceError::Lt { .. })) => {
            tracing::warn!(%error, "cublasLt failed; products of this batch size run on Lapwing's own kernels");
            chosen = vec![Chosen::Own; program.steps.len()];
            capture(&Bound { executor, program: &program, route, bases, chosen: &chosen }, held, None)?
        }
        captured => captured?,
    };
    let oldest = (0..sizes.len()).min_by_key(|at| sizes[*at].used);
    if let (true, Some(oldest)) = (sizes.len() >= GRAPHS, oldest) {
        sizes.swap_remove(oldest);
    }
    sizes.push(Sized { capacity, wanted: wanted.to_vec(), program, route, chosen, graph, timed: None, used: 0 });
    Ok(sizes.len() - 1)
}

impl Run<'_> {
    /// Launches the graph and waits until it is done.
    pub(super) fn launch(&mut self) -> Result<(), DeviceError> {
        let Self { held, sized, .. } = self;
        held.control.set_flag(Control::FLAG, 0)?;
        sized.graph.launch(&held.stream)?;
        match sized.route.completion() {
            Completion::Flag => held.stream.wait_flag(&held.control, Control::FLAG, &patience()).map(drop),
            Completion::Wait => held.stream.wait(),
        }
    }

    /// Like `launch`, with timing events.
    pub(super) fn launch_timed(&mut self) -> Result<Times, GpuError> {
        let Self { executor, held, sized, .. } = self;
        let (graph, marks) = match &sized.timed {
            Some(timed) => timed,
            None => {
                let marks = Marks::new(executor.device(), sized.route)?;
                let bases = held.bases(executor, sized.route);
                let bound = Bound { executor, program: &sized.program, route: sized.route, bases, chosen: &sized.chosen };
                let graph = capture(&bound, held, Some(&marks))?;
                sized.timed.insert((graph, marks))
            }
        };
        held.control.set_flag(Control::FLAG, 0)?;
        graph.launch(&held.stream)?;
        held.stream.wait()?;
        Ok(marks.times()?)
    }
}

/// cublasLt for one stream; without it, our own kernels compute all products.
fn library(found: &Found, device: &Arc<Device>) -> Option<CublasLt> {
    CublasLt::find(found, device)
        .inspect_err(|error| tracing::warn!(%error, "cublasLt cannot be used; products run on Lapwing's own kernels"))
        .ok()
}

/// The flag is read some thousand times between two checks of the device. After two milliseconds, when latency matters
/// less, the thread sleeps between reads and leaves the processor to others.
fn patience() -> Patience {
    fn clock() -> Duration {
        Duration::from_nanos(Stamp::now().as_ns())
    }
    Patience { reads: 2048, awake: Duration::from_millis(2), nap: Duration::from_micros(100), limit: LONGEST, clock }
}
