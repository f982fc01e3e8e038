//! What can be told of a plan's inputs from what is done with them.

use super::{Binary, Instruction, Lookup, Op, Plan, Rows, ValueId};

impl Plan {
    /// The input that says which tokens count: the only one of width 1 that attention's biases and the weights of
    /// means over tokens are made of. `None` where there is none, or several.
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

    /// The inputs with a number for each token that maps make this value of.
    fn made_of(&self, value: ValueId) -> Vec<usize> {
        let is_fit = |id: ValueId| self.value(id).rows == Rows::Token && self.value(id).width == 1;
        if let Some(at) = self.inputs.iter().position(|port| port.value == value) {
            return if is_fit(value) { vec![at] } else { Vec::new() };
        }
        match self.nodes.iter().find(|node| node.output == value).map(|node| &node.op) {
            Some(Op::Map { args, .. }) => args.iter().flat_map(|arg| self.made_of(*arg)).collect(),
            _ => Vec::new(),
        }
    }

    /// How long a sequence may be: what its tables of positions hold. `None` where there is no end.
    #[must_use]
    pub fn longest(&self) -> Option<usize> {
        let tables = self.nodes.iter().flat_map(|node| if let Op::Embed { tables, .. } = &node.op { &tables[..] } else { &[] });
        tables
            .filter_map(|(table, lookup)| match lookup {
                Lookup::Position(from) => Some(self.weight(*table).rows.saturating_sub(*from)),
                Lookup::Id(id) => self.counted(id.value, self.weight(*table).rows),
            })
            .min()
    }

    /// How many tokens may be counted until the id that is made of the count is no row of a table with so many. `None` where
    /// the id is not made of a count.
    fn counted(&self, id: ValueId, rows: usize) -> Option<usize> {
        let maker = |id: ValueId| self.nodes.iter().find(|node| node.output == id).map(|node| &node.op);
        let Op::Map { program, args } = maker(id)? else { return None };
        let is_count = |arg: &ValueId| matches!(maker(*arg), Some(Op::CumSum(_)));
        args.iter().find(|arg| is_count(arg))?;
        // all tokens count: a mask is 1, the count that of the tokens
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
    /// Ids of the input at this place must be below this: the rows of the smallest table that they are looked up in. `None`
    /// where they are looked up in none.
    #[must_use]
    pub fn ids_below(&self, input: usize) -> Option<usize> {
        let value = self.inputs.get(input)?.value;
        let tables = self.nodes.iter().flat_map(|node| if let Op::Embed { tables, .. } = &node.op { &tables[..] } else { &[] });
        let looked_up = tables.filter(|(_, lookup)| matches!(lookup, Lookup::Id(id) if id.value == value));
        looked_up.map(|(table, _)| self.weight(*table).rows).min()
    }
}
