//! The CPU executor: runs a plan's nodes in order, each by its kernel, with the work of a node divided among threads. A
//! run allocates nothing once its state and its outputs have served a batch of the same size or larger.

pub use super::prepare::CpuOptions;
use super::prepare::{CpuPlan, PrepareError, PreparedNode};
pub use super::run::ProductObserver;
use super::run::{Memory, Run, ValueLocation, locations};
use super::scratch::Scratch;
use lapwing_plan::exec::{Batch, Input, RunError};
use lapwing_plan::plan::{Arena, BatchSize, Plan};

/// The working memory of runs. It grows to the largest batch so far.
#[derive(Debug, Default)]
pub struct CpuState {
    arena: Option<(BatchSize, Arena)>,
    block: Vec<f32>,
    scratch: Scratch,
    rows: Vec<usize>,
    context: Vec<usize>,
}

/// A plan that is ready to run, on any number of threads, each with a [`CpuState`] of its own.
#[derive(Debug)]
pub struct CpuExecutor {
    pub(crate) prepared: CpuPlan,
    locations: Vec<ValueLocation>,
}

impl CpuExecutor {
    /// Packs the plan's weights for this processor.
    ///
    /// # Errors
    ///
    /// [`PrepareError`] names a node that cannot run here.
    pub fn new(plan: Plan, options: CpuOptions) -> Result<Self, PrepareError> {
        plan.check().map_err(|e| PrepareError { node: e.node, reason: e.reason })?;
        let options = CpuOptions { level: options.level.runnable(), ..options };
        let locations = locations(&plan);
        Ok(Self { prepared: CpuPlan::new(plan, options)?, locations })
    }

    /// The plan. It no longer holds the weights of matrix products.
    #[must_use]
    pub const fn plan(&self) -> &Plan {
        &self.prepared.plan
    }

    /// The options that it was created with.
    #[must_use]
    pub const fn options(&self) -> &CpuOptions {
        &self.prepared.options
    }

    /// The number of nodes that run in 8 bits.
    #[must_use]
    pub fn quantized_nodes(&self) -> usize {
        self.prepared.ready.iter().filter(|ready| matches!(ready, PreparedNode::GemmI8(..))).count()
    }

    /// Runs a batch and writes the rows of each output contiguously into `outputs`.
    ///
    /// # Errors
    ///
    /// [`RunError`] says what is wrong with the batch; the outputs are then undefined.
    pub fn run(&self, state: &mut CpuState, batch: &Batch<'_>, outputs: &mut Vec<Vec<f32>>) -> Result<(), RunError> {
        self.observed(state, batch, outputs, None)
    }

    /// Like [`Self::run`], and calls `observer` with the input of each matrix product.
    ///
    /// # Errors
    ///
    /// Like [`Self::run`].
    pub fn observed(
        &self,
        state: &mut CpuState,
        batch: &Batch<'_>,
        outputs: &mut Vec<Vec<f32>>,
        observer: Option<&mut ProductObserver<'_>>,
    ) -> Result<(), RunError> {
        let size = batch.size(&self.prepared.plan)?;
        outputs.resize_with(self.prepared.plan.outputs.len(), Vec::new);
        self.grow(state, size);
        let CpuState { arena: Some((_, arena)), block, scratch, rows, context } = state else { return Ok(()) };
        context.clear();
        context.extend(batch.offsets.iter().zip(batch.past).map(|(own, past)| own + past));
        let memory = Memory::new(&self.prepared.plan, &self.locations, arena, size, batch.inputs, block, outputs);
        let rows = &rows[..=size.batch];
        let run = Run { prepared: &self.prepared, memory, size, offsets: batch.offsets, past: batch.past, context, rows };
        // SAFETY: the plan was checked: a node reads values that were computed before and writes only its own; the
        // arena never assigns a value being written to memory that a value still to be read occupies
        self.prepared.options.threads.enter(|| unsafe { run.nodes(scratch, observer) })?;
        self.copy_twins(batch.inputs, outputs);
        Ok(())
    }

    /// Grows the working memory to a batch of this size.
    fn grow(&self, state: &mut CpuState, size: BatchSize) {
        let held = state.arena.as_ref().map_or(BatchSize::uniform(0, 0), |(held, _)| *held);
        if size.batch <= held.batch && size.tokens <= held.tokens && size.past <= held.past {
            return;
        }
        let (batch, tokens, past) = (size.batch.max(held.batch), size.tokens.max(held.tokens), size.past.max(held.past));
        let size = BatchSize { batch, tokens, past, ..size };
        let arena = Arena::new(&self.prepared.plan, size);
        state.block.resize(arena.bytes() / 4, 0.0);
        state.scratch.grow(&self.prepared, size);
        state.rows = (0..=size.batch).collect();
        state.arena = Some((size, arena));
    }

    /// Copies outputs that are an input, or another output under a second name.
    fn copy_twins(&self, inputs: &[Input<'_>], outputs: &mut [Vec<f32>]) {
        for (at, port) in self.prepared.plan.outputs.iter().enumerate() {
            match self.locations[port.value.0] {
                ValueLocation::Output(first) if first < at => {
                    let (before, after) = outputs.split_at_mut(at);
                    after[0].clone_from(&before[first]);
                }
                ValueLocation::Input(input) => {
                    if let Input::F32(data) = inputs[input] {
                        outputs[at].copy_from_slice(data);
                    }
                }
                _ => {}
            }
        }
    }
}
