//! Maps of a single operation, as patterns for fusion.

use crate::plan::{Binary, Instruction, Node, Op, Unary, ValueId, WeightId};

/// A map of a single operation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Simple {
    /// A function of each element.
    Unary(Unary, ValueId),
    /// With a scalar operand; the flag is true if the value is the left operand.
    Scalar(Binary, ValueId, f32, bool),
    /// With a weight row as the right operand; or the operation is commutative.
    Row(Binary, ValueId, WeightId),
    /// With another value.
    Both(Binary, ValueId, ValueId),
}

/// A node's operation, if it is a map of a single operation.
pub(crate) fn simple(node: &Node) -> Option<Simple> {
    let Op::Map { program, args } = &node.op else { return None };
    let arg = |at: usize| args.get(at).copied();
    match *program.code() {
        [Instruction::Arg(a), Instruction::Unary(op, 0)] => Some(Simple::Unary(op, arg(a)?)),
        [first, second, Instruction::Binary(op, 0, 1)] => match (first, second) {
            (Instruction::Arg(a), Instruction::Arg(b)) => Some(Simple::Both(op, arg(a)?, arg(b)?)),
            (Instruction::Arg(a), Instruction::Scalar(number)) => Some(Simple::Scalar(op, arg(a)?, number, true)),
            (Instruction::Scalar(number), Instruction::Arg(a)) => Some(Simple::Scalar(op, arg(a)?, number, false)),
            (Instruction::Arg(a), Instruction::Weight(row)) => Some(Simple::Row(op, arg(a)?, row)),
            (Instruction::Weight(row), Instruction::Arg(a)) if matches!(op, Binary::Add | Binary::Mul) => {
                Some(Simple::Row(op, arg(a)?, row))
            }
            _ => None,
        },
        _ => None,
    }
}
