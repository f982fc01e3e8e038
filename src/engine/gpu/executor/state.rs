//! What one thread needs to run a plan: a stream, memory for the largest batch so far, and the graphs of the sizes that came.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::capture::{Bound, Marks, capture};
use super::choice::{Chosen, choose};
use super::{Executor, GpuError, Times};
use crate::engine::gpu::Capacity;
use crate::engine::gpu::args::{Bases, Control};
use crate::engine::gpu::device::{Block, CublasLt, Device, DeviceError, Found, Graph, Patience, Pinned, Stream, Toward};
use crate::engine::gpu::lower::Program;
use crate::engine::gpu::route::{self, Completion, Route, Way};
use crate::engine::plan::Size;
use crate::ledger::Stamp;

/// So many sizes have their graphs at a time; the one that came longest ago is forgotten then.
const GRAPHS: usize = 64;
/// A batch that takes longer is given up: the device hangs.
const LONGEST: std::time::Duration = std::time::Duration::from_secs(60);

/// For which batches a graph is: their size, and the outputs that are wanted.
type Key = (Capacity, Vec<bool>);

/// A size that is ready.
#[derive(Debug)]
pub(super) struct Sized {
    pub(super) capacity: Capacity,
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
    sizes: BTreeMap<Key, Sized>,
    current: Option<Key>,
    held: Option<Held>,
    runs: u64,
    pub(super) words: Vec<i32>,
    pub(super) bytes: Vec<u8>,
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
    fn new(executor: &Executor, arena: usize, inputs: usize, outputs: usize) -> Result<Self, DeviceError> {
        let device = executor.device();
        let stream = Stream::new(device)?;
        let counter = Block::new(device, 256)?;
        stream.fill(&counter, 0, 256, 0)?;
        stream.wait()?;
        Ok(Self {
            stream,
            arena: Block::new(device, arena.max(256))?,
            inputs: Block::new(device, inputs.max(256))?,
            outputs: Block::new(device, outputs.max(256))?,
            counter,
            lt: executor.gemm.libraries().and_then(|found| library(found, device)),
            control: Pinned::new(device, 4 * Control::WORDS, Toward::Host)?,
            to_device: Pinned::new(device, inputs.max(256), Toward::Device)?,
            to_host: Pinned::new(device, outputs.max(256), Toward::Host)?,
        })
    }

    /// Other memory for what batches bring, need and ask for. What was there goes before it comes: both may not fit.
    fn resize(&mut self, executor: &Executor, [arena, inputs, outputs]: [usize; 3]) -> Result<(), DeviceError> {
        let device = executor.device();
        for (block, bytes) in [(&mut self.arena, arena), (&mut self.inputs, inputs), (&mut self.outputs, outputs)] {
            if block.bytes() < bytes {
                *block = Block::new(device, 256)?;
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
    /// Makes the graph of this size, if it is not there.
    pub(super) fn ready(&mut self, executor: &Executor, size: Size, wanted: &[bool]) -> Result<(), GpuError> {
        let capacity = route::capacity(executor.plan(), size);
        if let Some(key) = &self.current
            && key.0 == capacity
            && key.1 == wanted
        {
            return Ok(());
        }
        let key = (capacity, wanted.to_vec());
        if !self.sizes.contains_key(&key) {
            // a device that was lost meanwhile is found here; what else failed, and was another model's, is only told
            match executor.device().check() {
                Err(error) if error.is_fatal() => return Err(error.into()),
                Err(error) => tracing::warn!(%error, "something of the device's failed when it was let go"),
                Ok(()) => {}
            }
            let program = executor.program_for(capacity, wanted)?;
            self.grow(executor, &program)?;
            let Some(held) = &mut self.held else { return Ok(()) };
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
            if self.sizes.len() >= GRAPHS
                && let Some(least) = self.sizes.iter().min_by_key(|(_, sized)| sized.used).map(|(key, _)| key.clone())
            {
                self.sizes.remove(&least);
            }
            self.sizes.insert(key.clone(), Sized { capacity, program, route, chosen, graph, timed: None, used: 0 });
        }
        self.current = Some(key);
        Ok(())
    }

    /// Makes room for a program. Graphs know the places of memory, so that all are forgotten when it moves.
    fn grow(&mut self, executor: &Executor, program: &Program) -> Result<(), GpuError> {
        let places = &program.places;
        let (arena, inputs, outputs) = (places.arena_bytes(), places.input_bytes, places.output_bytes);
        let (mut least_arena, mut least_inputs, mut least_outputs) = (arena, inputs, outputs);
        if let Some(held) = &self.held {
            let (a, i, o) = (held.arena.bytes(), held.inputs.bytes(), held.outputs.bytes());
            if arena <= a && inputs <= i && outputs <= o {
                return Ok(());
            }
            (least_arena, least_inputs, least_outputs) = (arena.max(a), inputs.max(i), outputs.max(o));
        }
        self.current = None;
        self.sizes.clear();
        match &mut self.held {
            Some(held) => held.resize(executor, [least_arena, least_inputs, least_outputs])?,
            None => self.held = Some(Held::new(executor, least_arena, least_inputs, least_outputs)?),
        }
        Ok(())
    }

    /// How many products of the last batch were the library's.
    #[must_use]
    pub fn library_products(&self) -> usize {
        let sized = self.current.as_ref().and_then(|key| self.sizes.get(key));
        sized.map_or(0, |sized| sized.chosen.iter().filter(|chosen| matches!(chosen, Chosen::Library(..))).count())
    }

    pub(super) fn parts(&mut self) -> Option<(&mut Held, &Sized)> {
        let sized = self.sizes.get(self.current.as_ref()?)?;
        Some((self.held.as_mut()?, sized))
    }

    /// Launches the graph, and waits until it is done.
    pub(super) fn launch(&mut self) -> Result<(), DeviceError> {
        let Some(sized) = self.current.as_ref().and_then(|key| self.sizes.get_mut(key)) else { return Ok(()) };
        let Some(held) = &mut self.held else { return Ok(()) };
        self.runs += 1;
        sized.used = self.runs;
        held.control.set_flag(Control::FLAG, 0)?;
        sized.graph.launch(&held.stream)?;
        match sized.route.completion() {
            Completion::Flag => held.stream.wait_flag(&held.control, Control::FLAG, &patience()).map(drop),
            Completion::Wait => held.stream.wait(),
        }
    }

    /// The same with marks in between.
    pub(super) fn launch_timed(&mut self, executor: &Executor) -> Result<Times, GpuError> {
        let Some(sized) = self.current.as_ref().and_then(|key| self.sizes.get_mut(key)) else { return Ok(Times::default()) };
        let Some(held) = &mut self.held else { return Ok(Times::default()) };
        if sized.timed.is_none() {
            let marks = Marks::new(executor.device())?;
            let bases = held.bases(executor, sized.route);
            let bound = Bound { executor, program: &sized.program, route: sized.route, bases, chosen: &sized.chosen };
            let graph = capture(&bound, held, Some(&marks))?;
            sized.timed = Some((graph, marks));
        }
        let Some((graph, marks)) = &sized.timed else { return Ok(Times::default()) };
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

/// A flag is looked at some thousand times before the driver is asked whether anything is wrong; after about two milliseconds,
/// where it no longer matters to the answer, the thread sleeps in between and leaves the processor to others.
fn patience() -> Patience {
    fn clock() -> std::time::Duration {
        std::time::Duration::from_nanos(Stamp::now().as_ns())
    }
    Patience { reads: 2048, rounds: 32, nap: std::time::Duration::from_micros(100), limit: LONGEST, clock }
}
