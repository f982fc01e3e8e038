//! What a length is: a number, the batch's, the tokens', or something else. Expressions over the names of axes are compared by their
//! values for several lengths of batch and tokens, so that it does not matter how they are written.

use lapwing_onnx::shaped::Length;
use rten_shape_inference::SymbolMap;

/// Lengths of batch and tokens that expressions are compared at: no two of their products are alike.
const POINTS: [(i32, i32); 3] = [(7, 11), (13, 5), (3, 17)];

/// A length of an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    /// The same for every call.
    Fixed(usize),
    /// The batch's.
    Batch,
    /// That of the tokens.
    Token,
    /// That of all tokens of a batch of sequences of one length.
    AllTokens,
    /// This many times the batch's: heads that are merged with it.
    BatchTimes(usize),
    /// Something else, or unknown.
    Other,
}

/// The names of the axes of batch and tokens.
#[derive(Debug, Default)]
pub(crate) struct AxisNames {
    pub(crate) batch: Vec<String>,
    pub(crate) token: Vec<String>,
}

/// The values of an expression at [`POINTS`]; also of differences of lengths, which have no expression.
pub(crate) type Values = [i32; 3];

impl AxisNames {
    /// The values of an expression; `None` if it has an unknown in it.
    pub(crate) fn values(&self, length: &Length) -> Option<Values> {
        let mut values = [0; 3];
        for (value, (batch, token)) in values.iter_mut().zip(POINTS) {
            let of = |names: &'_ [String], number: i32| names.iter().map(|name| (name.clone(), number)).collect::<Vec<_>>();
            let named: Vec<(String, i32)> = [of(&self.batch, batch), of(&self.token, token)].concat();
            let named: Vec<(&str, i32)> = named.iter().map(|(name, number)| (name.as_str(), *number)).collect();
            *value = length.eval(&SymbolMap::new(&named)).ok()?;
        }
        Some(values)
    }

    /// What a length is.
    pub(crate) fn extent(&self, length: &Length) -> Extent {
        self.values(length).map_or(Extent::Other, extent)
    }
}

/// What these values are.
pub(crate) fn extent(values: Values) -> Extent {
    let is = |of: fn(&(i32, i32)) -> i32| values.iter().zip(&POINTS).all(|(value, point)| *value == of(point));
    if is(|(batch, _)| *batch) {
        return Extent::Batch;
    }
    if is(|(_, token)| *token) {
        return Extent::Token;
    }
    if is_all_tokens(values) {
        return Extent::AllTokens;
    }
    let (first, _) = POINTS[0];
    if let Ok(times @ 2..) = usize::try_from(values[0] / first)
        && values.iter().zip(&POINTS).all(|(value, (batch, _))| i64::from(*value) == i64::from(*batch) * times as i64)
    {
        return Extent::BatchTimes(times);
    }
    match (values.iter().all(|value| *value == values[0]), usize::try_from(values[0])) {
        (true, Ok(length)) => Extent::Fixed(length),
        _ => Extent::Other,
    }
}

/// Whether these are the number of all tokens of a batch of sequences of one length.
pub(crate) fn is_all_tokens(values: Values) -> bool {
    values.iter().zip(&POINTS).all(|(value, (batch, token))| *value == batch * token)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_what_they_amount_to() {
        let names = AxisNames { batch: vec!["b".into()], token: vec!["s".into(), "t".into()] };
        let (b, s, t) = (Length::pos_var("b"), Length::pos_var("s"), Length::pos_var("t"));
        assert_eq!(names.extent(&b), Extent::Batch);
        assert_eq!(names.extent(&(s.clone() * b.clone() * Length::from(4) / (b * Length::from(4)))), Extent::Token);
        assert_eq!(names.extent(&s.broadcast(&t)), Extent::Token);
        assert_eq!(names.extent(&(s.clone() - t + Length::from(3))), Extent::Fixed(3));
        assert_eq!(names.extent(&(s + Length::from(1))), Extent::Other);
        assert_eq!(names.extent(&Length::pos_var("unknown")), Extent::Other);
    }
}
