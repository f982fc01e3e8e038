//! A plan as text, one node per line.

use std::fmt;

use super::{Angles, Columns, Lookup, Op, Plan, Rows, ValueId, WeightId};

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for port in &self.inputs {
            writeln!(f, "{:<9} {} <- {}", "input", self.shown(port.value), port.name)?;
        }
        for node in &self.nodes {
            write!(f, "{:<9} {} <-", node.op.name(), self.shown(node.output))?;
            self.operands(&node.op, f)?;
            writeln!(f, "  ({})", node.name)?;
        }
        for port in &self.outputs {
            writeln!(f, "{:<9} {} -> {}", "output", self.shown(port.value), port.name)?;
        }
        Ok(())
    }
}

impl Plan {
    /// `v3[T,384]`: the value's index, its rows (B for sequences, T for tokens) and its width.
    fn shown(&self, id: ValueId) -> String {
        let value = self.value(id);
        let rows = match value.rows {
            Rows::Batch => "B",
            Rows::Token => "T",
            Rows::Past => "P",
            Rows::Context => "C",
        };
        format!("v{}[{rows},{}]", id.0, value.width)
    }

    fn operands(&self, op: &Op, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let weight = |id: WeightId| {
            let weight = self.weight(id);
            format!("w{}[{},{}]", id.0, weight.rows, weight.width)
        };
        let columns = |columns: Columns| format!("v{}:{}", columns.value.0, columns.from);
        match op {
            Op::Gemm { x, weight: w, bias, activation, residual } => {
                write!(f, " v{}·{}", x.0, weight(*w))?;
                if bias.is_some() {
                    write!(f, " + bias")?;
                }
                if *activation != super::Activation::None {
                    write!(f, " {activation:?}")?;
                }
                residual.map_or(Ok(()), |id| write!(f, " + v{}", id.0))
            }
            Op::Embed { tables, norm } => {
                tables.iter().try_for_each(|(table, lookup)| match lookup {
                    Lookup::Id(id) if self.value(id.value).width > 1 => write!(f, " {}[{}]", weight(*table), columns(*id)),
                    Lookup::Id(id) => write!(f, " {}[v{}]", weight(*table), id.value.0),
                    Lookup::Position(from) => write!(f, " {}[position + {from}]", weight(*table)),
                })?;
                norm.map_or(Ok(()), |norm| write!(f, " normed ε={:e}", norm.epsilon))
            }
            Op::MeanPool { x, weights, at_least } => write!(f, " v{} by v{} at least {at_least:e}", x.0, weights.0),
            Op::Attention { q, k, v, heads, key_heads, head, head_out, scale, bias, by_distance, is_zero_if_masked } => {
                write!(f, " {} {} {} heads={heads}×{head}→{head_out} scale={scale}", columns(*q), columns(*k), columns(*v))?;
                if key_heads != heads {
                    write!(f, " keys of {key_heads}")?;
                }
                bias.map_or(Ok(()), |id| write!(f, " bias=v{}", id.0))?;
                by_distance.map_or(Ok(()), |id| write!(f, " by distance {}", weight(id)))?;
                if *is_zero_if_masked { write!(f, " zero if masked") } else { Ok(()) }
            }
            Op::Rotate { x, heads, head, angles } => {
                write!(f, " {} heads={heads}×{head} by ", columns(*x))?;
                match angles {
                    Angles::ByPosition { cos, .. } => write!(f, "{}", weight(*cos)),
                    Angles::ByToken { cos, sin } => write!(f, "v{} v{}", cos.0, sin.0),
                }
            }
            Op::Append { past, new, heads, head } => write!(f, " v{} {} heads={heads}×{head}", past.0, columns(*new)),
            Op::LayerNorm { residual, epsilon, .. } => {
                self.reads(op, f)?;
                write!(f, " ε={epsilon:e}{}", if residual.is_some() { " of the sum" } else { "" })
            }
            Op::Map { program, .. } => {
                self.reads(op, f)?;
                write!(f, " {:?}", program.code())
            }
            Op::Reduce { fold, .. } | Op::Pool { fold, .. } => {
                self.reads(op, f)?;
                write!(f, " {fold:?}")
            }
            _ => self.reads(op, f),
        }
    }

    fn reads(&self, op: &Op, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        op.reads().iter().try_for_each(|id| write!(f, " v{}", id.0))
    }
}
