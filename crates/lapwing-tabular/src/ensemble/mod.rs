//! Tree ensembles: `TreeEnsembleClassifier`, `TreeEnsembleRegressor` and `TreeEnsemble`.
//!
//! A file's trees ([`source`]: read by [`table`] or [`indexed`]) are grown to binary trees of one kind of comparison ([`grow`],
//! [`columns`]), laid out for the cache ([`forest`]) and evaluated for many rows at once ([`evaluate`]); [`leaves`] are summed, and
//! [`finish`] makes scores and labels of the sums.

mod columns;
mod evaluate;
mod finish;
mod forest;
mod grow;
mod indexed;
mod leaves;
mod source;
mod table;

use pulp::Arch;

use self::evaluate::Evaluation;
use self::finish::{Finish, TwoClasses};
use self::forest::{Forest, lay_out};
use self::leaves::{Aggregate, Leaves};
use self::source::{Number, Trees};
use crate::attributes::{Attributes, Reason};
use crate::labels::Labels;
use crate::lanes::Block;
use crate::operator::{Operator, Scratch, TabularCost, moved, required};
use crate::scores::PostTransform;
use crate::value::{Elements, Value, count};

/// A forest with what is made of its scores.
#[derive(Debug)]
struct Ensemble<T> {
    forest: Forest<T>,
    leaves: Leaves<T>,
    finish: Finish<T>,
    tracks_scores: bool,
    arch: Arch,
}

impl<T: Number> Ensemble<T> {
    fn new(trees: Trees<T>, finish: Finish<T>) -> Result<Self, Reason> {
        let (forest, ranges) = lay_out(&trees)?;
        let first_leaves: Vec<u32> = forest.trees.iter().map(|tree| tree.first_leaf).collect();
        let leaves = Leaves::of(trees, ranges, &first_leaves);
        let is_minimum_or_maximum = matches!(finish.aggregate, Aggregate::Minimum | Aggregate::Maximum);
        let tracks_scores = is_minimum_or_maximum || !leaves.reach_all(finish.targets, &first_leaves);
        Ok(Self { forest, leaves, finish, tracks_scores, arch: Arch::new() })
    }

    fn evaluate(
        &self,
        rows: &[T],
        width: usize,
        block: &mut Block<T>,
        row_done: impl FnMut(&[T], &[bool]) -> Result<(), Reason>,
    ) -> Result<(), Reason> {
        if width < self.forest.columns.width {
            return Err(format!("tests column {} of rows that have {width}", self.forest.columns.width - 1));
        }
        let Self { forest, leaves, tracks_scores, arch, .. } = self;
        let (aggregate, targets) = (self.finish.aggregate, self.finish.targets);
        let evaluation = Evaluation { forest, leaves, aggregate, targets, tracks_scores: *tracks_scores, arch: *arch };
        evaluation.run(rows, width, block, row_done)
    }

    fn cost(&self, inputs: &[Option<&Value>], outputs: &[Value]) -> TabularCost {
        let rows = required(inputs, 0).and_then(Value::rows_and_columns).map_or(0, |(rows, _)| rows as u64);
        let comparisons = (rows as f64 * self.forest.comparisons).round() as u64;
        let nodes = self.forest.bytes().min(comparisons.saturating_mul(2 * size_of::<T>() as u64));
        let flops = rows * self.forest.trees.len() as u64;
        TabularCost { comparisons, flops, bytes: moved(inputs, outputs) + nodes }
    }
}

/// A regressor: what its results are of.
#[derive(Debug)]
struct Regressor<T> {
    ensemble: Ensemble<T>,
    /// Whether results are of the columns' type; else they are of single precision.
    is_typed: bool,
}

/// A classifier.
#[derive(Debug)]
struct Classifier<T> {
    ensemble: Ensemble<T>,
    labels: Labels,
    two: TwoClasses,
}

fn single(elements: Elements) -> Option<Vec<f32>> {
    if let Elements::F32(items) = elements { Some(items) } else { None }
}

fn double(elements: Elements) -> Option<Vec<f64>> {
    if let Elements::F64(items) = elements { Some(items) } else { None }
}

/// The columns of a call in the type of the thresholds, and where its sums go.
trait Columns: Number {
    const TAKE: fn(Elements) -> Option<Vec<Self>>;
    fn columns(value: &Value) -> Result<std::borrow::Cow<'_, [Self]>, Reason>;
    fn block(scratch: &mut Scratch) -> &mut Block<Self>;
    fn elements(items: Vec<Self>) -> Elements;
}

impl Columns for f32 {
    const TAKE: fn(Elements) -> Option<Vec<Self>> = single;

    fn columns(value: &Value) -> Result<std::borrow::Cow<'_, [Self]>, Reason> {
        if matches!(value.elements, Elements::F64(_)) {
            return Err("its thresholds are FP32, its columns FP64".into());
        }
        value.to_f32()
    }
    fn block(scratch: &mut Scratch) -> &mut Block<Self> {
        &mut scratch.single
    }
    fn elements(items: Vec<Self>) -> Elements {
        Elements::F32(items)
    }
}

impl Columns for f64 {
    const TAKE: fn(Elements) -> Option<Vec<Self>> = double;

    fn columns(value: &Value) -> Result<std::borrow::Cow<'_, [Self]>, Reason> {
        match &value.elements {
            Elements::F64(items) => Ok(items.into()),
            other => Err(format!("its thresholds are FP64, its columns {}", other.datatype().name())),
        }
    }
    fn block(scratch: &mut Scratch) -> &mut Block<Self> {
        &mut scratch.double
    }
    fn elements(items: Vec<Self>) -> Elements {
        Elements::F64(items)
    }
}

impl<T: Columns + finish::Prediction<T>> Operator for Regressor<T> {
    fn run(&self, inputs: &[Option<&Value>], scratch: &mut Scratch) -> Result<Vec<Value>, Reason> {
        let value = required(inputs, 0)?;
        let (rows, width) = value.rows_and_columns()?;
        let (columns, targets) = (T::columns(value)?, self.ensemble.finish.targets);
        count(&[rows, targets])?;
        let finish = &self.ensemble.finish;
        let block = T::block(scratch);
        let elements = if self.is_typed {
            let mut results: Vec<T> = Vec::with_capacity(rows * targets);
            self.ensemble.evaluate(&columns, width, block, |sums, has| {
                finish.regression(sums, has, &mut results);
                Ok(())
            })?;
            T::elements(results)
        } else {
            let mut results: Vec<f32> = Vec::with_capacity(rows * targets);
            self.ensemble.evaluate(&columns, width, block, |sums, has| {
                finish.regression(sums, has, &mut results);
                Ok(())
            })?;
            Elements::F32(results)
        };
        Ok(vec![Value::new(&[rows, targets], elements)?])
    }

    fn cost(&self, inputs: &[Option<&Value>], outputs: &[Value]) -> TabularCost {
        self.ensemble.cost(inputs, outputs)
    }
}

impl<T: Columns> Operator for Classifier<T> {
    fn run(&self, inputs: &[Option<&Value>], scratch: &mut Scratch) -> Result<Vec<Value>, Reason> {
        let value = required(inputs, 0)?;
        let (rows, width) = value.rows_and_columns()?;
        let columns = T::columns(value)?;
        let classes = self.ensemble.finish.targets;
        count(&[rows, classes])?;
        let (mut labels, mut scores) = (Vec::with_capacity(rows), Vec::with_capacity(rows * classes));
        self.ensemble.evaluate(&columns, width, T::block(scratch), |sums, has| {
            labels.push(self.ensemble.finish.classification(sums, has, self.two, &mut scores));
            Ok(())
        })?;
        Ok(vec![self.labels.of_rows(labels.into_iter())?, Value::matrix(rows, classes, scores)?])
    }

    fn cost(&self, inputs: &[Option<&Value>], outputs: &[Value]) -> TabularCost {
        self.ensemble.cost(inputs, outputs)
    }
}

/// Whether the columns are of double precision.
fn is_double(inputs: &[Option<&Value>]) -> bool {
    required(inputs, 0).is_ok_and(|value| matches!(value.elements, Elements::F64(_)))
}

/// `TreeEnsembleRegressor`.
pub(crate) fn regressor(node: Attributes<'_>, inputs: &[Option<&Value>]) -> Result<Box<dyn Operator>, Reason> {
    if is_double(inputs) { regressor_of::<f64>(node) } else { regressor_of::<f32>(node) }
}

fn regressor_of<T: Columns + finish::Prediction<T>>(node: Attributes<'_>) -> Result<Box<dyn Operator>, Reason> {
    let targets = usize::try_from(node.int("n_targets")?.unwrap_or(0)).unwrap_or(0);
    let trees = table::read(node, "target", targets, T::TAKE)?;
    let finish = Finish {
        aggregate: Aggregate::from_word(node.word("aggregate_function", "SUM")?)?,
        transform: PostTransform::from_word(node.word("post_transform", "NONE")?)?,
        base_values: table::numbers(node, "base_values", T::TAKE)?,
        trees: trees.roots.len(),
        targets,
    };
    finish.check_base_values(&[0, targets])?;
    Ok(Box::new(Regressor { ensemble: Ensemble::new(trees, finish)?, is_typed: false }))
}

/// `TreeEnsemble`.
pub(crate) fn ensemble(node: Attributes<'_>, inputs: &[Option<&Value>]) -> Result<Box<dyn Operator>, Reason> {
    if is_double(inputs) { ensemble_of::<f64>(node) } else { ensemble_of::<f32>(node) }
}

fn ensemble_of<T: Columns + finish::Prediction<T>>(node: Attributes<'_>) -> Result<Box<dyn Operator>, Reason> {
    let trees = indexed::read(node, T::TAKE)?;
    let finish = Finish {
        aggregate: Aggregate::from_number(node.int("aggregate_function")?.unwrap_or(1))?,
        transform: PostTransform::from_number(node.int("post_transform")?.unwrap_or(0))?,
        base_values: Vec::new(),
        trees: trees.roots.len(),
        targets: trees.targets,
    };
    Ok(Box::new(Regressor { ensemble: Ensemble::new(trees, finish)?, is_typed: true }))
}

/// `TreeEnsembleClassifier`.
pub(crate) fn classifier(node: Attributes<'_>, inputs: &[Option<&Value>]) -> Result<Box<dyn Operator>, Reason> {
    if is_double(inputs) { classifier_of::<f64>(node) } else { classifier_of::<f32>(node) }
}

fn classifier_of<T: Columns>(node: Attributes<'_>) -> Result<Box<dyn Operator>, Reason> {
    let labels = Labels::read(node, "classlabels_strings", "classlabels_int64s")?;
    let classes = labels.len();
    if classes == 1 && matches!(labels, Labels::Texts(_)) {
        return Err("has one class, whose label is a string".into());
    }
    let trees = table::read(node, "class", classes, T::TAKE)?;
    let weights: Vec<T> = table::numbers(node, "class_weights", T::TAKE)?;
    let base_values: Vec<T> = table::numbers(node, "base_values", T::TAKE)?;
    let ids = node.ints("class_ids")?;
    let has_negative = weights.iter().any(|weight| *weight < T::default());
    let two = match (ids.iter().all(|id| Some(id) == ids.first()), has_negative) {
        _ if classes != 2 => TwoClasses::Both,
        (true, false) => TwoClasses::Probability,
        (true, true) => TwoClasses::Margin,
        (false, _) => TwoClasses::Both,
    };
    let finish = Finish {
        aggregate: Aggregate::Sum,
        transform: PostTransform::from_word(node.word("post_transform", "NONE")?)?,
        base_values,
        trees: trees.roots.len(),
        targets: classes,
    };
    match classes {
        1 => finish.check_base_values(&[0, 1])?,
        2 => finish.check_base_values(&[0, 1, 2])?,
        _ => finish.check_base_values(&[0, classes])?,
    }
    Ok(Box::new(Classifier { ensemble: Ensemble::new(trees, finish)?, labels, two }))
}
