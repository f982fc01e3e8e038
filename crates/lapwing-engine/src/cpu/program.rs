//! Elementwise programs: a chain of operators as one list of instructions, each naming the values it reads. A
//! [`CpuProgram`] is validated when it is created, so running it (`map`) only has to check the lengths of its arguments.

use std::sync::Arc;

use lapwing_plan::plan::{self, Binary, Fold, Unary};

/// The most instructions of a program; a longer chain is split into two programs.
pub const MAX_INSTRUCTIONS: usize = 64;

/// One step. Values are named by the index of the instruction that makes them, which must be an earlier one.
#[derive(Debug, Clone, PartialEq)]
pub enum CpuInstruction {
    /// The program's argument with this index, as f32.
    Arg(usize),
    /// The same values in each row: as many as the program's width, or one.
    Row(Arc<[f32]>),
    /// One value everywhere.
    Scalar(f32),
    /// A function of one value.
    Unary(Unary, usize),
    /// A function of two values, broadcast to one another.
    Binary(Binary, usize, usize),
    /// `[condition, yes, no]`: `yes` where the condition is not 0, else `no`.
    Where([usize; 3]),
    /// A reduction over all values of a row.
    Fold(Fold, usize),
}

/// The shape of an argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArgShape {
    /// The program's width, or 1: broadcast over the columns.
    pub width: usize,
    /// Whether it has one row for each sequence, broadcast to the sequence's tokens, instead of one for each row.
    pub per_sequence: bool,
}

/// Why a list of instructions is not a valid program.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProgramError {
    /// The width is 0.
    #[error("a program needs a width of at least 1")]
    Width,
    /// Too many instructions.
    #[error("{got} instructions, a program has {MAX_INSTRUCTIONS} at most")]
    TooLong {
        /// Number of instructions.
        got: usize,
    },
    /// A value is read before it is made.
    #[error("instruction {at} reads value {value}, which comes after it")]
    Order {
        /// The instruction.
        at: usize,
        /// The value.
        value: usize,
    },
    /// An argument does not exist.
    #[error("instruction {at} reads argument {arg} of {args}")]
    Arg {
        /// The instruction.
        at: usize,
        /// The argument's index.
        arg: usize,
        /// Number of arguments.
        args: usize,
    },
    /// The width of an argument or constant is neither 1 nor the program's width.
    #[error("{what} {at} has width {got}, not 1 or {width}")]
    Broadcast {
        /// `argument` or `instruction`.
        what: &'static str,
        /// Its index.
        at: usize,
        /// Its width.
        got: usize,
        /// The program's width.
        width: usize,
    },
    /// The rows are too wide for a fold.
    #[error("instruction {at} takes rows of {width} together, {} is the most", plan::Program::WIDEST_FOLD)]
    Fold {
        /// The instruction.
        at: usize,
        /// The program's width.
        width: usize,
    },
    /// An output names a value that does not exist, or there is no output.
    #[error("output {at} is not the value of an instruction")]
    Output {
        /// The output's index.
        at: usize,
    },
}

/// How a value varies. Both: one value for each element; neither: one value for all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Variation {
    pub(crate) by_row: bool,
    pub(crate) by_column: bool,
}

impl Variation {
    fn join(self, other: Variation) -> Variation {
        Variation { by_row: self.by_row || other.by_row, by_column: self.by_column || other.by_column }
    }
}

/// A validated elementwise program over rows of a fixed width.
#[derive(Debug, Clone, PartialEq)]
pub struct CpuProgram {
    pub(crate) width: usize,
    pub(crate) args: Vec<ArgShape>,
    pub(crate) instructions: Vec<CpuInstruction>,
    pub(crate) outputs: Vec<usize>,
    /// How each instruction's value varies.
    pub(crate) varies: Vec<Variation>,
    /// The index of the temporary that holds each instruction's value; values whose lifetimes do not overlap share one.
    pub(crate) slots: Vec<usize>,
    pub(crate) slot_count: usize,
    /// The output that an instruction writes directly instead of its slot, if its value is exactly that output.
    pub(crate) direct: Vec<Option<usize>>,
}

impl CpuProgram {
    /// Validates the instructions. `outputs` are the values to write out, in this order.
    ///
    /// # Errors
    /// Names the first instruction, argument or output that is wrong.
    pub fn new(
        width: usize,
        args: Vec<ArgShape>,
        instructions: Vec<CpuInstruction>,
        outputs: Vec<usize>,
    ) -> Result<CpuProgram, ProgramError> {
        if width == 0 {
            return Err(ProgramError::Width);
        }
        if instructions.len() > MAX_INSTRUCTIONS {
            return Err(ProgramError::TooLong { got: instructions.len() });
        }
        let fits = |what, at, got| {
            if got == 1 || got == width { Ok(()) } else { Err(ProgramError::Broadcast { what, at, got, width }) }
        };
        for (at, arg) in args.iter().enumerate() {
            fits("argument", at, arg.width)?;
        }
        let mut varies: Vec<Variation> = Vec::with_capacity(instructions.len());
        for (at, instruction) in instructions.iter().enumerate() {
            let nowhere = Variation { by_row: false, by_column: false };
            varies.push(match instruction {
                CpuInstruction::Arg(arg) => {
                    let shape = args.get(*arg).ok_or(ProgramError::Arg { at, arg: *arg, args: args.len() })?;
                    Variation { by_row: true, by_column: shape.width > 1 }
                }
                CpuInstruction::Row(row) => {
                    fits("instruction", at, row.len())?;
                    Variation { by_column: row.len() > 1, ..nowhere }
                }
                CpuInstruction::Fold(_, of) => {
                    if width > plan::Program::WIDEST_FOLD {
                        return Err(ProgramError::Fold { at, width });
                    }
                    Variation { by_column: false, ..*varies.get(*of).ok_or(ProgramError::Order { at, value: *of })? }
                }
                _ => reads(instruction).try_fold(nowhere, |all, value| match varies.get(value) {
                    Some(one) => Ok(all.join(*one)),
                    None => Err(ProgramError::Order { at, value }),
                })?,
            });
        }
        if let Some(at) = outputs.iter().position(|&o| o >= instructions.len()).or(outputs.is_empty().then_some(0)) {
            return Err(ProgramError::Output { at });
        }
        let direct = (0..instructions.len())
            .map(|i| {
                outputs.iter().position(|&o| o == i).filter(|_| varies[i].by_row && reads(&instructions[i]).next().is_some())
            })
            .collect();
        let (slots, slot_count) = assign(&instructions, &outputs);
        Ok(CpuProgram { width, args, instructions, outputs, varies, slots, slot_count, direct })
    }

    /// Values in a row.
    #[must_use]
    pub fn width(&self) -> usize {
        self.width
    }

    /// Width of each output: the program's, or 1 for a value that does not vary by column.
    pub fn output_widths(&self) -> impl Iterator<Item = usize> + '_ {
        self.outputs.iter().map(|&o| if self.varies[o].by_column { self.width } else { 1 })
    }

    /// Number of values that all instructions compute for each row; counted as other operations.
    #[must_use]
    pub fn ops_per_row(&self) -> usize {
        let computed = self.instructions.iter().zip(&self.varies).filter(|(i, v)| reads(i).next().is_some() && v.by_row);
        let each = |(i, v): (&CpuInstruction, &Variation)| match i {
            CpuInstruction::Fold(_, of) if self.varies[*of].by_column => self.width,
            _ if v.by_column => self.width,
            _ => 1,
        };
        computed.map(each).sum()
    }
}

/// The values that an instruction reads.
pub(crate) fn reads(instruction: &CpuInstruction) -> impl Iterator<Item = usize> + use<> {
    let values = match *instruction {
        CpuInstruction::Arg(_) | CpuInstruction::Row(_) | CpuInstruction::Scalar(_) => [None; 3],
        CpuInstruction::Unary(_, a) | CpuInstruction::Fold(_, a) => [Some(a), None, None],
        CpuInstruction::Binary(_, a, b) => [Some(a), Some(b), None],
        CpuInstruction::Where([c, y, n]) => [Some(c), Some(y), Some(n)],
    };
    values.into_iter().flatten()
}

/// Assigns a temporary to each value. It is reused after the value's last read; outputs live to the end.
fn assign(instructions: &[CpuInstruction], outputs: &[usize]) -> (Vec<usize>, usize) {
    let mut last: Vec<usize> = (0..instructions.len()).collect();
    for (at, instruction) in instructions.iter().enumerate() {
        for value in reads(instruction) {
            last[value] = at;
        }
    }
    for &output in outputs {
        last[output] = usize::MAX;
    }
    // when each temporary is free again: an instruction never writes what it reads, so that its loops may run in any
    // order
    let mut busy_until: Vec<usize> = Vec::new();
    let mut slots = Vec::with_capacity(instructions.len());
    for (at, &end) in last.iter().enumerate() {
        let slot = busy_until.iter().position(|&until| until < at).unwrap_or_else(|| {
            busy_until.push(0);
            busy_until.len() - 1
        });
        busy_until[slot] = end;
        slots.push(slot);
    }
    (slots, busy_until.len())
}
