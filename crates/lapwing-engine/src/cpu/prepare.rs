//! What is done once for a plan: weights packed for the processor, programs put into the form in which they run.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::executor::{Options, Precision};
use super::gemm::Packed;
use super::gemm::int8::{LevelI8, PackedI8, RowQuant};
use super::program::{self, ArgShape};
use crate::plan::{self, Instruction, Node, Op, Plan, Rows, ValueId, WeightId};

/// Why a plan cannot run here.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{node}: {reason}")]
pub struct PrepareError {
    /// The node.
    pub node: String,
    /// What about it cannot be run.
    pub reason: String,
}

/// What a node has besides its description.
#[derive(Debug)]
pub(super) enum Ready {
    /// A product's weight, packed; shared by the nodes that have the same.
    Gemm(Arc<Packed>),
    /// The same in 8 bits, and the range of its input, if it is the same for all rows.
    GemmI8(Arc<PackedI8>, Option<RowQuant>),
    /// A map's program.
    Map(program::Program),
    /// Nothing.
    Plain,
}

/// Prepares every node. Weights that are packed leave the plan: they are held once.
pub(super) fn prepare(plan: &mut Plan, options: &Options) -> Result<Vec<Ready>, PrepareError> {
    let mut ready = Vec::with_capacity(plan.nodes.len());
    let mut store = Store::default();
    for (at, node) in plan.nodes.iter().enumerate() {
        let fails = |reason: String| PrepareError { node: node.name.clone(), reason };
        ready.push(match &node.op {
            Op::Gemm { weight, .. } => store.gemm(plan, *weight, at, options).map_err(fails)?,
            Op::Map { program, args } => Ready::Map(map(plan, node, program, args).map_err(fails)?),
            _ => Ready::Plain,
        });
    }
    for id in store.packed() {
        // a row may be a product's weight and a bias too, even of the same product
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

/// Packed weights: each once, however many nodes have it.
#[derive(Default)]
struct Store {
    floats: BTreeMap<WeightId, Arc<Packed>>,
    bytes: BTreeMap<WeightId, Arc<PackedI8>>,
}

impl Store {
    fn gemm(&mut self, plan: &Plan, id: WeightId, at: usize, options: &Options) -> Result<Ready, String> {
        let weight = plan.weight(id);
        let (data, k, n) = (&weight.data, weight.rows, weight.width);
        if let Precision::Int8(ranges) = &options.precision
            && fits_int8(k, n)
        {
            let packed = match self.bytes.get(&id) {
                Some(packed) => packed.clone(),
                None => Arc::new(PackedI8::new(data, k, n, LevelI8::for_floats(options.level)).map_err(|e| e.to_string())?),
            };
            self.bytes.insert(id, packed.clone());
            return Ok(Ready::GemmI8(packed, ranges.get(at).copied().flatten()));
        }
        let packed = self.floats.entry(id).or_insert_with(|| Arc::new(Packed::for_level(data, k, n, options.level)));
        Ok(Ready::Gemm(packed.clone()))
    }

    fn packed(&self) -> impl Iterator<Item = WeightId> {
        self.floats.keys().chain(self.bytes.keys()).copied()
    }
}

/// Whether a product of a weight `[rows, width]` is done in bytes. Below, the rows' own quantisation costs as much as the product
/// saves, and heads of few columns (a score, two classes) lose accuracy for nothing. The last product is no exception: on a
/// sentence encoder it changed the cosine by 0.00003.
pub(super) const fn fits_int8(rows: usize, width: usize) -> bool {
    rows >= 32 && width >= 8
}

fn map(plan: &Plan, node: &Node, program: &plan::Program, args: &[ValueId]) -> Result<program::Program, String> {
    let out = plan.value(node.output);
    let shapes = args
        .iter()
        .map(|arg| {
            let value = plan.value(*arg);
            ArgShape { width: value.width, per_sequence: value.rows == Rows::Batch && out.rows == Rows::Token }
        })
        .collect();
    let code = program.code().iter().map(|step| match *step {
        Instruction::Arg(place) => program::Instruction::Arg(place),
        Instruction::Weight(id) => program::Instruction::Row(plan.weight(id).data.clone()),
        Instruction::Scalar(number) => program::Instruction::Scalar(number),
        Instruction::Unary(op, x) => program::Instruction::Unary(op, x),
        Instruction::Binary(op, a, b) => program::Instruction::Binary(op, a, b),
        Instruction::Fold(fold, x) => program::Instruction::Fold(fold, x),
        Instruction::Where(a, b, c) => program::Instruction::Where([a, b, c]),
    });
    let code: Vec<_> = code.collect();
    let last = code.len().saturating_sub(1);
    program::Program::new(out.width, shapes, code, vec![last]).map_err(|e| e.to_string())
}
