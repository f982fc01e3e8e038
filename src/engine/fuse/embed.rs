//! Sums of looked-up rows are one lookup in several tables.

use super::simple::{Simple, simple};
use super::{makers, uses};
use crate::engine::plan::{Binary, Op, Plan};

/// Merges two lookups that are added; `false` if there are none.
pub(super) fn merge(plan: &mut Plan) -> bool {
    let (uses, makers) = (uses(plan), makers(plan));
    for at in 0..plan.nodes.len() {
        let Some(Simple::Both(Binary::Add, a, b)) = simple(&plan.nodes[at]) else { continue };
        let (Some(first), Some(second)) = (makers[a.0], makers[b.0]) else { continue };
        let (Op::Embed(one), Op::Embed(other)) = (&plan.nodes[first].op, &plan.nodes[second].op) else { continue };
        let output = plan.value(plan.nodes[at].output);
        let is_own = uses[a.0] == 1 && uses[b.0] == 1 && a != b;
        if !is_own || [a, b].iter().any(|id| plan.value(*id) != output) {
            continue;
        }
        let tables = one.iter().chain(other).copied().collect();
        plan.nodes[at].op = Op::Embed(tables);
        let (early, late) = (first.min(second), first.max(second));
        plan.nodes.remove(late);
        plan.nodes.remove(early);
        return true;
    }
    false
}
