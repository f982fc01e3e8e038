//! Prepares a plan once, when its executor is created: packs weights for the processor and compiles elementwise
//! programs.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::attention::DistanceBias;
use super::gemm::PackedWeights;
use super::gemm::int8::{LevelI8, PackedWeightsI8, RowQuant};
use super::level::Level;
use super::program::{self, ArgShape};
use super::threads::Threads;
use lapwing_plan::exec::CpuPrecision;
use lapwing_plan::plan::{self, Instruction, Node, Op, Plan, Rows, ValueId, WeightId};

/// How a plan is executed.
#[derive(Clone, Debug)]
pub struct CpuOptions {
    /// The vector instructions; if the machine lacks them, the best level that it has.
    pub level: Level,
    /// The thread pool that shares the work of a batch.
    pub threads: Arc<Threads>,
    /// The precision of matrix products.
    pub precision: CpuPrecision,
}

impl Default for CpuOptions {
    fn default() -> Self {
        Self { level: Level::best(), threads: Arc::new(Threads::one()), precision: CpuPrecision::Fp32 }
    }
}

/// Why a plan cannot run on this CPU.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{node}: {reason}")]
pub struct PrepareError {
    /// The node's name.
    pub node: String,
    /// Why it cannot run.
    pub reason: String,
}

/// What the executor precomputes for a node.
#[derive(Debug)]
pub(crate) enum PreparedNode {
    /// The packed weight of a product; shared by the nodes that use the same weight.
    Gemm(Arc<PackedWeights>),
    /// The packed 8-bit weight of a product, and the static range of its input if it has one.
    GemmI8(Arc<PackedWeightsI8>, Option<RowQuant>),
    /// The compiled program of a map.
    Map(program::CpuProgram),
    /// The bias by distance of an attention; shared by those that use the same table.
    Attention(Arc<DistanceBias>),
    /// Nothing to precompute.
    Plain,
}

/// A plan with what the executor precomputed for it.
#[derive(Debug)]
pub(crate) struct CpuPlan {
    /// The plan, without the weights that were packed.
    pub(crate) plan: Plan,
    /// What was precomputed for each node.
    pub(crate) ready: Vec<PreparedNode>,
    pub(crate) options: CpuOptions,
}

impl CpuPlan {
    /// Prepares every node. Packed weights are removed from the plan, so that they are in memory once.
    pub(crate) fn new(mut plan: Plan, options: CpuOptions) -> Result<Self, PrepareError> {
        let ready = prepare(&mut plan, &options)?;
        Ok(Self { plan, ready, options })
    }
}

fn prepare(plan: &mut Plan, options: &CpuOptions) -> Result<Vec<PreparedNode>, PrepareError> {
    let mut ready = Vec::with_capacity(plan.nodes.len());
    let mut cache = WeightCache::default();
    for (at, node) in plan.nodes.iter().enumerate() {
        let fails = |reason: String| PrepareError { node: node.name.clone(), reason };
        ready.push(match &node.op {
            Op::Gemm { weight, .. } => cache.gemm(plan, *weight, at, options).map_err(fails)?,
            Op::Attention { by_distance: Some(table), .. } => PreparedNode::Attention(cache.distances(plan, *table)),
            Op::Map { program, args } => PreparedNode::Map(map(plan, node, program, args).map_err(fails)?),
            _ => PreparedNode::Plain,
        });
    }
    for id in cache.packed() {
        // a one-row weight may serve as a product's weight and as a bias, even of the same product
        let others = plan.nodes.iter().any(|node| match &node.op {
            Op::Gemm { bias, .. } => *bias == Some(id),
            op => op.weights().contains(&id),
        });
        if !others {
            plan.weights[id.0].data = Vec::new().into();
        }
    }
    Ok(ready)
}

/// Packed weights, each stored once however many nodes use it.
#[derive(Default)]
struct WeightCache {
    floats: BTreeMap<WeightId, Arc<PackedWeights>>,
    bytes: BTreeMap<WeightId, Arc<PackedWeightsI8>>,
    distances: BTreeMap<WeightId, Arc<DistanceBias>>,
}

impl WeightCache {
    fn gemm(&mut self, plan: &Plan, id: WeightId, at: usize, options: &CpuOptions) -> Result<PreparedNode, String> {
        let weight = plan.weight(id);
        let (data, k, n) = (&weight.data, weight.rows, weight.width);
        if let CpuPrecision::Int8(ranges) = &options.precision
            && fits_int8(k, n)
        {
            let packed = match self.bytes.get(&id) {
                Some(packed) => packed.clone(),
                None => {
                    Arc::new(PackedWeightsI8::new(data, k, n, LevelI8::for_floats(options.level)).map_err(|e| e.to_string())?)
                }
            };
            self.bytes.insert(id, packed.clone());
            return Ok(PreparedNode::GemmI8(packed, ranges.get(at).copied().flatten()));
        }
        let packed = self.floats.entry(id).or_insert_with(|| Arc::new(PackedWeights::for_level(data, k, n, options.level)));
        Ok(PreparedNode::Gemm(packed.clone()))
    }

    fn distances(&mut self, plan: &Plan, id: WeightId) -> Arc<DistanceBias> {
        let table = plan.weight(id);
        self.distances.entry(id).or_insert_with(|| Arc::new(DistanceBias::new(&table.data, table.width))).clone()
    }

    fn packed(&self) -> impl Iterator<Item = WeightId> {
        self.floats.keys().chain(self.bytes.keys()).copied()
    }
}

/// Whether a product with a weight of `[rows, width]` runs in 8 bits. Below these limits, quantising the rows costs as
/// much as the product saves, and heads of few columns (a score, two classes) lose accuracy without gain. The last
/// product is no exception: on a sentence encoder it changed the cosine by 0.00003.
pub(crate) const fn fits_int8(rows: usize, width: usize) -> bool {
    rows >= 32 && width >= 8
}

fn map(plan: &Plan, node: &Node, program: &plan::Program, args: &[ValueId]) -> Result<program::CpuProgram, String> {
    let out = plan.value(node.output);
    let shapes = args
        .iter()
        .map(|arg| {
            let value = plan.value(*arg);
            ArgShape { width: value.width, per_sequence: value.rows == Rows::Batch && out.rows != Rows::Batch }
        })
        .collect();
    let code = program.code().iter().map(|step| match *step {
        Instruction::Arg(place) => program::CpuInstruction::Arg(place),
        Instruction::Weight(id) => program::CpuInstruction::Row(plan.weight(id).data.clone()),
        Instruction::Scalar(number) => program::CpuInstruction::Scalar(number),
        Instruction::Unary(op, x) => program::CpuInstruction::Unary(op, x),
        Instruction::Binary(op, a, b) => program::CpuInstruction::Binary(op, a, b),
        Instruction::Fold(fold, x) => program::CpuInstruction::Fold(fold, x),
        Instruction::Where(a, b, c) => program::CpuInstruction::Where([a, b, c]),
    });
    let code: Vec<_> = code.collect();
    let last = code.len().saturating_sub(1);
    program::CpuProgram::new(out.width, shapes, code, vec![last]).map_err(|e| e.to_string())
}
