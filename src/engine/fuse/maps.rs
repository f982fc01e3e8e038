//! Maps that follow one another are one map.

use super::{reader, uses};
use crate::engine::plan::{Instruction, Op, Plan, Program};

/// A program of more steps stays as it is: its temporaries would not fit the executors' registers and caches.
const STEPS: usize = 48;

/// Puts one map into the only one that reads it; `false` if there is none.
pub(super) fn inline(plan: &mut Plan) -> bool {
    let uses = uses(plan);
    for at in 0..plan.nodes.len() {
        let Op::Map { program: inner, args: inner_args } = &plan.nodes[at].op else { continue };
        let output = plan.nodes[at].output;
        let Some(next) = reader(plan, &uses, output) else { continue };
        let Op::Map { program, args } = &plan.nodes[next].op else { continue };
        // what is the same for a whole row, or for a sequence's tokens, is not made again for each
        if plan.value(output) != plan.value(plan.nodes[next].output) || inner.code().len() + program.code().len() > STEPS {
            continue;
        }
        let Some(place) = args.iter().position(|arg| *arg == output) else { continue };
        let joined = program.inline(place, inner);
        let mut all = args.clone();
        all.remove(place);
        all.extend(inner_args);
        let (code, args) = (joined.code().to_vec(), all);
        plan.nodes[next].op = distinct(code, args);
        plan.nodes.remove(at);
        return true;
    }
    false
}

/// The same with each argument once.
fn distinct(mut code: Vec<Instruction>, args: Vec<crate::engine::plan::ValueId>) -> Op {
    let mut kept = Vec::new();
    let places: Vec<usize> = args
        .iter()
        .map(|arg| {
            kept.iter().position(|known| known == arg).unwrap_or_else(|| {
                kept.push(*arg);
                kept.len() - 1
            })
        })
        .collect();
    for step in &mut code {
        if let Instruction::Arg(place) = step {
            *place = places[*place];
        }
    }
    Op::Map { program: Program::new(code), args: kept }
}
