//! Validates a plan: values are computed once and before they are read, and widths and rows match.

use super::{Angles, ElementType, Instruction, Lookup, Node, Op, Plan, Program, Rows, ValueId, WeightId};

/// Why a plan is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{node}: {reason}")]
pub struct PlanError {
    /// The node, or the input or output.
    pub node: String,
    /// The violated rule.
    pub reason: String,
}

impl Plan {
    /// Validates the plan. Executors require a valid plan.
    ///
    /// # Errors
    ///
    /// [`PlanError`] names the first invalid node.
    pub fn check(&self) -> Result<(), PlanError> {
        let mut made = vec![false; self.values.len()];
        let fails = |node: &str, reason: String| Err(PlanError { node: node.to_owned(), reason });
        for port in &self.inputs {
            match made.get_mut(port.value.0) {
                Some(made) if !*made => *made = true,
                Some(_) => return fails(&port.name, "is a value that another input brings".into()),
                None => return fails(&port.name, format!("no value {}", port.value.0)),
            }
        }
        for node in &self.nodes {
            if let Some(unmade) = node.op.reads().into_iter().find(|id| !made.get(id.0).copied().unwrap_or(false)) {
                return fails(&node.name, format!("reads value {} before it is made", unmade.0));
            }
            if let Some(none) = node.op.weights().into_iter().find(|id| id.0 >= self.weights.len()) {
                return fails(&node.name, format!("no weight {}", none.0));
            }
            match made.get_mut(node.output.0) {
                Some(made) if !*made => *made = true,
                Some(_) => return fails(&node.name, format!("makes value {} again", node.output.0)),
                None => return fails(&node.name, format!("no value {}", node.output.0)),
            }
            if let Err(reason) = self.fits(node) {
                return fails(&node.name, reason);
            }
        }
        for port in &self.outputs {
            if !made.get(port.value.0).copied().unwrap_or(false) {
                return fails(&port.name, "is never made".into());
            }
        }
        for weight in &self.weights {
            if weight.data.len() != weight.rows * weight.width {
                return fails(&weight.name, format!("{} elements for [{}, {}]", weight.data.len(), weight.rows, weight.width));
            }
        }
        for port in self.inputs.iter().chain(&self.outputs) {
            let width = self.value(port.value).width;
            if port.features.iter().product::<usize>() != width {
                return fails(&port.name, format!("features {:?} for a width of {width}", port.features));
            }
        }
        Ok(())
    }

    #[expect(clippy::too_many_lines, reason = "one arm for each operation")]
    fn fits(&self, node: &Node) -> Result<(), String> {
        let out = self.value(node.output);
        let width = |id: ValueId| self.value(id).width;
        let ensure = |holds: bool, reason: &dyn Fn() -> String| if holds { Ok(()) } else { Err(reason()) };
        let same_rows =
            |id: ValueId| ensure(self.value(id).rows == out.rows, &|| format!("value {} has other rows than the output", id.0));
        let is = |id: ValueId, expected: usize| {
            ensure(width(id) == expected, &|| format!("value {} is {} wide, not {expected}", id.0, width(id)))
        };
        let row = |id: Option<WeightId>, expected: usize| match id.map(|id| self.weight(id)) {
            Some(weight) if weight.rows != 1 || weight.width != expected => {
                Err(format!("{} is [{}, {}], not [1, {expected}]", weight.name, weight.rows, weight.width))
            }
            _ => Ok(()),
        };
        let float = |id: ValueId| ensure(self.value(id).kind == ElementType::F32, &|| format!("value {} is no float32", id.0));
        float(node.output)?;
        let is_by_head = |id: &ValueId| width(*id) > 1 && matches!(self.value(*id).rows, Rows::Past | Rows::Context);
        if !matches!(node.op, Op::Attention { .. } | Op::Append { .. } | Op::Map { .. })
            && let Some(id) = node.op.reads().iter().chain([&node.output]).find(|id| is_by_head(id))
        {
            return Err(format!("value {} has rows that lie by head", id.0));
        }
        match &node.op {
            Op::Gemm { x, weight, bias, residual, .. } => {
                let weight = self.weight(*weight);
                is(*x, weight.rows)?;
                ensure(weight.width == out.width, &|| format!("{} is {} wide, not {}", weight.name, weight.width, out.width))?;
                row(*bias, out.width)?;
                for id in [Some(*x), *residual].into_iter().flatten() {
                    same_rows(id)?;
                    float(id)?;
                }
                residual.map_or(Ok(()), |id| is(id, out.width))
            }
            Op::Embed { tables, norm } => {
                norm.map_or(Ok(()), |norm| row(norm.scale, out.width).and_then(|()| row(norm.shift, out.width)))?;
                tables.iter().try_for_each(|(table, lookup)| {
                    let table = self.weight(*table);
                    ensure(table.width == out.width, &|| format!("{} is {} wide, not {}", table.name, table.width, out.width))?;
                    match lookup {
                        Lookup::Id(id) => {
                            same_rows(id.value)?;
                            let fits = id.from < width(id.value) && self.value(id.value).kind != ElementType::Bool;
                            ensure(fits, &|| format!("column {} of value {} is no number of a row", id.from, id.value.0))
                        }
                        Lookup::Position(from) => ensure(out.rows == Rows::Token && *from < table.rows, &|| {
                            format!("position {from} of {} rows", table.rows)
                        }),
                    }
                })
            }
            Op::LayerNorm { x, residual, scale, shift, .. } => {
                for id in [Some(*x), *residual].into_iter().flatten() {
                    same_rows(id).and_then(|()| is(id, out.width)).and_then(|()| float(id))?;
                }
                row(*scale, out.width)?;
                row(*shift, out.width)
            }
            Op::RmsNorm { x, scale, .. } => {
                same_rows(*x)?;
                is(*x, out.width)?;
                row(*scale, out.width)
            }
            Op::Softmax(x) => same_rows(*x).and_then(|()| is(*x, out.width)),
            Op::Attention { q, k, v, heads, key_heads, head, head_out, bias, by_distance, .. } => {
                ensure(out.rows == Rows::Token && out.width == heads * head_out, &|| "has another output".into())?;
                ensure(heads.is_multiple_of(*key_heads), &|| format!("has {heads} heads, and {key_heads} of keys"))?;
                same_rows(q.value)?;
                let keys = self.value(k.value).rows;
                let of_keys = |id: ValueId| {
                    let fits = self.value(id).rows == keys && matches!(keys, Rows::Token | Rows::Context);
                    ensure(fits, &|| format!("value {} has other rows than the keys, or no tokens", id.0))
                };
                [k.value, v.value].into_iter().chain(*bias).try_for_each(of_keys)?;
                for (columns, size) in [(k, key_heads * head), (v, key_heads * head_out)] {
                    let is_whole = columns.from == 0 && width(columns.value) == size;
                    ensure(keys == Rows::Token || is_whole, &|| format!("value {} has other heads", columns.value.0))?;
                }
                for (columns, size) in [(q, heads * head), (k, key_heads * head), (v, key_heads * head_out)] {
                    float(columns.value)?;
                    ensure(columns.from + size <= width(columns.value), &|| {
                        format!("columns {}.. of value {}, which is {} wide", columns.from, columns.value.0, width(columns.value))
                    })?;
                }
                bias.map_or(Ok(()), |id| is(id, 1))?;
                by_distance.map(|id| self.weight(id)).map_or(Ok(()), |table| {
                    let fits = [1, *heads].contains(&table.rows) && table.width % 2 == 1;
                    ensure(fits, &|| format!("{} is [{}, {}], no bias of {heads} heads", table.name, table.rows, table.width))
                })
            }
            Op::Rotate { x, heads, head, angles } => {
                same_rows(x.value)?;
                float(x.value)?;
                ensure(out.rows == Rows::Token && out.width == heads * head && head % 2 == 0, &|| "has another output".into())?;
                ensure(x.from + out.width <= width(x.value), &|| format!("columns {}.. of value {}", x.from, x.value.0))?;
                match angles {
                    Angles::ByPosition { cos, sin } => {
                        let [cos, sin] = [cos, sin].map(|id| self.weight(*id));
                        let fits = cos.width == *head && sin.width == *head && cos.rows == sin.rows;
                        ensure(fits, &|| format!("{} is [{}, {}], no table of {head}", cos.name, cos.rows, cos.width))
                    }
                    Angles::ByToken { cos, sin } => [*cos, *sin]
                        .into_iter()
                        .try_for_each(|id| same_rows(id).and_then(|()| is(id, *head)).and_then(|()| float(id))),
                }
            }
            Op::Append { past, new, heads, head } => {
                [*past, new.value].into_iter().try_for_each(float)?;
                let kinds = (self.value(*past).rows, self.value(new.value).rows, out.rows);
                ensure(kinds == (Rows::Past, Rows::Token, Rows::Context), &|| "does not make a context".into())?;
                ensure(out.width == heads * head, &|| "has another output".into())?;
                is(*past, out.width)?;
                ensure(new.from + out.width <= width(new.value), &|| format!("columns {}.. of value {}", new.from, new.value.0))
            }
            Op::Map { program, args } => {
                ensure(program.is_sound() && program.arguments() <= args.len(), &|| "has an unsound program".into())?;
                let is_held = !program.folds() || out.width <= Program::WIDEST_FOLD;
                ensure(is_held, &|| format!("folds rows of {}", out.width))?;
                for id in args {
                    ensure([1, out.width].contains(&width(*id)), &|| format!("value {} is {} wide", id.0, width(*id)))?;
                    let fits = [Rows::Batch, out.rows].contains(&self.value(*id).rows);
                    ensure(fits, &|| format!("value {} has other rows than the output", id.0))?;
                }
                if matches!(out.rows, Rows::Past | Rows::Context) && out.width > 1 {
                    // rows lie by head: only elements at the same place belong together
                    let is_flat = program.weights().is_empty() && !program.folds();
                    args.iter().try_for_each(|id| same_rows(*id).and_then(|()| is(*id, out.width)))?;
                    ensure(is_flat, &|| "works on rows that lie by head".into())?;
                }
                program.code().iter().try_for_each(|step| match step {
                    Instruction::Weight(id) if self.weight(*id).width == 1 => row(Some(*id), 1),
                    Instruction::Weight(id) => row(Some(*id), out.width),
                    _ => Ok(()),
                })
            }
            Op::Reduce { x, .. } => same_rows(*x).and_then(|()| is(node.output, 1)),
            Op::Pool { x, .. } => {
                is(*x, out.width)?;
                let fits = self.value(*x).rows == Rows::Token && out.rows == Rows::Batch;
                ensure(fits, &|| "does not make rows of tokens".into())
            }
            Op::MeanPool { x, weights, .. } => {
                is(*x, out.width).and_then(|()| float(*x)).and_then(|()| is(*weights, 1))?;
                let fits = [x, weights].iter().all(|id| self.value(**id).rows == Rows::Token) && out.rows == Rows::Batch;
                ensure(fits, &|| "does not make rows of tokens".into())
            }
            Op::CumSum(x) => {
                is(*x, out.width).and_then(|()| float(*x)).and_then(|()| same_rows(*x))?;
                ensure(out.rows == Rows::Token, &|| "sums rows that are no tokens".into())
            }
            Op::Concat(parts) => {
                parts.iter().try_for_each(|id| same_rows(*id))?;
                is(node.output, parts.iter().map(|id| width(*id)).sum())
            }
            Op::Slice(columns) => {
                same_rows(columns.value)?;
                ensure(columns.from + out.width <= width(columns.value), &|| format!("columns from {} on", columns.from))
            }
        }
    }
}
