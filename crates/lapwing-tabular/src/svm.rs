//! `SVMClassifier` and `SVMRegressor`: support vectors with a kernel, or linear models under that name.

use std::ops::Range;

use crate::attributes::{Attributes, Reason};
use crate::labels::{Label, Labels, first_maximum};
use crate::operator::{Operator, Scratch, TabularCost, moved, required};
use crate::product::{dot, dots};
use crate::scores::{PostTransform, both, logistic, probit};
use crate::value::{Value, count};

/// Rows whose kernels are kept at once: for many vectors they take more memory than the rows.
const ROWS: usize = 64;
/// The most classes: pairs of them have a score each.
const MOST_CLASSES: usize = 1 << 10;

#[derive(Clone, Copy, Debug)]
enum Kernel {
    Linear,
    Polynomial { gamma: f32, offset: f32, degree: f32 },
    RadialBasis { gamma: f32 },
    Sigmoid { gamma: f32, offset: f32 },
}

impl Kernel {
    fn read(node: Attributes<'_>) -> Result<Self, Reason> {
        let (gamma, offset, degree) = match *node.floats("kernel_params")? {
            [] => (0.0, 0.0, 0.0),
            [gamma, offset, degree, ..] => (gamma, offset, degree),
            _ => return Err("kernel_params has fewer than 3 elements".into()),
        };
        Ok(match node.word("kernel_type", "LINEAR")? {
            "LINEAR" => Self::Linear,
            "POLY" => Self::Polynomial { gamma, offset, degree },
            "RBF" => Self::RadialBasis { gamma },
            "SIGMOID" => Self::Sigmoid { gamma, offset },
            other => return Err(format!("kernel_type {other:?} is unknown")),
        })
    }

    /// The kernel's value for each row and each vector, both of `width` columns.
    fn values(self, rows: &[f32], vectors: &[f32], width: usize) -> Vec<f32> {
        if let Self::RadialBasis { gamma } = self {
            let vectors = vectors.chunks_exact(width.max(1));
            let distance = |row: &[f32], vector: &[f32]| row.iter().zip(vector).map(|(a, b)| (a - b) * (a - b)).sum::<f32>();
            let rows = rows.chunks_exact(width.max(1));
            return rows.flat_map(|row| vectors.clone().map(move |vector| (-gamma * distance(row, vector)).exp())).collect();
        }
        let mut values = dots(rows, vectors, width);
        match self {
            Self::Polynomial { gamma, offset, degree } => values.iter_mut().for_each(|value| {
                let base = gamma * *value + offset;
                *value = if degree == 2.0 {
                    base * base
                } else if degree == 3.0 {
                    base * base * base
                } else {
                    base.powf(degree)
                };
            }),
            Self::Sigmoid { gamma, offset } => values.iter_mut().for_each(|value| *value = (gamma * *value + offset).tanh()),
            Self::Linear | Self::RadialBasis { .. } => {}
        }
        values
    }
}

/// A sum of single-precision products in double precision.
fn sum(kernels: &[f32], coefficients: &[f32]) -> f64 {
    kernels.iter().zip(coefficients).map(|(kernel, coefficient)| f64::from(kernel * coefficient)).sum()
}

#[derive(Debug)]
struct SvmRegressor {
    kernel: Kernel,
    /// Empty for a linear model, whose coefficients are those of the columns.
    vectors: Vec<f32>,
    coefficients: Vec<f32>,
    offset: f32,
    width: usize,
    /// Whether the answer is 1 or -1: inside or outside of the one class.
    is_one_class: bool,
}

/// `SVMRegressor`.
pub(crate) fn regressor(node: Attributes<'_>, _: &[Option<&Value>]) -> Result<Box<dyn Operator>, Reason> {
    let count = usize::try_from(node.int("n_supports")?.unwrap_or(0)).unwrap_or(0);
    let (vectors, coefficients) = (node.floats("support_vectors")?.to_vec(), node.floats("coefficients")?.to_vec());
    let offset = *node.floats("rho")?.first().ok_or("has no rho")?;
    if coefficients.is_empty() || (count > 0 && (coefficients.len() != count || !vectors.len().is_multiple_of(count))) {
        return Err(format!(
            "has {count} support vectors, {} of their numbers and {} coefficients",
            vectors.len(),
            coefficients.len()
        ));
    }
    let is_one_class = node.int("one_class")?.unwrap_or(0) != 0;
    let kernel = if count > 0 { Kernel::read(node)? } else { Kernel::Linear };
    let width = vectors.len().checked_div(count).unwrap_or(coefficients.len());
    let vectors = if count > 0 { vectors } else { Vec::new() };
    Ok(Box::new(SvmRegressor { kernel, vectors, coefficients, offset, width, is_one_class }))
}

fn checked_rows(value: &Value, width: usize) -> Result<usize, Reason> {
    let (rows, columns) = value.rows_and_columns()?;
    if columns == width { Ok(rows) } else { Err(format!("has vectors of {width} columns, a row has {columns}")) }
}

fn cost(inputs: &[Option<&Value>], outputs: &[Value], numbers: usize, coefficients: usize) -> TabularCost {
    let rows = required(inputs, 0).and_then(Value::rows_and_columns).map_or(0, |(rows, _)| rows);
    let flops = (rows * (2 * numbers + 3 * coefficients)) as u64;
    TabularCost { comparisons: 0, flops, bytes: moved(inputs, outputs) + 4 * (numbers + coefficients) as u64 }
}

impl Operator for SvmRegressor {
    fn run(&self, inputs: &[Option<&Value>], _: &mut Scratch) -> Result<Vec<Value>, Reason> {
        let value = required(inputs, 0)?;
        let rows = checked_rows(value, self.width)?;
        let mut scores = if self.vectors.is_empty() {
            dots(value.f32s()?, &self.coefficients, self.width)
        } else {
            let mut scores = Vec::with_capacity(rows);
            for rows in value.f32s()?.chunks((self.width * ROWS).max(1)) {
                let kernels = self.kernel.values(rows, &self.vectors, self.width);
                let of_rows = kernels.chunks_exact(self.coefficients.len());
                scores.extend(of_rows.map(|kernels| sum(kernels, &self.coefficients) as f32));
            }
            scores
        };
        for score in &mut scores {
            *score += self.offset;
            if self.is_one_class {
                *score = if *score > 0.0 { 1.0 } else { -1.0 };
            }
        }
        Ok(vec![Value::matrix(rows, 1, scores)?])
    }

    fn cost(&self, inputs: &[Option<&Value>], outputs: &[Value]) -> TabularCost {
        cost(inputs, outputs, self.vectors.len(), self.coefficients.len())
    }
}

#[derive(Debug)]
struct SvmClassifier {
    kernel: Kernel,
    vectors: Vec<f32>,
    /// Which vectors are of which class; empty for a linear model.
    of_class: Vec<Range<usize>>,
    coefficients: Vec<f32>,
    offsets: Vec<f32>,
    /// Platt's two numbers of each pair of classes; empty if there are no probabilities.
    platt: Vec<(f32, f32)>,
    width: usize,
    labels: Labels,
    transform: PostTransform,
    has_negative_coefficients: bool,
}

/// `SVMClassifier`.
pub(crate) fn classifier(node: Attributes<'_>, _: &[Option<&Value>]) -> Result<Box<dyn Operator>, Reason> {
    let labels = Labels::read(node, "classlabels_strings", "classlabels_ints")?;
    let classes = labels.len();
    if classes > MOST_CLASSES {
        return Err(format!("has {classes} classes; the bound is {MOST_CLASSES}"));
    }
    let (vectors, coefficients) = (node.floats("support_vectors")?.to_vec(), node.floats("coefficients")?.to_vec());
    let (offsets, transform) = (node.floats("rho")?.to_vec(), PostTransform::from_word(node.word("post_transform", "NONE")?)?);
    let (first, second) = (node.floats("prob_a")?, node.floats("prob_b")?);
    let platt: Vec<_> = first.iter().copied().zip(second.iter().copied()).collect();
    let mut of_class = Vec::new();
    let mut count = 0_usize;
    for class in node.indices("vectors_per_class", 1 << 31)? {
        of_class.push(count..count + class);
        count += class;
    }
    let pairs = classes * (classes - 1) / 2;
    let fits = if count > 0 {
        of_class.len() == classes
            && vectors.len().is_multiple_of(count)
            && coefficients.len() >= (classes - 1) * count
            && offsets.len() >= pairs
            && (platt.is_empty() || platt.len() >= pairs)
    } else {
        coefficients.len().is_multiple_of(classes) && !offsets.is_empty()
    };
    if !fits || coefficients.is_empty() || first.len() != second.len() {
        let numbers = format!("{count} support vectors of {} numbers, {} coefficients", vectors.len(), coefficients.len());
        return Err(format!("{classes} classes: {numbers}, {} in rho and {} in prob_a do not fit", offsets.len(), first.len()));
    }
    let width = vectors.len().checked_div(count).unwrap_or(coefficients.len() / classes);
    let kernel = if count > 0 { Kernel::read(node)? } else { Kernel::Linear };
    if count == 0 {
        of_class.clear();
    }
    let has_negative_coefficients = coefficients.iter().any(|x| x.is_nan() || *x < 0.0);
    let (platt, vectors) = if count > 0 { (platt, vectors) } else { (Vec::new(), Vec::new()) };
    Ok(Box::new(SvmClassifier {
        kernel,
        vectors,
        of_class,
        coefficients,
        offsets,
        platt,
        width,
        labels,
        transform,
        has_negative_coefficients,
    }))
}

impl SvmClassifier {
    /// The score of each pair of classes, and the class that most of them are for, the first if several are.
    fn pairs(&self, kernels: &[f32]) -> (Vec<f32>, usize) {
        let classes = self.of_class.len();
        let mut votes = vec![0_usize; classes];
        let mut scores = Vec::with_capacity(self.offsets.len());
        let count = kernels.len();
        let part = |row: usize, class: usize| {
            let range = self.of_class[class].clone();
            sum(&kernels[range.clone()], &self.coefficients[row * count..][range])
        };
        for i in 0..classes {
            for j in i + 1..classes {
                let sum = part(j - 1, i) + part(i, j) + f64::from(self.offsets[scores.len()]);
                scores.push(sum as f32);
                votes[if sum > 0.0 { i } else { j }] += 1;
            }
        }
        let most = votes.iter().max().copied().unwrap_or(0);
        (scores, votes.iter().position(|votes| *votes == most).unwrap_or(0))
    }

    fn support_vectors(&self, rows: &[f32]) -> Result<Vec<Value>, Reason> {
        let classes = self.of_class.len();
        let (mut labels, mut scores) = (Vec::new(), Vec::new());
        let vectors = self.of_class.last().map_or(1, |range| range.end);
        let parts = rows.chunks((self.width * ROWS).max(1)).map(|rows| self.kernel.values(rows, &self.vectors, self.width));
        for kernels in parts.flat_map(|kernels| kernels.chunks_exact(vectors).map(<[f32]>::to_vec).collect::<Vec<_>>()) {
            let kernels = &kernels[..];
            let (pairs, class) = self.pairs(kernels);
            labels.push(Label::Class(class));
            let from = scores.len();
            if !self.platt.is_empty() {
                scores.extend(probabilities(&pairs, &self.platt, classes));
            } else if let [only] = *pairs {
                let is_margin = self.transform == PostTransform::None;
                scores.extend(if is_margin { [-only, only] } else { both(only, self.transform) });
                continue;
            } else {
                scores.extend(pairs);
            }
            self.transform.apply(&mut scores[from..]);
        }
        let rows = labels.len();
        let width = if self.platt.is_empty() && classes > 2 { classes * (classes - 1) / 2 } else { classes };
        Ok(vec![self.labels.of_rows(labels.into_iter())?, Value::matrix(rows, width, scores)?])
    }

    fn linear(&self, rows: &[f32]) -> Result<Vec<Value>, Reason> {
        let classes = self.labels.len();
        count(&[rows.len() / self.width.max(1), classes])?;
        let mut scores = dots(rows, &self.coefficients, self.width);
        scores.iter_mut().for_each(|score| *score += self.offsets[0]);
        let label = |row: &[f32]| {
            let class = first_maximum(row);
            let is_positive = if self.has_negative_coefficients { row[class] > 0.0 } else { row[class] >= 0.5 };
            Label::Class(if classes == 2 && is_positive { 1 } else { class })
        };
        let labels = self.labels.of_rows(scores.chunks_exact(classes).map(label))?;
        if classes > 1 {
            scores.chunks_exact_mut(classes).for_each(|row| self.transform.apply(row));
        } else if self.transform == PostTransform::Probit {
            scores.iter_mut().for_each(|score| *score = probit(*score));
        }
        Ok(vec![labels, Value::matrix(scores.len() / classes, classes, scores)?])
    }
}

impl Operator for SvmClassifier {
    fn run(&self, inputs: &[Option<&Value>], _: &mut Scratch) -> Result<Vec<Value>, Reason> {
        let value = required(inputs, 0)?;
        checked_rows(value, self.width)?;
        let rows = value.to_f32()?;
        if self.of_class.is_empty() { self.linear(&rows) } else { self.support_vectors(&rows) }
    }

    fn cost(&self, inputs: &[Option<&Value>], outputs: &[Value]) -> TabularCost {
        cost(inputs, outputs, self.vectors.len(), self.coefficients.len())
    }
}

/// The probability of each class, of the scores of pairs: Wu, Lin and Weng's second method, as in libsvm.
fn probabilities(pairs: &[f32], platt: &[(f32, f32)], classes: usize) -> Vec<f32> {
    let mut between = vec![0.0_f32; classes * classes];
    let mut at = 0;
    for i in 0..classes {
        for j in i + 1..classes {
            let (a, b) = platt[at];
            let probability = (1.0 - logistic(pairs[at] * a + b)).clamp(1.0e-7, 1.0 - 1.0e-7);
            between[i * classes + j] = probability;
            between[j * classes + i] = 1.0 - probability;
            at += 1;
        }
    }
    let mut matrix = vec![0.0_f32; classes * classes];
    for i in 0..classes {
        for j in (0..classes).filter(|j| *j != i) {
            let other = between[j * classes + i];
            matrix[i * classes + i] += other * other;
            matrix[i * classes + j] = -other * between[i * classes + j];
        }
    }
    let mut chances = vec![1.0 / classes as f32; classes];
    for _ in 0..100 {
        let mut products: Vec<f32> = matrix.chunks_exact(classes).map(|row| dot(row, &chances)).collect();
        let mut whole: f32 = products.iter().zip(&chances).map(|(a, b)| a * b).sum();
        let error = products.iter().fold(0.0_f32, |error, product| error.max((product - whole).abs()));
        if error < 0.005 / classes as f32 {
            break;
        }
        for i in 0..classes {
            let diagonal = matrix[i * classes + i];
            let step = (whole - products[i]) / diagonal;
            chances[i] += step;
            whole = (whole + step * (step * diagonal + 2.0 * products[i])) / (1.0 + step) / (1.0 + step);
            for j in 0..classes {
                products[j] = (products[j] + step * matrix[i * classes + j]) / (1.0 + step);
                chances[j] /= 1.0 + step;
            }
        }
    }
    chances
}
