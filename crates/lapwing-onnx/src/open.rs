//! Graphs whose shapes cannot be inferred for symbolic lengths: tract builds one graph for each set of concrete
//! lengths.

use tract_onnx::prelude::{InferenceFact, InferenceModel, InferenceModelExt, TractResult, TypedModel};
use tract_onnx::tract_core::internal::bail;
use tract_onnx::tract_hir::infer::{DimFact, Factoid};

/// The lengths that open axes are tried with, one for all: a batch of one; tokens; what convolutions and patches divide; samples.
const LENGTHS: [usize; 8] = [1, 2, 8, 16, 64, 224, 512, 16_000];
/// The most elements of an input that is tried: tract computes what depends on shapes alone.
const MOST_ELEMENTS: usize = 1 << 24;

/// A graph that is rebuilt for concrete lengths.
#[derive(Clone, Debug)]
pub struct DynamicGraph {
    /// The model as it was read.
    model: InferenceModel,
    /// tract's error for symbolic lengths.
    pub reason: String,
    /// The lengths of [`LENGTHS`] for which tract infers shapes; at most two.
    works: Vec<usize>,
}

impl DynamicGraph {
    /// The graph, and its form for the first length that tract can infer shapes for; `None` if there is none.
    pub(crate) fn new(model: InferenceModel, reason: String) -> Option<(TypedModel, Self)> {
        let mut open = Self { model, reason, works: Vec::new() };
        let mut lengths = LENGTHS.into_iter();
        let (first, typed) = lengths.find_map(|length| Some((length, open.at(|_| length).ok()?)))?;
        let second = lengths.find(|length| open.at(|_| *length).is_ok());
        open.works = std::iter::once(first).chain(second).collect();
        Some((typed, open))
    }

    /// The graph for inputs of these shapes, in the model's order.
    ///
    /// # Errors
    ///
    /// tract cannot infer its shapes.
    pub fn shaped(&self, shapes: &[Vec<usize>]) -> TractResult<TypedModel> {
        let mut model = self.model.clone();
        for (at, shape) in shapes.iter().enumerate() {
            let fact = model.input_fact(at)?.datum_type.concretize();
            let shape: Vec<_> = shape.iter().map(|length| *length as i64).collect();
            let fact = fact.map_or_else(|| InferenceFact::shape(&shape), |kind| InferenceFact::dt_shape(kind, &shape));
            model.set_input_fact(at, fact)?;
        }
        // the file's output shapes may use symbols of their own
        for at in 0..model.outputs.len() {
            model.set_output_fact(at, InferenceFact::default())?;
        }
        model.into_typed()?.into_decluttered()
    }

    /// The graph with the length of every open input axis given by `length`.
    pub(crate) fn at(&self, length: impl Fn(usize) -> usize) -> TractResult<TypedModel> {
        let shapes = (0..self.model.inputs.len()).map(|at| {
            let lengths = lengths(self.model.input_fact(at)?).into_iter().enumerate();
            let shape: Vec<_> = lengths.map(|(axis, fixed)| fixed.unwrap_or_else(|| length(axis))).collect();
            let elements = shape.iter().try_fold(1_usize, |product, length| product.checked_mul(*length));
            if elements.is_none_or(|elements| elements > MOST_ELEMENTS) {
                bail!("an input of shape {shape:?} is too large to be tried");
            }
            Ok(shape)
        });
        self.shaped(&shapes.collect::<TractResult<Vec<_>>>()?)
    }

    /// The lengths of an input's axes; `None` for open ones.
    pub(crate) fn input(&self, at: usize) -> TractResult<Vec<Option<usize>>> {
        Ok(lengths(self.model.input_fact(at)?))
    }

    /// The lengths of each output's axes; `None` for those that change with the inputs' open axes.
    ///
    /// # Errors
    ///
    /// tract cannot infer shapes for two different sets of lengths.
    pub fn outputs(&self) -> TractResult<Vec<Vec<Option<usize>>>> {
        let [one, two] = self.works[..] else { bail!("it infers shapes for one of {LENGTHS:?} only") };
        let (one, two) = (self.at(|_| one)?, self.at(|_| two)?);
        let shape = |model: &TypedModel, at: usize| -> TractResult<Vec<Option<usize>>> {
            let fact = model.output_fact(at)?;
            Ok(fact.shape.iter().map(|dim| dim.to_i64().ok()?.try_into().ok()).collect())
        };
        let common = |at| {
            let (one, two) = (shape(&one, at)?, shape(&two, at)?);
            Ok(one.iter().zip(&two).map(|(one, two)| one.filter(|_| one == two)).collect())
        };
        (0..one.outputs.len()).map(common).collect()
    }

    /// The node that tract's error names, which is the first quoted name.
    #[must_use]
    pub fn node(&self) -> &str {
        self.reason.split('"').nth(1).unwrap_or("model")
    }
}

fn lengths(fact: &InferenceFact) -> Vec<Option<usize>> {
    let length = |dim: &DimFact| dim.concretize()?.to_i64().ok()?.try_into().ok();
    fact.shape.dims().map(length).collect()
}
