//! Properties of a plan's inputs, derived from how the nodes use them.

use super::{Angles, Binary, Instruction, Lookup, Op, Plan, Rows, ValueId};

/// The most tokens of a sequence whose model computes with positions: what it makes of each is computed before any call.
pub const LONGEST: usize = 1 << 14;

impl Plan {
    /// The input that is the token mask: the only input of width 1 from which attention biases, or the weights of
    /// masked means, are computed. `None` if there is none, or several.
    #[must_use]
    pub fn mask(&self) -> Option<usize> {
        let biases = self.nodes.iter().filter_map(|node| match node.op {
            Op::Attention { bias, .. } => bias,
            Op::MeanPool { weights, .. } => Some(weights),
            _ => None,
        });
        let mut inputs: Vec<usize> = biases.flat_map(|bias| self.made_of(bias)).collect();
        inputs.sort_unstable();
        inputs.dedup();
        if let [input] = inputs[..] { Some(input) } else { None }
    }

    /// The inputs with one value per token, or per token of the context, from which maps compute this value.
    fn made_of(&self, value: ValueId) -> Vec<usize> {
        let is_fit = |id: ValueId| matches!(self.value(id).rows, Rows::Token | Rows::Context) && self.value(id).width == 1;
        if let Some(at) = self.inputs.iter().position(|port| port.value == value) {
            return if is_fit(value) { vec![at] } else { Vec::new() };
        }
        match self.nodes.iter().find(|node| node.output == value).map(|node| &node.op) {
            Some(Op::Map { args, .. }) => args.iter().flat_map(|arg| self.made_of(*arg)).collect(),
            _ => Vec::new(),
        }
    }

    /// The longest sequence, its past included: the size of the smallest table of positions, or [`LONGEST`] if a bias depends on distances. `None` if there
    /// is no limit.
    #[must_use]
    pub fn longest(&self) -> Option<usize> {
        let tables = self.nodes.iter().flat_map(|node| if let Op::Embed { tables, .. } = &node.op { &tables[..] } else { &[] });
        let others = self.nodes.iter().filter_map(|node| match node.op {
            Op::Attention { by_distance: Some(_), .. } => Some(LONGEST),
            Op::Rotate { angles: Angles::ByPosition { cos, .. }, .. } => Some(self.weight(cos).rows),
            _ => None,
        });
        tables
            .filter_map(|(table, lookup)| match lookup {
                Lookup::Position(from) => Some(self.weight(*table).rows.saturating_sub(*from)),
                Lookup::Id(id) => self.counted(id.value, self.weight(*table).rows),
            })
            .chain(others)
            .min()
    }

    /// The most tokens that can be counted before an id that is computed from the count exceeds a table of `rows` rows.
    /// `None` if the id is not computed from a count.
    fn counted(&self, id: ValueId, rows: usize) -> Option<usize> {
        let maker = |id: ValueId| self.nodes.iter().find(|node| node.output == id).map(|node| &node.op);
        let Op::Map { program, args } = maker(id)? else { return None };
        let is_count = |arg: &ValueId| matches!(maker(*arg), Some(Op::CumSum(_)));
        args.iter().find(|arg| is_count(arg))?;
        // assumes that all tokens count: the mask is 1, and its sum the number of tokens
        let fits = |length: &usize| {
            let mut steps: Vec<f32> = Vec::new();
            for step in program.code() {
                steps.push(match *step {
                    Instruction::Arg(at) if is_count(&args[at]) => *length as f32,
                    Instruction::Arg(_) => 1.0,
                    Instruction::Scalar(number) => number,
                    Instruction::Binary(Binary::Add, a, b) => steps[a] + steps[b],
                    Instruction::Binary(Binary::Sub, a, b) => steps[a] - steps[b],
                    Instruction::Binary(Binary::Mul, a, b) => steps[a] * steps[b],
                    _ => return false,
                });
            }
            steps.last().is_some_and(|row| *row < rows as f32)
        };
        (1..=rows).rev().find(fits)
    }
}

impl Plan {
    /// Ids of this input must be below this: the rows of the smallest table that it indexes. `None` if it indexes none.
    #[must_use]
    pub fn ids_below(&self, input: usize) -> Option<usize> {
        let value = self.inputs.get(input)?.value;
        let tables = self.nodes.iter().flat_map(|node| if let Op::Embed { tables, .. } = &node.op { &tables[..] } else { &[] });
        let looked_up = tables.filter(|(_, lookup)| matches!(lookup, Lookup::Id(id) if id.value == value));
        looked_up.map(|(table, _)| self.weight(*table).rows).min()
    }
}
