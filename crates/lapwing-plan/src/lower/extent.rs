//! What a length is: a number, the batch's, the tokens', or something else. Expressions over the names of axes are compared by their
//! values for several lengths of batch, tokens and past, so that it does not matter how they are written.

use lapwing_onnx::shaped::Length;
use rten_shape_inference::SymbolMap;

/// Lengths that expressions are compared at: no two of their products are alike.
const POINTS: [Point; 3] =
    [Point { batch: 7, token: 11, past: 19 }, Point { batch: 13, token: 5, past: 23 }, Point { batch: 3, token: 17, past: 29 }];

/// Lengths of the batch, of its tokens, and of their past.
#[derive(Clone, Copy, Debug)]
struct Point {
    batch: i32,
    token: i32,
    past: i32,
}

impl Point {
    const fn context(self) -> i32 {
        self.past + self.token
    }
}

/// A length of an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    /// The same for every call.
    Fixed(usize),
    /// The batch's.
    Batch,
    /// That of the tokens.
    Token,
    /// That of the past.
    Past,
    /// That of the past and the tokens.
    Context,
    /// That of all tokens of a batch of sequences of one length.
    AllTokens,
    /// This many times the batch's: heads that are merged with it.
    BatchTimes(usize),
    /// Something else, or unknown.
    Other,
}

/// The names of the axes of batch, tokens, past and context.
#[derive(Debug, Default)]
pub(crate) struct AxisNames {
    pub(crate) batch: Vec<String>,
    pub(crate) token: Vec<String>,
    pub(crate) past: Vec<String>,
    pub(crate) context: Vec<String>,
}

/// The values of an expression at [`POINTS`]; also of differences of lengths, which have no expression.
pub(crate) type Values = [i32; 3];

impl AxisNames {
    /// The values of an expression; `None` if it has an unknown in it.
    pub(crate) fn values(&self, length: &Length) -> Option<Values> {
        let mut values = [0; 3];
        for (value, point) in values.iter_mut().zip(POINTS) {
            let lengths = [
                (&self.batch, point.batch),
                (&self.token, point.token),
                (&self.past, point.past),
                (&self.context, point.context()),
            ];
            let mut named: Vec<(&str, i32)> = Vec::new();
            for (names, number) in lengths {
                named.extend(names.iter().map(|name| (name.as_str(), number)));
            }
            *value = length.eval(&SymbolMap::new(&named)).ok()?;
        }
        Some(values)
    }

    /// What a length is.
    pub(crate) fn extent(&self, length: &Length) -> Extent {
        self.values(length).map_or(Extent::Other, extent)
    }
}

/// A number as a 32-bit one: those beyond mean an end.
pub(crate) fn held(number: i64) -> i32 {
    i32::try_from(number).unwrap_or(if number < 0 { i32::MIN } else { i32::MAX })
}

/// A length at a point.
type LengthOf = fn(Point) -> i32;

/// The length of the past.
pub(crate) fn past() -> Values {
    POINTS.map(|point| point.past)
}

/// What these values are.
pub(crate) fn extent(values: Values) -> Extent {
    let is = |of: LengthOf| values.iter().zip(POINTS).all(|(value, point)| *value == of(point));
    let known: [(LengthOf, Extent); 5] = [
        (|point| point.batch, Extent::Batch),
        (|point| point.token, Extent::Token),
        (|point| point.past, Extent::Past),
        (Point::context, Extent::Context),
        (|point| point.batch * point.token, Extent::AllTokens),
    ];
    if let Some((_, extent)) = known.into_iter().find(|(of, _)| is(*of)) {
        return extent;
    }
    if let Ok(times @ 2..) = usize::try_from(values[0] / POINTS[0].batch)
        && values.iter().zip(POINTS).all(|(value, point)| i64::from(*value) == i64::from(point.batch) * times as i64)
    {
        return Extent::BatchTimes(times);
    }
    match (values.iter().all(|value| *value == values[0]), usize::try_from(values[0])) {
        (true, Ok(length)) => Extent::Fixed(length),
        _ => Extent::Other,
    }
}

/// Whether these are the number of all tokens of a batch of sequences of one length, or of their contexts.
pub(crate) fn is_all_tokens(values: Values) -> bool {
    let is = |of: LengthOf| values.iter().zip(POINTS).all(|(value, point)| *value == of(point));
    is(|point| point.batch * point.token) || is(|point| point.batch * point.context())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_what_they_amount_to() {
        let names = AxisNames {
            batch: vec!["b".into()],
            token: vec!["s".into(), "t".into()],
            past: vec!["p".into(), "q".into()],
            context: vec!["all".into()],
        };
        let (p, all) = (Length::pos_var("p"), Length::pos_var("all"));
        assert_eq!(names.extent(&p), Extent::Past);
        assert_eq!(names.extent(&(p.clone() + Length::pos_var("s"))), Extent::Context);
        assert_eq!(names.extent(&(all - Length::pos_var("q"))), Extent::Token);
        let (b, s, t) = (Length::pos_var("b"), Length::pos_var("s"), Length::pos_var("t"));
        assert_eq!(names.extent(&b), Extent::Batch);
        assert_eq!(names.extent(&(s.clone() * b.clone() * Length::from(4) / (b * Length::from(4)))), Extent::Token);
        assert_eq!(names.extent(&s.broadcast(&t)), Extent::Token);
        assert_eq!(names.extent(&(s.clone() - t + Length::from(3))), Extent::Fixed(3));
        assert_eq!(names.extent(&(s + Length::from(1))), Extent::Other);
        assert_eq!(names.extent(&Length::pos_var("unknown")), Extent::Other);
    }
}
