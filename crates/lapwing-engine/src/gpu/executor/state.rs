//! What one thread needs to run a plan: a stream, memory for the largest batch so far, and the graphs of the sizes that came.

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

/// So many sizes have their graphs at a time; the one that came longest ago is forgotten then.
const GRAPHS: usize = 64;
/// Bytes that any memory has.
const LEAST: usize = 256;
/// A batch that takes longer is given up: the device hangs.
const LONGEST: Duration = Duration::from_secs(60);

/// A size that is ready.
#[derive(Debug)]
pub(super) struct Sized {
    /// For which batches it is: how large they are at most, and the outputs that are wanted.
    pub(super) capacity: Capacity,
    wanted: Vec<bool>,
    pub(super) program: Program,
    pub(super) route: Route,
    pub(super) chosen: Vec<Chosen>,
    graph: Graph,
    /// The same with marks in between, made when it is first asked for.
    timed: Option<(Graph, Marks)>,
    /// The number of the run that used it last.
    used: u64,
}

/// The memory of one thread, which grows to the largest batch so far.
#[derive(Debug, Default)]
pub struct State {
    // before the memory, which they name
    sizes: Vec<Sized>,
    held: Option<Held>,
    runs: u64,
    words: Vec<i32>,
    bytes: Vec<u8>,
}

/// One batch's way: the graph for its size, and the memory on which that works.
#[derive(Debug)]
pub(super) struct Run<'a> {
    pub(super) executor: &'a Executor,
    pub(super) held: &'a mut Held,
    pub(super) sized: &'a mut Sized,
    /// Room for a header.
    pub(super) words: &'a mut Vec<i32>,
    /// Room for an input or an output.
    pub(super) bytes: &'a mut Vec<u8>,
}

/// Memory on both sides.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) stream: Stream,
    pub(super) arena: Block,
    pub(super) inputs: Block,
    pub(super) outputs: Block,
    counter: Block,
    /// The library, where products may be its own: its workspace serves one stream.
    pub(super) lt: Option<CublasLt>,
    pub(super) control: Pinned,
    pub(super) to_device: Pinned,
    pub(super) to_host: Pinned,
}

impl Held {
    /// Without room for any batch.
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

    /// Whether there is room for a program.
    fn holds(&self, places: &Places) -> bool {
        places.arena_bytes() <= self.arena.bytes()
            && places.input_bytes <= self.inputs.bytes()
            && places.output_bytes <= self.outputs.bytes()
    }

    /// Makes room for a program. What was there goes before more comes: both may not fit.
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
    /// What a batch of this size runs with; its graph is made where it is not there.
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

    /// How many products of the last batch were the library's.
    #[must_use]
    pub fn library_products(&self) -> usize {
        let last = self.sizes.iter().max_by_key(|sized| sized.used);
        let is_theirs = |chosen: &&Chosen| matches!(chosen, Chosen::Library(..));
        last.map_or(0, |sized| sized.chosen.iter().filter(is_theirs).count())
    }
}

/// Makes the graph of a size. Gives its place.
fn add(
    sizes: &mut Vec<Sized>,
    held: &mut Held,
    executor: &Executor,
    capacity: Capacity,
    wanted: &[bool],
) -> Result<usize, GpuError> {
    // a device that was lost meanwhile is found here; what else failed, and was another model's, is only told
    match executor.device().check() {
        Err(error) if error.is_fatal() => return Err(error.into()),
        Err(error) => tracing::warn!(%error, "something of the device's failed when it was let go"),
        Ok(()) => {}
    }
    let program = executor.program_for(capacity, wanted)?;
    if !held.holds(&program.places) {
        // graphs know the places of memory, which moves
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
            tracing::warn!(%error, "cublasLt fails; products of this size are done by our own kernels");
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
    /// Launches the graph, and waits until it is done.
    pub(super) fn launch(&mut self) -> Result<(), DeviceError> {
        let Self { held, sized, .. } = self;
        held.control.set_flag(Control::FLAG, 0)?;
        sized.graph.launch(&held.stream)?;
        match sized.route.completion() {
            Completion::Flag => held.stream.wait_flag(&held.control, Control::FLAG, &patience()).map(drop),
            Completion::Wait => held.stream.wait(),
        }
    }

    /// The same with marks in between.
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

/// The library for one stream; without it, our own kernels do all products.
fn library(found: &Found, device: &Arc<Device>) -> Option<CublasLt> {
    CublasLt::find(found, device).inspect_err(|error| tracing::warn!(%error, "products are done by our own kernels")).ok()
}

/// A flag is looked at some thousand times before the driver is asked whether anything is wrong; after two milliseconds, where it
/// no longer matters to the answer, the thread sleeps in between and leaves the processor to others.
fn patience() -> Patience {
    fn clock() -> Duration {
        Duration::from_nanos(Stamp::now().as_ns())
    }
    Patience { reads: 2048, awake: Duration::from_millis(2), nap: Duration::from_micros(100), limit: LONGEST, clock }
}
