//! A reference interpreter of plans in double precision, which follows the definition of each operation. Executors are
//! compared with it, and it shows errors of lowering.

use lapwing_plan::plan::{Activation, Angles, Binary, Columns, Fold, Instruction, Lookup, Norm, Op, Plan, Rows, Unary, ValueId};

/// Values by index; rows are contiguous.
pub(crate) type Values = Vec<Vec<f64>>;

/// The outputs for a batch of sequences of these lengths. Inputs are in the order of the plan's.
pub(crate) fn run(plan: &Plan, lengths: &[usize], inputs: &[Vec<f64>]) -> Vec<Vec<f64>> {
    run_with_past(plan, lengths, &vec![0; lengths.len()], inputs)
}

/// The same with pasts of these lengths.
pub(crate) fn run_with_past(plan: &Plan, lengths: &[usize], pasts: &[usize], inputs: &[Vec<f64>]) -> Vec<Vec<f64>> {
    let mut values: Values = vec![Vec::new(); plan.values.len()];
    for (port, input) in plan.inputs.iter().zip(inputs) {
        values[port.value.0].clone_from(input);
    }
    let mut sequence = Vec::new();
    for (at, length) in lengths.iter().enumerate() {
        sequence.extend((0..*length).map(|position| (at, position)));
    }
    let naive = Naive { plan, lengths, pasts, sequence };
    for node in &plan.nodes {
        values[node.output.0] = naive.node(&node.op, node.output, &values);
    }
    plan.outputs.iter().map(|port| values[port.value.0].clone()).collect()
}

struct Naive<'a> {
    plan: &'a Plan,
    lengths: &'a [usize],
    pasts: &'a [usize],
    /// The sequence of each token, and its position there.
    sequence: Vec<(usize, usize)>,
}

impl Naive<'_> {
    fn rows(&self, rows: Rows) -> usize {
        let past = self.pasts.iter().sum::<usize>();
        match rows {
            Rows::Batch => self.lengths.len(),
            Rows::Token => self.sequence.len(),
            Rows::Past => past,
            Rows::Context => past + self.sequence.len(),
        }
    }

    /// The sequence of a token of the context.
    fn of_context(&self, row: usize) -> usize {
        let mut end = 0;
        let is_before = |(length, past): &(&usize, &usize)| {
            end += **length + **past;
            end <= row
        };
        self.lengths.iter().zip(self.pasts).take_while(is_before).count()
    }

    fn weight(&self, id: lapwing_plan::plan::WeightId, row: usize, column: usize) -> f64 {
        let weight = self.plan.weight(id);
        f64::from(weight.data[row * weight.width + if weight.width == 1 { 0 } else { column }])
    }

    /// A normalised row.
    fn normed(&self, row: &[f64], norm: &Norm) -> Vec<f64> {
        let mean = row.iter().sum::<f64>() / row.len() as f64;
        let variance = row.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / row.len() as f64;
        let by = 1.0 / (variance + f64::from(norm.epsilon)).sqrt();
        let of = |(c, x): (usize, &f64)| {
            let scaled = (x - mean) * by * norm.scale.map_or(1.0, |id| self.weight(id, 0, c));
            scaled + norm.shift.map_or(0.0, |id| self.weight(id, 0, c))
        };
        row.iter().enumerate().map(of).collect()
    }

    #[expect(clippy::too_many_lines, reason = "one arm for each operation")]
    fn node(&self, op: &Op, output: ValueId, values: &Values) -> Vec<f64> {
        let out = self.plan.value(output);
        let (rows, width) = (self.rows(out.rows), out.width);
        let at = |id: ValueId, row: usize, column: usize| values[id.0][row * self.plan.value(id).width + column];
        let each = |of: &dyn Fn(usize, usize) -> f64| -> Vec<f64> {
            (0..rows * width).map(|index| of(index / width, index % width)).collect()
        };
        let row_of = |id: ValueId, row: usize| -> Vec<f64> { (0..self.plan.value(id).width).map(|c| at(id, row, c)).collect() };
        match op {
            Op::Gemm { x, weight, bias, activation, residual } => each(&|row, column| {
                let k = self.plan.weight(*weight).rows;
                let sum: f64 = (0..k).map(|i| at(*x, row, i) * self.weight(*weight, i, column)).sum();
                let sum = sum + bias.map_or(0.0, |bias| self.weight(bias, 0, column));
                activated(*activation, sum) + residual.map_or(0.0, |id| at(id, row, column))
            }),
            Op::Embed { tables, norm } => {
                let sums = each(&|row, column| {
                    let looked = tables.iter().map(|(table, lookup)| {
                        let place = match lookup {
                            Lookup::Id(id) => at(id.value, row, id.from) as i64,
                            Lookup::Position(from) => (self.sequence[row].1 + from) as i64,
                        };
                        let place = if place < 0 { place + self.plan.weight(*table).rows as i64 } else { place };
                        self.weight(*table, place as usize, column)
                    });
                    looked.sum()
                });
                let Some(norm) = norm else { return sums };
                sums.chunks(width).flat_map(|row| self.normed(row, norm)).collect()
            }
            Op::LayerNorm { x, residual, epsilon, scale, shift } => (0..rows)
                .flat_map(|row| {
                    let mut sums = row_of(*x, row);
                    if let Some(residual) = residual {
                        sums.iter_mut().zip(row_of(*residual, row)).for_each(|(sum, more)| *sum += more);
                    }
                    self.normed(&sums, &Norm { epsilon: *epsilon, scale: *scale, shift: *shift })
                })
                .collect(),
            Op::RmsNorm { x, epsilon, scale } => each(&|row, column| {
                let square = row_of(*x, row).iter().map(|x| x * x).sum::<f64>() / width as f64;
                at(*x, row, column) / (square + f64::from(*epsilon)).sqrt() * scale.map_or(1.0, |id| self.weight(id, 0, column))
            }),
            Op::Softmax(x) => (0..rows).flat_map(|row| softmax(&row_of(*x, row))).collect(),
            Op::Attention { q, k, v, heads, key_heads, head, head_out, scale, bias, by_distance, is_zero_if_masked } => {
                let mut out = vec![0.0; rows * width];
                let of = |columns: &Columns, row: usize, column: usize| at(columns.value, row, columns.from + column);
                let is_of_context = self.plan.value(k.value).rows == Rows::Context;
                let (mut first, mut first_key) = (0, 0);
                for (length, past) in self.lengths.iter().zip(self.pasts) {
                    let past = if is_of_context { *past } else { 0 };
                    let (keys, tokens) = (first_key..first_key + past + length, first..first + length);
                    // keys and values of a context lie by head
                    let by_head = |columns: &Columns, key: usize, h: usize, size: usize, c: usize| {
                        let place = keys.start * key_heads * size + (h * keys.len() + key - keys.start) * size + c;
                        if is_of_context { values[columns.value.0][place] } else { of(columns, key, h * size + c) }
                    };
                    for (h, row) in (0..*heads).flat_map(|h| tokens.clone().map(move |row| (h, row))) {
                        let own = h / (heads / key_heads);
                        let score = |key: usize| {
                            let product: f64 =
                                (0..*head).map(|c| of(q, row, h * head + c) * by_head(k, key, own, *head, c)).sum();
                            let by_distance = by_distance.map_or(0.0, |id| {
                                let query = keys.start + past + row - tokens.start;
                                let (table, distance) = (self.plan.weight(id), key as i64 - query as i64);
                                let reach = (table.width / 2) as i64;
                                self.weight(id, h % table.rows, (distance.clamp(-reach, reach) + reach) as usize)
                            });
                            let score = product * f64::from(*scale) + bias.map_or(0.0, |id| at(id, key, 0)) + by_distance;
                            score.max(f32::MIN.into())
                        };
                        let scores: Vec<f64> = keys.clone().map(score).collect();
                        if *is_zero_if_masked && scores.iter().all(|score| *score <= f32::MIN.into()) {
                            continue;
                        }
                        let shares = softmax(&scores);
                        for c in 0..*head_out {
                            let sum =
                                keys.clone().zip(&shares).map(|(key, share)| share * by_head(v, key, own, *head_out, c)).sum();
                            out[row * width + h * head_out + c] = sum;
                        }
                    }
                    first += length;
                    first_key = keys.end;
                }
                out
            }
            Op::Append { past, new: Columns { value: new_value, from: new_from }, heads, head } => {
                let mut out = Vec::with_capacity(rows * width);
                let (mut first, mut first_past) = (0, 0);
                for (length, past_length) in self.lengths.iter().zip(self.pasts) {
                    for h in 0..*heads {
                        let begin = first_past * width + h * past_length * head;
                        out.extend(&values[past.0][begin..begin + past_length * head]);
                        let new = (first..first + length).flat_map(|row| (0..*head).map(move |c| (row, c)));
                        out.extend(new.map(|(row, c)| at(*new_value, row, *new_from + h * head + c)));
                    }
                    (first, first_past) = (first + length, first_past + past_length);
                }
                out
            }
            Op::Rotate { x, heads, head, angles } => each(&|row, column| {
                let (position, c) = (self.sequence[row].1, column % head);
                let turned = if c < head / 2 { column + head / 2 } else { column - head / 2 };
                let sign = if c < head / 2 { -1.0 } else { 1.0 };
                debug_assert!(column < heads * head);
                let [cos, sin] = match angles {
                    Angles::ByPosition { cos, sin } => [*cos, *sin].map(|id| self.weight(id, position, c)),
                    Angles::ByToken { cos, sin } => [*cos, *sin].map(|id| at(id, row, c)),
                };
                at(x.value, row, x.from + column) * cos + sign * at(x.value, row, x.from + turned) * sin
            }),
            Op::Map { program, args } => {
                // one row at a time, each step for all columns
                let mapped = |row: usize| {
                    let mut steps: Vec<Vec<f64>> = Vec::new();
                    for step in program.code() {
                        let number = |column: usize| match *step {
                            Instruction::Arg(place) => {
                                let value = self.plan.value(args[place]);
                                let row = match (value.rows, out.rows) {
                                    (Rows::Batch, Rows::Token) => self.sequence[row].0,
                                    (Rows::Batch, Rows::Context) => self.of_context(row),
                                    _ => row,
                                };
                                at(args[place], row, if value.width == 1 { 0 } else { column })
                            }
                            Instruction::Weight(id) => self.weight(id, 0, column),
                            Instruction::Scalar(number) => f64::from(number),
                            Instruction::Unary(op, x) => unary(op, steps[x][column]),
                            Instruction::Binary(op, a, b) => binary(op, steps[a][column], steps[b][column]),
                            Instruction::Where(a, _, c) if steps[a][column] == 0.0 => steps[c][column],
                            Instruction::Where(_, b, _) => steps[b][column],
                            Instruction::Fold(fold, x) => folded(fold, &steps[x]),
                        };
                        steps.push((0..width).map(number).collect());
                    }
                    steps.pop().unwrap_or_default()
                };
                (0..rows).flat_map(mapped).collect()
            }
            Op::Reduce { x, fold } => (0..rows).map(|row| folded(*fold, &row_of(*x, row))).collect(),
            Op::Pool { x, fold } => each(&|row, column| {
                let tokens = self.sequence.iter().enumerate().filter(|(_, (sequence, _))| *sequence == row);
                folded(*fold, &tokens.map(|(token, _)| at(*x, token, column)).collect::<Vec<_>>())
            }),
            Op::MeanPool { x, weights, at_least } => each(&|row, column| {
                let tokens = || self.sequence.iter().enumerate().filter(|(_, (sequence, _))| *sequence == row);
                let sum: f64 = tokens().map(|(token, _)| at(*x, token, column) * at(*weights, token, 0)).sum();
                sum / tokens().map(|(token, _)| at(*weights, token, 0)).sum::<f64>().max(f64::from(*at_least))
            }),
            Op::CumSum(x) => each(&|row, column| (row - self.sequence[row].1..=row).map(|row| at(*x, row, column)).sum()),
            Op::Concat(parts) => (0..rows).flat_map(|row| parts.iter().flat_map(move |id| row_of(*id, row))).collect(),
            Op::Slice(columns) => each(&|row, column| at(columns.value, row, columns.from + column)),
        }
    }
}

fn softmax(row: &[f64]) -> Vec<f64> {
    let greatest = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let powers: Vec<f64> = row.iter().map(|x| (x - greatest).exp()).collect();
    let sum: f64 = powers.iter().sum();
    powers.iter().map(|x| x / sum).collect()
}

fn folded(fold: Fold, row: &[f64]) -> f64 {
    match fold {
        Fold::Sum => row.iter().sum(),
        Fold::Max => row.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        Fold::Min => row.iter().copied().fold(f64::INFINITY, f64::min),
        Fold::First => row[0],
        Fold::Mean => row.iter().sum::<f64>() / row.len() as f64,
    }
}

fn activated(activation: Activation, x: f64) -> f64 {
    match activation {
        Activation::None => x,
        Activation::Relu => x.max(0.0),
        Activation::Gelu => unary(Unary::Gelu, x),
        Activation::GeluTanh => unary(Unary::GeluTanh, x),
        Activation::Sigmoid => unary(Unary::Sigmoid, x),
        Activation::Tanh => x.tanh(),
        Activation::Silu => unary(Unary::Silu, x),
    }
}

/// The error function by its series, and by a continued fraction where the series converges slowly.
fn erf(x: f64) -> f64 {
    if x.abs() > 2.0 {
        let rest = (1..=100).rev().fold(0.0, |rest, n| f64::from(n) / 2.0 / (x.abs() + rest));
        let tail = (-x * x).exp() * std::f64::consts::FRAC_2_SQRT_PI / 2.0 / (x.abs() + rest);
        return x.signum() * (1.0 - tail);
    }
    let (mut term, mut sum) = (x, x);
    for n in 1..60 {
        term *= -x * x / f64::from(n);
        sum += term / f64::from(2 * n + 1);
    }
    sum * std::f64::consts::FRAC_2_SQRT_PI
}

fn unary(op: Unary, x: f64) -> f64 {
    match op {
        Unary::Abs => x.abs(),
        Unary::Ceil => x.ceil(),
        Unary::Erf => erf(x),
        Unary::Exp => x.exp(),
        Unary::Floor => x.floor(),
        Unary::Log => x.ln(),
        Unary::Neg => -x,
        Unary::Pow(exponent) => x.powf(f64::from(exponent)),
        Unary::Recip => 1.0 / x,
        Unary::Relu => x.max(0.0),
        Unary::Round => x.round_ties_even(),
        Unary::Rsqrt => 1.0 / x.sqrt(),
        Unary::Sigmoid => 1.0 / (1.0 + (-x).exp()),
        Unary::Sqrt => x.sqrt(),
        Unary::Square => x * x,
        Unary::Tanh => x.tanh(),
        Unary::Gelu => x / 2.0 * (1.0 + erf(x * std::f64::consts::FRAC_1_SQRT_2)),
        Unary::GeluTanh => x / 2.0 * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x.powi(3))).tanh()),
        Unary::Silu => x / (1.0 + (-x).exp()),
        Unary::Not => f64::from(u8::from(x == 0.0)),
        Unary::Sin => x.sin(),
        Unary::Cos => x.cos(),
    }
}

fn binary(op: Binary, a: f64, b: f64) -> f64 {
    let truth = |holds: bool| f64::from(u8::from(holds));
    match op {
        Binary::Add => a + b,
        Binary::Sub => a - b,
        Binary::Mul => a * b,
        Binary::Div => a / b,
        Binary::Min => a.min(b),
        Binary::Max => a.max(b),
        Binary::Equal => truth(a == b),
        Binary::Less => truth(a < b),
        Binary::LessOrEqual => truth(a <= b),
        Binary::Greater => truth(a > b),
        Binary::GreaterOrEqual => truth(a >= b),
    }
}
