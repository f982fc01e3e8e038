//! Lowers maps: encodes an elementwise program as words that the map kernel interprets, with a slot assigned to each
//! live value.

use super::Lowering;
use super::rows::number;
use crate::gpu::args::{Address, KernelArgs, MatrixRef};
use crate::gpu::kernel;
use crate::gpu::layout::Kind;
use crate::gpu::weights::WeightForm;
use lapwing_plan::plan::{Binary, Instruction, Node, Program, Rows, Unary, ValueId, WeightId};

/// The most arguments of a map, and the most weight rows.
const OPERANDS: usize = 8;
/// Words of an encoded step.
const WORDS: usize = 5;

/// An encoded program.
#[derive(Debug, PartialEq)]
pub(crate) struct MapCode {
    pub(crate) words: Vec<i32>,
    /// Number of slots: the most values live at once.
    pub(crate) slots: usize,
    /// The slot of the result.
    pub(crate) result: usize,
    /// The weight rows, in the order of their indices.
    pub(crate) weights: Vec<WeightId>,
}

impl MapCode {
    /// # Errors
    ///
    /// Names the function that the kernel does not have.
    pub(crate) fn of(program: &Program) -> Result<Self, String> {
        let code = program.code();
        let mut last_use = vec![0; code.len()];
        for (at, step) in code.iter().enumerate() {
            step.operands().for_each(|operand| last_use[operand] = at);
        }
        if let Some(result) = last_use.last_mut() {
            *result = usize::MAX;
        }
        let mut made = Self { words: Vec::with_capacity(WORDS * code.len()), slots: 0, result: 0, weights: Vec::new() };
        let (mut slots, mut free): (Vec<usize>, Vec<usize>) = (Vec::new(), Vec::new());
        for (at, step) in code.iter().enumerate() {
            // a step may write to the slot of an operand whose last use it is
            let mut ended: Vec<usize> = step.operands().filter(|operand| last_use[*operand] == at).collect();
            ended.sort_unstable();
            ended.dedup();
            free.extend(ended.into_iter().map(|operand| slots[operand]));
            let slot = free.pop().unwrap_or_else(|| {
                made.slots += 1;
                made.slots - 1
            });
            slots.push(slot);
            let (opcode, operands) = made.step(step, &slots)?;
            made.words.push(opcode);
            made.words.push(word(slot));
            made.words.extend(operands);
            if last_use[at] == 0 {
                free.push(slot); // its value is never read
            }
            made.result = slot;
        }
        Ok(made)
    }

    /// The opcode, as numbered in args.cu, and its operands.
    fn step(&mut self, step: &Instruction, slots: &[usize]) -> Result<(i32, [i32; 3]), String> {
        let slot = |at: usize| word(slots[at]);
        Ok(match *step {
            Instruction::Arg(place) => (0, [word(place), 0, 0]),
            Instruction::Weight(id) => {
                let known = self.weights.iter().position(|known| *known == id);
                let place = known.unwrap_or_else(|| {
                    self.weights.push(id);
                    self.weights.len() - 1
                });
                (1, [word(place), 0, 0])
            }
            Instruction::Scalar(number) => (2, [bits(number), 0, 0]),
            Instruction::Unary(op, x) => {
                let power = if let Unary::Pow(power) = op { bits(power) } else { 0 };
                (unary(op).ok_or_else(|| format!("{op:?}; the kernel has none"))?, [slot(x), power, 0])
            }
            Instruction::Binary(op, a, b) => (binary(op), [slot(a), slot(b), 0]),
            Instruction::Where(a, b, c) => (34, [slot(a), slot(b), slot(c)]),
            Instruction::Fold(fold, x) => (35, [slot(x), word(number(fold)), 0]),
        })
    }
}

impl Lowering<'_> {
    pub(crate) fn map(&mut self, node: &Node, program: &Program, args: &[ValueId]) -> Result<(), String> {
        let code = MapCode::of(program)?;
        if args.len() > OPERANDS || code.weights.len() > OPERANDS {
            return Err(format!("a program of {} arguments and {} rows of the model", args.len(), code.weights.len()));
        }
        let out = self.plan.value(node.output);
        let by_batch = |id: ValueId| out.rows == Rows::Token && self.plan.value(id).rows == Rows::Batch;
        let operands: Vec<(MatrixRef, bool, bool)> =
            args.iter().map(|id| (self.mat(*id), self.plan.value(*id).width > 1, by_batch(*id))).collect();
        let rows: Vec<(MatrixRef, bool, bool)> = code
            .weights
            .iter()
            .map(|id| {
                let at = self.form(WeightForm::Row(*id));
                (MatrixRef { at, stride: 0, kind: Kind::F32 }, self.plan.weight(*id).width > 1, false)
            })
            .collect();
        let (kernel, numbers, blocks) = if program.folds() {
            (&kernel::MAP_ROWS, out.width.next_multiple_of(32), self.most(out.rows))
        } else {
            let threads = kernel::MAP_FLAT.threads as usize;
            let blocks = (self.most(out.rows) * out.width).div_ceil(threads);
            (&kernel::MAP_FLAT, threads, blocks.min(16 * self.target.processors))
        };
        let shared = 4 * code.slots * numbers + kernel.shared as usize;
        if shared > self.target.shared_bytes {
            return Err(format!(
                "a program that needs {shared} bytes of shared memory; a block has {}",
                self.target.shared_bytes
            ));
        }
        let header = operands.iter().any(|(.., by_batch)| *by_batch).then(|| self.header());
        let steps = code.words.len() / WORDS;
        let (slots, result) = (code.slots, code.result);
        let words: Address = self.prepared.weights.code(self.plan, self.node, code.words);
        let mut fields = self.rows(KernelArgs::default(), out.rows).pointer(header).pointer(Some(words));
        for list in [&operands, &rows] {
            for at in 0..OPERANDS {
                let operand = list.get(at);
                fields = fields.mat(operand.map(|(mat, ..)| *mat));
                fields = fields.int(usize::from(operand.is_some_and(|(_, wide, _)| *wide)));
                fields = fields.int(usize::from(operand.is_some_and(|(.., by_batch)| *by_batch)));
            }
        }
        let fields = fields.mat(Some(self.mat(node.output))).tail().int(steps).int(slots).int(out.width).int(result);
        self.launch_with(kernel, (blocks, 1), u32::try_from(shared).unwrap_or(u32::MAX), fields);
        Ok(())
    }
}

fn word(number: usize) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

const fn bits(number: f32) -> i32 {
    number.to_bits().cast_signed()
}

/// The opcode of a function; `None` if the kernel does not have it.
const fn unary(op: Unary) -> Option<i32> {
    Some(match op {
        Unary::Abs => 3,
        Unary::Ceil => 4,
        Unary::Erf => 5,
        Unary::Exp => 6,
        Unary::Floor => 7,
        Unary::Log => 8,
        Unary::Neg => 9,
        Unary::Pow(_) => 10,
        Unary::Recip => 11,
        Unary::Relu => 12,
        Unary::Round => 13,
        Unary::Rsqrt => 14,
        Unary::Sigmoid => 15,
        Unary::Sqrt => 16,
        Unary::Square => 17,
        Unary::Tanh => 18,
        Unary::Gelu => 19,
        Unary::GeluTanh => 20,
        Unary::Silu => 21,
        Unary::Not => 22,
        Unary::Sin | Unary::Cos => return None,
    })
}

const fn binary(op: Binary) -> i32 {
    match op {
        Binary::Add => 23,
        Binary::Sub => 24,
        Binary::Mul => 25,
        Binary::Div => 26,
        Binary::Min => 27,
        Binary::Max => 28,
        Binary::Equal => 29,
        Binary::Less => 30,
        Binary::LessOrEqual => 31,
        Binary::Greater => 32,
        Binary::GreaterOrEqual => 33,
    }
}
