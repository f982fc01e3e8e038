//! One loaded model: its plan, its widths, and the forward pass.
//!
//! The plan is compiled once, with the number of rows left open. Plans of fixed shape run up to 1.2 times as fast at
//! large batches, but each costs tens of milliseconds to compile, either at start or inside somebody's request, and
//! padding to a bucket wastes up to half of the work; for the small models served here one plan is the better bargain.

use std::sync::Arc;

use tract_onnx::prelude::{
    DatumType, Framework, InferenceModelExt, IntoRunnable, Tensor, TractResult, TypedFact, TypedModel, TypedRunnableModel, tvec,
};

use super::EngineError;

/// A model that is ready to run; `forward` takes `&self`, so that one model serves any number of threads.
#[derive(Debug)]
pub struct Model {
    plan: Arc<TypedRunnableModel>,
    input: String,
    input_width: usize,
    output_width: usize,
}

impl Model {
    /// Reads an ONNX model and compiles it for the CPU (tens of milliseconds for a small one).
    ///
    /// # Errors
    ///
    /// [`EngineError::Unreadable`] for what is no ONNX or holds an unknown operator, [`EngineError::Arity`] and
    /// [`EngineError::Layout`] for a model of another form than float32 `[rows, width]` in and out.
    pub fn from_onnx(bytes: &[u8]) -> Result<Self, EngineError> {
        let model = parse(bytes).map_err(|e| EngineError::Unreadable { reason: format!("{e:#}") })?;
        let (inputs, outputs) = (model.inputs.len(), model.outputs.len());
        if (inputs, outputs) != (1, 1) {
            return Err(EngineError::Arity { inputs, outputs });
        }
        let input = model.node(model.inputs[0].node).name.clone();
        let output = model.outlet_label(model.outputs[0]).unwrap_or("output").to_owned();
        let input_width = width(model.input_fact(0), &input)?;
        let output_width = width(model.output_fact(0), &output)?;
        let plan = model.into_runnable().map_err(|e| EngineError::Unreadable { reason: format!("{e:#}") })?;
        Ok(Self { plan, input, input_width, output_width })
    }

    /// Values per row of input, at least one.
    #[must_use]
    pub const fn input_width(&self) -> usize {
        self.input_width
    }

    /// Values per row of output, at least one.
    #[must_use]
    pub const fn output_width(&self) -> usize {
        self.output_width
    }

    /// Runs the model over `rows` rows laid end to end; returns `rows` × [`Self::output_width`] values in the same order.
    ///
    /// # Errors
    ///
    /// [`EngineError::Input`] unless `rows` is at least one and `input` holds `rows` × [`Self::input_width`] values;
    /// [`EngineError::Run`] if tract fails.
    pub fn forward(&self, rows: usize, input: &[f32]) -> Result<Vec<f32>, EngineError> {
        let width = self.input_width;
        let expected = rows.saturating_mul(width);
        if rows == 0 || input.len() != expected {
            return Err(EngineError::Input { tensor: self.input.clone(), rows, width, expected, got: input.len() });
        }
        self.run(rows, input).map_err(|e| EngineError::Run { rows, width, reason: format!("{e:#}") })
    }

    fn run(&self, rows: usize, input: &[f32]) -> TractResult<Vec<f32>> {
        let input = Tensor::from_shape(&[rows, self.input_width], input)?;
        let outputs = self.plan.run(tvec!(input.into()))?;
        Ok(outputs[0].to_plain_array_view::<f32>()?.iter().copied().collect())
    }
}

fn parse(bytes: &[u8]) -> TractResult<TypedModel> {
    tract_onnx::onnx().model_for_read(&mut &*bytes)?.into_optimized()
}

/// The width of a `[rows, width]` tensor of float32.
fn width(fact: TractResult<&TypedFact>, tensor: &str) -> Result<usize, EngineError> {
    let layout = |got: String| EngineError::Layout { tensor: tensor.to_owned(), got };
    let fact = fact.map_err(|e| layout(format!("{e:#}")))?;
    let width = match fact.shape.dims() {
        [_, width] if fact.datum_type == DatumType::F32 => width.to_i64().ok().and_then(|w| usize::try_from(w).ok()),
        _ => None,
    };
    width.filter(|w| *w > 0).ok_or_else(|| layout(format!("{fact:?}")))
}
