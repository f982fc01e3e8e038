//! Fuses consecutive maps into one, and a fold of a row into the map of the same row that uses it.

use super::rewrite::{makers, reader, uncopied, uses};
use super::simple::{Simple, simple};
use crate::plan::{Binary, Fold, Instruction, Op, Plan, Program, Unary, ValueId};

/// The most steps of a fused program; the temporaries of a longer one would not fit the executors' registers and
/// caches.
const STEPS: usize = 48;

/// Removes conversions to float32 before maps, which read every type.
pub(crate) fn uncopy(plan: &mut Plan) {
    for at in 0..plan.nodes.len() {
        let sources: Vec<ValueId> = plan.nodes[at].op.reads().into_iter().map(|id| uncopied(plan, id)).collect();
        if let Op::Map { program, .. } = &plan.nodes[at].op {
            let code = program.code().to_vec();
            plan.nodes[at].op = distinct(code, sources);
        }
    }
}

/// Rewrites `log(1 + exp(x))` so that it stays finite for every x, like the softplus operator that it came from.
pub(crate) fn steady(plan: &mut Plan) {
    use Instruction::{Arg, Binary as Two, Scalar, Unary as One};
    let makers = makers(plan);
    let made = |plan: &Plan, value: ValueId| makers[value.0].and_then(|at| simple(&plan.nodes[at]));
    for at in 0..plan.nodes.len() {
        let Some(Simple::Unary(Unary::Log, sum)) = simple(&plan.nodes[at]) else { continue };
        let Some(Simple::Scalar(Binary::Add, power, 1.0, _)) = made(plan, sum) else { continue };
        let Some(Simple::Unary(Unary::Exp, x)) = made(plan, power) else { continue };
        // max(x, 0) + log(1 + exp(−|x|))
        let small = [One(Unary::Abs, 0), One(Unary::Neg, 1), One(Unary::Exp, 2), Scalar(1.0), Two(Binary::Add, 3, 4)];
        let sum = [One(Unary::Log, 5), Scalar(0.0), Two(Binary::Max, 0, 7), Two(Binary::Add, 6, 8)];
        let program = Program::new([&[Arg(0)][..], &small, &sum].concat());
        plan.nodes[at].op = Op::Map { program, args: vec![x] };
    }
}

/// Inlines one map or fold into its only reader, if that is a map; `false` if there is none.
pub(crate) fn inline(plan: &mut Plan) -> bool {
    let uses = uses(plan);
    for at in 0..plan.nodes.len() {
        let output = plan.nodes[at].output;
        let Some(next) = reader(plan, &uses, output) else { continue };
        let Op::Map { program, args } = &plan.nodes[next].op else { continue };
        let (made, wanted) = (plan.value(output), plan.value(plan.nodes[next].output));
        // a value per sequence is not recomputed for each token
        if made.rows != wanted.rows {
            continue;
        }
        let (inner, inner_args) = match &plan.nodes[at].op {
            Op::Map { program, args } if made.width == wanted.width || made.width == 1 => (program.clone(), args.clone()),
            Op::Reduce { x, fold } if *fold != Fold::First && is_row(plan, *x, wanted.width) => {
                (Program::new(vec![Instruction::Arg(0), Instruction::Fold(*fold, 0)]), vec![*x])
            }
            _ => continue,
        };
        let Some(place) = args.iter().position(|arg| *arg == output) else { continue };
        if inner.code().len() + program.code().len() > STEPS {
            continue;
        }
        let joined = program.inline(place, &inner);
        let mut all = args.clone();
        all.remove(place);
        all.extend(inner_args);
        plan.nodes[next].op = distinct(joined.code().to_vec(), all);
        plan.nodes.remove(at);
        return true;
    }
    false
}

/// Whether a value's rows are as wide as those of a map, and not too wide for a fold inside a program.
fn is_row(plan: &Plan, value: ValueId, width: usize) -> bool {
    plan.value(value).width == width && width > 1 && width <= Program::WIDEST_FOLD
}

/// A map with each argument and each step only once.
fn distinct(code: Vec<Instruction>, args: Vec<ValueId>) -> Op {
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
    let program = Program::new(code).renumbered(|place| places[place]);
    Op::Map { program, args: kept }
}
