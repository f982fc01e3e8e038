//! What is done once for a plan: weights packed for the processor, programs put into the form in which they run.

use super::gemm::{self, Packed};
use super::level::Level;
use super::program::{self, ArgShape};
use crate::engine::plan::{self, Instruction, Node, Op, Plan, Rows, ValueId};

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
    /// A product's weight, packed.
    Gemm(Packed),
    /// A map's program.
    Map(program::Program),
    /// Nothing.
    Plain,
}

/// Prepares every node. Weights that are packed leave the plan: they are held once.
pub(super) fn prepare(plan: &mut Plan, level: Level) -> Result<Vec<Ready>, PrepareError> {
    let mut ready = Vec::with_capacity(plan.nodes.len());
    let mut packed = Vec::new();
    for node in &plan.nodes {
        ready.push(match &node.op {
            Op::Gemm { weight: id, .. } => {
                let weight = plan.weight(*id);
                packed.push(*id);
                Ready::Gemm(Packed::for_level(&weight.data, weight.rows, weight.width, level))
            }
            Op::Map { program, args } => {
                Ready::Map(map(plan, node, program, args).map_err(|reason| PrepareError { node: node.name.clone(), reason })?)
            }
            _ => Ready::Plain,
        });
    }
    for id in packed {
        let is_packed = |node: &&Node| matches!(node.op, Op::Gemm { weight, .. } if weight == id);
        let others = plan.nodes.iter().filter(|node| !is_packed(node)).any(|node| node.op.weights().contains(&id));
        if !others {
            plan.weights[id.0].data = Vec::new().into();
        }
    }
    Ok(ready)
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

/// How much room the kernels need besides the values, for a batch of so many tokens.
pub(super) fn scratch(plan: &Plan, ready: &[Ready], size: plan::Size) -> usize {
    let of = |(node, ready): (&Node, &Ready)| match (&node.op, ready) {
        (Op::Gemm { .. }, _) => gemm::scratch_len(size.rows(plan.value(node.output).rows)),
        (Op::Attention { heads, head, head_out, scale, .. }, _) => {
            let shape = super::attention::Heads { heads: *heads, head_size: *head, value_size: *head_out, scale: *scale };
            super::attention::Attention::scratch_len(&shape)
        }
        (_, Ready::Map(program)) => program.scratch_len(),
        _ => 0,
    };
    plan.nodes.iter().zip(ready).map(of).max().unwrap_or(0)
}
