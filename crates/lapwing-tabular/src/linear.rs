//! `LinearClassifier` and `LinearRegressor`.

use crate::attributes::{Attributes, Reason};
use crate::labels::{Label, Labels, first_maximum};
use crate::operator::{Operator, Scratch, TabularCost, moved, required};
use crate::product::dots;
use crate::scores::{PostTransform, both, probit};
use crate::value::{Value, count};

/// Products of a row with the coefficients of each target.
#[derive(Debug)]
struct Linear {
    /// Row-major: those of each target.
    coefficients: Vec<f32>,
    /// One per target.
    intercepts: Vec<f32>,
    transform: PostTransform,
}

impl Linear {
    fn new(node: Attributes<'_>, targets: usize, intercepts: &[f32]) -> Result<Self, Reason> {
        let coefficients = node.floats("coefficients")?.to_vec();
        if targets == 0 || coefficients.is_empty() || !coefficients.len().is_multiple_of(targets) {
            return Err(format!("{} coefficients are not shared out among {targets} targets", coefficients.len()));
        }
        let transform = PostTransform::from_word(node.word("post_transform", "NONE")?)?;
        Ok(Self { coefficients, intercepts: intercepts.to_vec(), transform })
    }

    fn run(&self, value: &Value) -> Result<(usize, Vec<f32>), Reason> {
        let (rows, columns) = value.rows_and_columns()?;
        let wanted = self.coefficients.len() / self.intercepts.len();
        if columns != wanted {
            return Err(format!("has coefficients for {wanted} columns, a row has {columns}"));
        }
        count(&[rows, self.intercepts.len()])?;
        let mut scores = dots(&value.to_f32()?, &self.coefficients, columns);
        for row in scores.chunks_exact_mut(self.intercepts.len()) {
            row.iter_mut().zip(&self.intercepts).for_each(|(score, intercept)| *score += intercept);
        }
        Ok((rows, scores))
    }

    fn cost(&self, inputs: &[Option<&Value>], outputs: &[Value]) -> TabularCost {
        let rows = required(inputs, 0).and_then(Value::rows_and_columns).map_or(0, |(rows, _)| rows);
        let flops = (2 * rows * self.coefficients.len()) as u64;
        TabularCost { comparisons: 0, flops, bytes: moved(inputs, outputs) + 4 * self.coefficients.len() as u64 }
    }
}

#[derive(Debug)]
struct LinearRegressor(Linear);

#[derive(Debug)]
struct LinearClassifier {
    linear: Linear,
    labels: Labels,
}

/// `LinearRegressor`.
pub(crate) fn regressor(node: Attributes<'_>, _: &[Option<&Value>]) -> Result<Box<dyn Operator>, Reason> {
    let targets = usize::try_from(node.int("targets")?.unwrap_or(1)).unwrap_or(0);
    let coefficients = node.floats("coefficients")?.len();
    if targets > coefficients {
        return Err(format!("has {targets} targets and {coefficients} coefficients"));
    }
    let given = node.floats("intercepts")?;
    // intercepts of another number are not used, as in ONNX Runtime
    let intercepts = if given.len() == targets { given.to_vec() } else { vec![0.0; targets] };
    Ok(Box::new(LinearRegressor(Linear::new(node, targets, &intercepts)?)))
}

/// `LinearClassifier`.
pub(crate) fn classifier(node: Attributes<'_>, _: &[Option<&Value>]) -> Result<Box<dyn Operator>, Reason> {
    let intercepts = node.floats("intercepts")?;
    let linear = Linear::new(node, intercepts.len(), intercepts)?;
    let labels = Labels::read(node, "classlabels_strings", "classlabels_ints")?;
    if intercepts.len() > 1 && labels.len() < intercepts.len() {
        return Err(format!("has {} labels for {} classes", labels.len(), intercepts.len()));
    }
    if labels.len() != 2 && intercepts.len() == 1 && matches!(labels, Labels::Texts(_)) {
        return Err(format!("has one score and {} labels that are strings", labels.len()));
    }
    Ok(Box::new(LinearClassifier { linear, labels }))
}

impl Operator for LinearRegressor {
    fn run(&self, inputs: &[Option<&Value>], _: &mut Scratch) -> Result<Vec<Value>, Reason> {
        let value = required(inputs, 0)?;
        value.f32s()?;
        let (rows, mut scores) = self.0.run(value)?;
        let (targets, transform) = (self.0.intercepts.len(), self.0.transform);
        if targets > 1 {
            scores.chunks_exact_mut(targets).for_each(|row| transform.apply(row));
        } else if transform == PostTransform::Probit {
            // of one score ONNX Runtime knows no other transform
            scores.iter_mut().for_each(|score| *score = probit(*score));
        }
        Ok(vec![Value::matrix(rows, targets, scores)?])
    }

    fn cost(&self, inputs: &[Option<&Value>], outputs: &[Value]) -> TabularCost {
        self.0.cost(inputs, outputs)
    }
}

impl Operator for LinearClassifier {
    fn run(&self, inputs: &[Option<&Value>], _: &mut Scratch) -> Result<Vec<Value>, Reason> {
        let (rows, mut scores) = self.linear.run(required(inputs, 0)?)?;
        let (targets, transform) = (self.linear.intercepts.len(), self.linear.transform);
        if targets > 1 {
            let labels = self.labels.of_rows(scores.chunks_exact(targets).map(|row| Label::Class(first_maximum(row))))?;
            scores.chunks_exact_mut(targets).for_each(|row| transform.apply(row));
            return Ok(vec![labels, Value::matrix(rows, targets, scores)?]);
        }
        let has_two_labels = self.labels.len() == 2;
        let label =
            |score: &f32| if has_two_labels { Label::Class(usize::from(*score > 0.0)) } else { Label::Sign(*score > 0.0) };
        let labels = self.labels.of_rows(scores.iter().map(label))?;
        let is_probit = transform == PostTransform::Probit;
        let scores = match (has_two_labels, is_probit) {
            (false, false) => Value::matrix(rows, 1, scores)?,
            (false, true) => Value::matrix(rows, 1, scores.into_iter().map(probit).collect())?,
            (true, _) => Value::matrix(rows, 2, scores.into_iter().flat_map(|score| both(score, transform)).collect())?,
        };
        Ok(vec![labels, scores])
    }

    fn cost(&self, inputs: &[Option<&Value>], outputs: &[Value]) -> TabularCost {
        self.linear.cost(inputs, outputs)
    }
}
