//! Elementwise programs: each instruction computes one value from values of earlier instructions.

use super::value::WeightId;

/// A reduction over rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fold {
    /// The sum.
    Sum,
    /// The maximum.
    Max,
    /// The minimum.
    Min,
    /// The first.
    First,
    /// The mean.
    Mean,
}

/// A function of one value. Conditions are 1 for true and 0 for false; any value but 0 counts as true.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Unary {
    /// `|x|`
    Abs,
    /// Rounds up to an integer.
    Ceil,
    /// The error function.
    Erf,
    /// `eˣ`; stays finite above 88.7.
    Exp,
    /// Rounds down to an integer.
    Floor,
    /// The natural logarithm.
    Log,
    /// `−x`
    Neg,
    /// Raises to a constant power.
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
    /// The same with the tanh approximation.
    GeluTanh,
    /// `x · sigmoid(x)`
    Silu,
    /// 1 where x is 0, else 0.
    Not,
    /// The sine of an angle in radians.
    Sin,
    /// The cosine of an angle in radians.
    Cos,
}

/// A function of two values; comparisons give 1 or 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Binary {
    /// `a + b`
    Add,
    /// `a − b`
    Sub,
    /// `a · b`; of two conditions, their conjunction.
    Mul,
    /// `a / b`
    Div,
    /// The smaller; b where either is NaN.
    Min,
    /// The larger; b where either is NaN. Of two conditions, their disjunction.
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

/// One instruction; operands are indices of earlier instructions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Instruction {
    /// An element of the argument with this index.
    Arg(usize),
    /// An element of a weight row, of the output's width or of width 1.
    Weight(WeightId),
    /// A constant.
    Scalar(f32),
    /// A function of one operand.
    Unary(Unary, usize),
    /// A function of two operands.
    Binary(Binary, usize, usize),
    /// The second operand where the first is not 0, else the third.
    Where(usize, usize, usize),
    /// A reduction over the row, the same value for all of its elements.
    Fold(Fold, usize),
}

/// A list of instructions; the last one's value is the result.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Program {
    code: Vec<Instruction>,
}

impl Program {
    /// The widest row that a program may fold: executors hold the values of a row at once.
    pub const WIDEST_FOLD: usize = 2048;

    /// A program of these instructions.
    #[must_use]
    pub fn new(code: Vec<Instruction>) -> Self {
        Self { code }
    }

    /// The instructions.
    #[must_use]
    pub fn code(&self) -> &[Instruction] {
        &self.code
    }

    /// The number of arguments: one more than the highest index that it reads.
    #[must_use]
    pub fn arguments(&self) -> usize {
        let place = |step: &Instruction| if let Instruction::Arg(place) = step { place + 1 } else { 0 };
        self.code.iter().map(place).max().unwrap_or(0)
    }

    /// The weight rows that it reads.
    #[must_use]
    pub fn weights(&self) -> Vec<WeightId> {
        let weight = |step: &Instruction| if let Instruction::Weight(id) = step { Some(*id) } else { None };
        self.code.iter().filter_map(weight).collect()
    }

    /// Replaces the weight rows that it reads.
    pub fn replace_weights(&mut self, mut put: impl FnMut(&mut WeightId)) {
        for step in &mut self.code {
            if let Instruction::Weight(id) = step {
                put(id);
            }
        }
    }

    /// Whether it has folds.
    #[must_use]
    pub fn folds(&self) -> bool {
        self.code.iter().any(|step| matches!(step, Instruction::Fold(..)))
    }

    /// Which instructions have a value for each element of a row; the others have one value for the whole row.
    /// `is_wide` says the same of arguments and weight rows.
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

    /// The number of operations on each row of this width: an instruction counts as one or `width`.
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

    /// Whether every operand comes before its use, and there is a result.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        let sound = |(at, step): (usize, &Instruction)| step.operands().all(|operand| operand < at);
        !self.code.is_empty() && self.code.iter().enumerate().all(sound)
    }

    /// This program with `inner` inlined for its argument `at`. The new arguments are this one's without `at`, then
    /// `inner`'s.
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
    /// The same program with renumbered arguments, and each step only once.
    #[must_use]
    pub fn renumbered(&self, argument: impl Fn(usize) -> usize) -> Self {
        let (mut code, mut places): (Vec<Instruction>, Vec<usize>) = (Vec::new(), Vec::new());
        for step in &self.code {
            let step = step.mapped(|operand| places[operand]).shifted(0, &argument);
            // NaN is not equal to itself, and is not merged
            places.push(code.iter().position(|known| *known == step).unwrap_or_else(|| {
                code.push(step);
                code.len() - 1
            }));
        }
        // the result must be last
        if let (Some(result), Some(last)) = (places.last(), code.len().checked_sub(1))
            && *result != last
        {
            return Self { code: self.code.iter().map(|step| step.shifted(0, &argument)).collect() };
        }
        Self { code }
    }
}

impl Instruction {
    /// The indices that it reads.
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

    /// With operand indices shifted by `by`, and renumbered arguments.
    fn shifted(self, by: usize, argument: impl Fn(usize) -> usize) -> Self {
        match self.mapped(|place| place + by) {
            Self::Arg(place) => Self::Arg(argument(place)),
            other => other,
        }
    }
}
