//! Arithmetic with lengths. Every result is simplified, and no larger than it may be: what is too deep, or has a number beyond 32 bits,
//! becomes a length of which nothing is known, so that nothing wraps and no file makes expressions grow.

use rten_shape_inference::SymbolGen;

use crate::shaped::Length;

/// The deepest expression that is kept.
const DEEPEST: u32 = 8;

/// Makes lengths.
pub(crate) struct Symbols(SymbolGen);

impl Symbols {
    /// Names that no axis of an input has: those are letters, digits and signs of arithmetic.
    pub(crate) fn new() -> Self {
        Self(SymbolGen::with_prefix("?".into()))
    }

    /// A length of which nothing is known.
    pub(crate) fn fresh(&mut self) -> Length {
        self.0.gen_positive()
    }

    /// Lengths of which nothing is known.
    pub(crate) fn some(&mut self, rank: usize) -> Vec<Length> {
        (0..rank).map(|_| self.fresh()).collect()
    }

    /// A length of this number.
    pub(crate) fn of(&mut self, number: i64) -> Length {
        i32::try_from(number).map_or_else(|_| self.fresh(), Length::Value)
    }

    /// The lengths of these numbers.
    pub(crate) fn shape(&mut self, lengths: &[usize]) -> Vec<Length> {
        lengths.iter().map(|length| self.of(i64::try_from(*length).unwrap_or(i64::MAX))).collect()
    }

    fn settled(&mut self, length: &Length) -> Length {
        if magnitude(length) > f64::from(i32::MAX) {
            return self.fresh();
        }
        let simple = length.simplify();
        if simple.exceeds_depth(DEEPEST) { self.fresh() } else { simple }
    }

    /// Computes with numbers where both are, else with expressions.
    fn combined(
        &mut self,
        (a, b): (&Length, &Length),
        numbers: impl FnOnce(i64, i64) -> Option<i64>,
        expression: impl FnOnce(Length, Length) -> Length,
    ) -> Length {
        match (a, b) {
            (Length::Value(x), Length::Value(y)) => match numbers((*x).into(), (*y).into()) {
                Some(number) => self.of(number),
                None => self.fresh(),
            },
            _ => self.settled(&expression(a.clone(), b.clone())),
        }
    }

    pub(crate) fn add(&mut self, a: &Length, b: &Length) -> Length {
        self.combined((a, b), |a, b| Some(a + b), |a, b| a + b)
    }

    pub(crate) fn sub(&mut self, a: &Length, b: &Length) -> Length {
        self.combined((a, b), |a, b| Some(a - b), |a, b| a - b)
    }

    pub(crate) fn mul(&mut self, a: &Length, b: &Length) -> Length {
        if [a, b].into_iter().any(|length| *length == Length::Value(0)) {
            return Length::Value(0);
        }
        self.combined((a, b), |a, b| Some(a * b), |a, b| a * b)
    }

    /// The quotient, rounded as whole numbers of a computer are.
    pub(crate) fn div(&mut self, a: &Length, b: &Length) -> Length {
        match (a, b) {
            (Length::Value(_), Length::Value(_)) => self.combined((a, b), i64::checked_div, |a, _| a),
            (_, Length::Value(0)) => self.fresh(),
            _ => self.quotient(&[a], &[b]),
        }
    }

    pub(crate) fn div_ceil(&mut self, a: &Length, b: &Length) -> Length {
        let up = |a: i64, b: i64| (b > 0).then(|| a.div_euclid(b) + i64::from(a.rem_euclid(b) > 0));
        match b {
            Length::Value(1) => a.clone(),
            Length::Value(2..) => self.combined((a, b), up, |a, b| a.div_ceil(&b)),
            _ => self.fresh(),
        }
    }

    pub(crate) fn min(&mut self, a: &Length, b: &Length) -> Length {
        self.combined((a, b), |a, b| Some(a.min(b)), |a, b| a.min(&b))
    }

    pub(crate) fn max(&mut self, a: &Length, b: &Length) -> Length {
        self.combined((a, b), |a, b| Some(a.max(b)), |a, b| a.max(&b))
    }

    /// The product of lengths.
    pub(crate) fn product(&mut self, lengths: &[Length]) -> Length {
        lengths.iter().fold(Length::Value(1), |product, length| self.mul(&product, length))
    }

    /// The length that two broadcast to; `None` if they cannot.
    ///
    /// Where a call succeeds, both are equal or one of them is 1. So the result is the one that cannot be 1, if there is one, and a slice
    /// that was cut to its table's end is as long as what it is added to.
    pub(crate) fn broadcast(&mut self, a: &Length, b: &Length) -> Option<Length> {
        match (a, b) {
            (a, b) if a == b => Some(a.clone()),
            (Length::Value(1), other) | (other, Length::Value(1)) => Some(other.clone()),
            (Length::Value(_), Length::Value(_)) => None,
            (Length::Value(number), _) | (_, Length::Value(number)) => Some(Length::Value(*number)),
            (cut, whole) | (whole, cut) if self.is_cut(cut, whole) => Some(whole.clone()),
            (a, b) => Some(self.settled(&a.broadcast(b))),
        }
    }

    /// Whether `cut` is what is left of `whole` at the end of a table: `min(whole, 512)`, or `min(whole + 3, 512) - 3`.
    fn is_cut(&mut self, cut: &Length, whole: &Length) -> bool {
        let is_bounded = |length: &Length, by: &Length| match length {
            Length::Min(a, b) => **a == *by || **b == *by,
            _ => false,
        };
        match cut {
            Length::Min(..) => is_bounded(cut, whole),
            Length::Add(a, b) => [(a, b), (b, a)].into_iter().any(|(least, rest)| {
                let Length::Min(x, y) = &**least else { return false };
                [x, y].into_iter().any(|side| self.add(side, rest) == *whole)
            }),
            _ => false,
        }
    }

    /// The quotient of two products, of which common factors are taken away.
    pub(crate) fn quotient(&mut self, above: &[&Length], below: &[&Length]) -> Length {
        let (mut number, mut factors) = factors(above);
        let (mut divisor, mut divisors) = self::factors(below);
        factors.retain(|factor| match divisors.iter().position(|other| *other == *factor) {
            Some(at) => {
                divisors.swap_remove(at);
                false
            }
            None => true,
        });
        if divisor != 0 && number % divisor == 0 {
            (number, divisor) = (number / divisor, 1);
        }
        let whole = |number: i128| i64::try_from(number).unwrap_or(i64::MAX);
        let (number, divisor) = (self.of(whole(number)), self.of(whole(divisor)));
        let above = factors.into_iter().fold(number, |product, factor| self.mul(&product, factor));
        let below = divisors.into_iter().fold(divisor, |product, factor| self.mul(&product, factor));
        match (&above, &below) {
            (_, Length::Value(1)) => above,
            (_, Length::Value(0)) => self.fresh(),
            (Length::Value(_), Length::Value(_)) => self.combined((&above, &below), i64::checked_div, |a, _| a),
            _ => self.settled(&(above / below)),
        }
    }
}

/// The number and the other factors of a product. A number beyond all bounds stays the largest.
fn factors<'a>(parts: &[&'a Length]) -> (i128, Vec<&'a Length>) {
    let (mut number, mut others, mut left) = (1_i128, Vec::new(), parts.to_vec());
    while let Some(part) = left.pop() {
        match part {
            Length::Value(factor) => number = number.saturating_mul((*factor).into()),
            Length::Mul(a, b) => left.extend([&**a, &**b]),
            other => others.push(other),
        }
    }
    (number, others)
}

/// No number that simplification computes is larger than this, whatever it multiplies and adds.
fn magnitude(length: &Length) -> f64 {
    match length {
        Length::Value(number) => f64::from(*number).abs(),
        Length::Var(_) => 1.0,
        Length::Neg(a) => magnitude(a),
        Length::Add(a, b) | Length::Sub(a, b) => magnitude(a) + magnitude(b),
        Length::Mul(a, b) | Length::Div(a, b) | Length::DivCeil(a, b) => magnitude(a).max(1.0) * magnitude(b).max(1.0),
        Length::Max(a, b) | Length::Min(a, b) | Length::Broadcast(a, b) => magnitude(a).max(magnitude(b)),
    }
}

/// An axis's length as the file names it: a name, or `past + 1`, `2*batch`, `(a + b)`. What is neither is a name.
pub(crate) fn named(text: &str) -> Length {
    let tokens: Vec<&str> = text
        .split_inclusive(['+', '-', '*', '(', ')'])
        .flat_map(|part| {
            let end = part.len() - usize::from(part.ends_with(['+', '-', '*', '(', ')']));
            [part[..end].trim(), &part[end..]]
        })
        .filter(|token| !token.is_empty())
        .collect();
    // a long one is no expression that anyone wrote
    if tokens.len() > 15 || text.contains('/') {
        return Length::pos_var(text);
    }
    let mut rest = &tokens[..];
    match sum(&mut rest) {
        Some(length) if rest.is_empty() => length.simplify(),
        _ => Length::pos_var(text),
    }
}

fn sum(rest: &mut &[&str]) -> Option<Length> {
    let mut total = product(rest)?;
    while let [sign @ ("+" | "-"), behind @ ..] = *rest {
        *rest = behind;
        let next = product(rest)?;
        total = if *sign == "+" { total + next } else { total - next };
    }
    Some(total)
}

fn product(rest: &mut &[&str]) -> Option<Length> {
    let mut total = atom(rest)?;
    while let ["*", behind @ ..] = *rest {
        *rest = behind;
        total = total * atom(rest)?;
    }
    Some(total)
}

fn atom(rest: &mut &[&str]) -> Option<Length> {
    let (first, behind) = rest.split_first()?;
    *rest = behind;
    if *first == "(" {
        let inner = sum(rest)?;
        let (last, behind) = rest.split_first()?;
        *rest = behind;
        return (*last == ")").then_some(inner);
    }
    if first.starts_with(|c: char| c.is_ascii_digit()) {
        // products of larger numbers might not fit
        return first.parse().ok().filter(|number| *number < 1000).map(Length::Value);
    }
    (!matches!(*first, "+" | "-" | "*" | ")") && !first.contains(' ')).then(|| Length::pos_var(first))
}

/// A shape as messages have it.
pub(crate) fn shown(shape: &[Length]) -> String {
    let lengths: Vec<String> = shape.iter().map(ToString::to_string).collect();
    format!("[{}]", lengths.join(", "))
}

/// The lengths as numbers, if all are.
pub(crate) fn fixed(shape: &[Length]) -> Option<Vec<usize>> {
    let number = |length: &Length| if let Length::Value(number) = length { usize::try_from(*number).ok() } else { None };
    shape.iter().map(number).collect()
}

/// A length for these lengths of open axes, by name; `None` if it has another name in it, or is no number of 64 bits.
#[must_use]
pub fn evaluate<S: std::hash::BuildHasher>(length: &Length, names: &std::collections::HashMap<String, i64, S>) -> Option<i64> {
    let of = |length: &Length| evaluate(length, names);
    match length {
        Length::Value(number) => Some((*number).into()),
        Length::Var(symbol) => names.get(&symbol.name).copied(),
        Length::Neg(a) => of(a)?.checked_neg(),
        Length::Add(a, b) => of(a)?.checked_add(of(b)?),
        Length::Sub(a, b) => of(a)?.checked_sub(of(b)?),
        Length::Mul(a, b) => of(a)?.checked_mul(of(b)?),
        Length::Div(a, b) => of(a)?.checked_div(of(b)?),
        Length::DivCeil(a, b) => {
            let (a, b) = (of(a)?, of(b)?);
            (b > 0).then(|| a.div_euclid(b) + i64::from(a.rem_euclid(b) > 0))
        }
        Length::Max(a, b) | Length::Broadcast(a, b) => Some(of(a)?.max(of(b)?)),
        Length::Min(a, b) => Some(of(a)?.min(of(b)?)),
    }
}
