//! Fuses embeddings: a sum of lookups becomes one lookup in several tables, and a norm of the sum becomes part of it.

use super::rewrite::{derived, makers, reader, uncopied, uses};
use super::simple::{Simple, simple};
use crate::plan::{Binary, Columns, ElementType, Lookup, Norm, Op, Plan};

/// Merges two lookups whose results are added, or folds an added row into a lookup; `false` if there are none.
pub(crate) fn merge(plan: &mut Plan) -> bool {
    let (uses, makers) = (uses(plan), makers(plan));
    for at in 0..plan.nodes.len() {
        if with_row(plan, &uses, at) {
            return true;
        }
        let Some(Simple::Both(Binary::Add, a, b)) = simple(&plan.nodes[at]) else { continue };
        let (Some(first), Some(second)) = (makers[a.0], makers[b.0]) else { continue };
        let (Op::Embed { tables: one, norm: None }, Op::Embed { tables: other, norm: None }) =
            (&plan.nodes[first].op, &plan.nodes[second].op)
        else {
            continue;
        };
        let output = plan.value(plan.nodes[at].output);
        let is_own = uses[a.0] == 1 && uses[b.0] == 1 && a != b;
        if !is_own || [a, b].iter().any(|id| plan.value(*id) != output) {
            continue;
        }
        let tables = one.iter().chain(other).copied().collect();
        plan.nodes[at].op = Op::Embed { tables, norm: None };
        let (early, late) = (first.min(second), first.max(second));
        plan.nodes.remove(late);
        plan.nodes.remove(early);
        return true;
    }
    false
}

/// Folds a row that is added to a lookup into the smallest of its tables, by adding it to each of the table's rows.
fn with_row(plan: &mut Plan, uses: &[usize], at: usize) -> bool {
    let Op::Embed { tables, norm: None } = &plan.nodes[at].op else { return false };
    let tables = tables.clone();
    let output = plan.nodes[at].output;
    let Some(next) = reader(plan, uses, output) else { return false };
    let Some(Simple::Row(Binary::Add, _, row)) = simple(&plan.nodes[next]) else { return false };
    if plan.weight(row).width != plan.value(output).width || plan.value(plan.nodes[next].output) != plan.value(output) {
        return false;
    }
    let Some(smallest) = (0..tables.len()).min_by_key(|table| plan.weight(tables[*table].0).rows) else { return false };
    let row = plan.weight(row).data.clone();
    let mut tables = tables;
    tables[smallest].0 = derived(plan, tables[smallest].0, |column, x| x + row[column]);
    plan.nodes[next].op = Op::Embed { tables, norm: None };
    plan.nodes.remove(at);
    true
}

/// Lets lookups read their ids in place, without the slice or the conversion to float32 in between.
pub(crate) fn uncut(plan: &mut Plan) {
    for at in 0..plan.nodes.len() {
        let Op::Embed { tables, .. } = &plan.nodes[at].op else { continue };
        let ids: Vec<Lookup> = tables.iter().map(|(_, lookup)| direct(plan, *lookup)).collect();
        if let Op::Embed { tables, .. } = &mut plan.nodes[at].op {
            tables.iter_mut().zip(ids).for_each(|((_, lookup), id)| *lookup = id);
        }
    }
}

fn direct(plan: &Plan, lookup: Lookup) -> Lookup {
    let Lookup::Id(id) = lookup else { return lookup };
    let id = super::rewrite::uncut(plan, id);
    let source = uncopied(plan, id.value);
    if plan.value(source).kind == ElementType::Bool { Lookup::Id(id) } else { Lookup::Id(Columns { value: source, ..id }) }
}

/// Fuses a norm with the lookup that only it reads; `false` if there is none.
pub(crate) fn norm(plan: &mut Plan) -> bool {
    let uses = uses(plan);
    for at in 0..plan.nodes.len() {
        let Op::Embed { tables, norm: None } = &plan.nodes[at].op else { continue };
        let Some(next) = reader(plan, &uses, plan.nodes[at].output) else { continue };
        let Op::LayerNorm { residual: None, epsilon, scale, shift, .. } = plan.nodes[next].op else { continue };
        plan.nodes[next].op = Op::Embed { tables: tables.clone(), norm: Some(Norm { epsilon, scale, shift }) };
        plan.nodes.remove(at);
        return true;
    }
    false
}
