//! Elementwise chains as small programs: each instruction makes one number of numbers that stand before it.

use super::{Fold, WeightId};

/// What is done to one number. Conditions are 1 for true and 0 for false, and anything but 0 counts as true.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Unary {
    /// `|x|`
    Abs,
    /// The least integer not below.
    Ceil,
    /// The error function.
    Erf,
    /// `eˣ`; stays finite above 88.7.
    Exp,
    /// The greatest integer not above.
    Floor,
    /// The natural logarithm.
    Log,
    /// `−x`
    Neg,
    /// To the power of a number.
    Pow(f32),
    /// `1 / x`
    Recip,
    /// `max(x, 0)`
    Relu,
    /// The nearest integer, ties to even.
    Round,
    /// `1 / √x`, with the precision of a division.
    Rsqrt,
    /// `1 / (1 + exp(−x))`
    Sigmoid,
    /// The square root.
    Sqrt,
    /// `x · x`
    Square,
    /// The hyperbolic tangent.
    Tanh,
    /// `x / 2 · (1 + erf(x / √2))`
    Gelu,
    /// The same by the hyperbolic tangent.
    GeluTanh,
    /// `x · sigmoid(x)`
    Silu,
    /// 1 where it is 0, else 0.
    Not,
}

/// What is made of two numbers; comparisons make 1 or 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Binary {
    /// `a + b`
    Add,
    /// `a − b`
    Sub,
    /// `a · b`; of two conditions, both.
    Mul,
    /// `a / b`
    Div,
    /// The lesser; b where either is no number.
    Min,
    /// The greater; b where either is no number. Of two conditions, one or both.
    Max,
    /// `a = b`
    Equal,
    /// `a < b`
    Less,
    /// `a ≤ b`
    LessOrEqual,
    /// `a > b`
    Greater,
    /// `a ≥ b`
    GreaterOrEqual,
}

/// One step; operands are places of earlier steps.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Instruction {
    /// An element of the argument at this place.
    Arg(usize),
    /// An element of a row of the model, of the output's width or of width 1.
    Weight(WeightId),
    /// A number.
    Scalar(f32),
    /// Of one.
    Unary(Unary, usize),
    /// Of two.
    Binary(Binary, usize, usize),
    /// The second where the first is not 0, else the third.
    Where(usize, usize, usize),
    /// All numbers of the row at that place taken together: the same for the whole row.
    Fold(Fold, usize),
}

/// Instructions; the last one's number is the result.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Program {
    code: Vec<Instruction>,
}

impl Program {
    /// A row that is wider is not folded in a program: executors hold a row's numbers at once.
    pub const WIDEST_FOLD: usize = 2048;

    /// One instruction over arguments in their order.
    #[must_use]
    pub fn new(code: Vec<Instruction>) -> Self {
        Self { code }
    }

    /// The instructions.
    #[must_use]
    pub fn code(&self) -> &[Instruction] {
        &self.code
    }

    /// How many arguments it reads: one more than the last that it names.
    #[must_use]
    pub fn arguments(&self) -> usize {
        let place = |step: &Instruction| if let Instruction::Arg(place) = step { place + 1 } else { 0 };
        self.code.iter().map(place).max().unwrap_or(0)
    }

    /// The rows of the model that it reads.
    #[must_use]
    pub fn weights(&self) -> Vec<WeightId> {
        let weight = |step: &Instruction| if let Instruction::Weight(id) = step { Some(*id) } else { None };
        self.code.iter().filter_map(weight).collect()
    }

    /// Puts other rows of the model in the place of those that it reads.
    pub fn replace_weights(&mut self, mut put: impl FnMut(&mut WeightId)) {
        for step in &mut self.code {
            if let Instruction::Weight(id) = step {
                put(id);
            }
        }
    }

    /// Whether it takes rows together.
    #[must_use]
    pub fn folds(&self) -> bool {
        self.code.iter().any(|step| matches!(step, Instruction::Fold(..)))
    }

    /// Which instructions make a number of their own for each element of a row; the others' is the same for the whole row.
    /// `is_wide` tells which arguments and rows of the model do.
    #[must_use]
    pub fn wide(&self, is_wide: impl Fn(&Instruction) -> bool) -> Vec<bool> {
        let mut wide: Vec<bool> = Vec::with_capacity(self.code.len());
        for step in &self.code {
            wide.push(match *step {
                Instruction::Scalar(_) | Instruction::Fold(..) => false,
                Instruction::Arg(_) | Instruction::Weight(_) => is_wide(step),
                _ => step.operands().any(|operand| wide[operand]),
            });
        }
        wide
    }

    /// How many operations it does on each row of this width, of which each instruction has one number or `width`.
    #[must_use]
    pub fn operations(&self, width: usize, is_wide: impl Fn(&Instruction) -> bool) -> usize {
        let wide = self.wide(is_wide);
        let steps = self.code.iter().enumerate().map(|(at, step)| match *step {
            Instruction::Arg(_) | Instruction::Weight(_) | Instruction::Scalar(_) => 0,
            Instruction::Fold(_, of) if wide[of] => width,
            _ if wide[at] => width,
            _ => 1,
        });
        steps.sum()
    }

    /// Whether every operand stands before its use, and there is a result.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        let sound = |(at, step): (usize, &Instruction)| step.operands().all(|operand| operand < at);
        !self.code.is_empty() && self.code.iter().enumerate().all(sound)
    }

    /// This program with `inner` in the place of its argument `at`. The arguments of the outcome are this one's without `at`,
    /// then `inner`'s.
    #[must_use]
    pub fn inline(&self, at: usize, inner: &Self) -> Self {
        let own = self.arguments().saturating_sub(1);
        let mut code: Vec<_> = inner.code.iter().map(|step| step.shifted(0, |place| place + own)).collect();
        let result = code.len() - 1;
        let mut places = Vec::with_capacity(self.code.len());
        for step in &self.code {
            if *step == Instruction::Arg(at) {
                places.push(result);
                continue;
            }
            let renumbered =
                step.mapped(|operand| places[operand]).shifted(0, |place| if place > at { place - 1 } else { place });
            places.push(code.len());
            code.push(renumbered);
        }
        Self { code }
    }
}

impl Program {
    /// The same over other places of its arguments, with each step once.
    #[must_use]
    pub fn renumbered(&self, argument: impl Fn(usize) -> usize) -> Self {
        let (mut code, mut places): (Vec<Instruction>, Vec<usize>) = (Vec::new(), Vec::new());
        for step in &self.code {
            let step = step.mapped(|operand| places[operand]).shifted(0, &argument);
            // a number that is none is not equal to itself, and stays twice
            places.push(code.iter().position(|known| *known == step).unwrap_or_else(|| {
                code.push(step);
                code.len() - 1
            }));
        }
        // the result stands last
        if let (Some(result), Some(last)) = (places.last(), code.len().checked_sub(1))
            && *result != last
        {
            return Self { code: self.code.iter().map(|step| step.shifted(0, &argument)).collect() };
        }
        Self { code }
    }
}

impl Instruction {
    /// The places that it reads.
    pub fn operands(&self) -> impl Iterator<Item = usize> + use<> {
        let places = match *self {
            Self::Arg(_) | Self::Weight(_) | Self::Scalar(_) => [None; 3],
            Self::Unary(_, x) | Self::Fold(_, x) => [Some(x), None, None],
            Self::Binary(_, a, b) => [Some(a), Some(b), None],
            Self::Where(a, b, c) => [Some(a), Some(b), Some(c)],
        };
        places.into_iter().flatten()
    }

    /// With other operands.
    fn mapped(self, place: impl Fn(usize) -> usize) -> Self {
        match self {
            Self::Unary(op, x) => Self::Unary(op, place(x)),
            Self::Binary(op, a, b) => Self::Binary(op, place(a), place(b)),
            Self::Where(a, b, c) => Self::Where(place(a), place(b), place(c)),
            Self::Fold(fold, x) => Self::Fold(fold, place(x)),
            other => other,
        }
    }

    /// With operands so many places on, and other arguments.
    fn shifted(self, by: usize, argument: impl Fn(usize) -> usize) -> Self {
        match self.mapped(|place| place + by) {
            Self::Arg(place) => Self::Arg(argument(place)),
            other => other,
        }
    }
}
