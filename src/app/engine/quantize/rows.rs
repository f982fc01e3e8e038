//! The rows of a file, checked against a model's inputs and split into batches.

use std::ops::Range;
use std::path::Path;

use super::super::error::ToolError;
use lapwing_model::Model;
use lapwing_onnx::tensor::{Datatype, TensorSpec};
use lapwing_plan::exec::{Batch, Input};
use lapwing_plan::plan;
use lapwing_plan::quant::npy::{self, Npy, Values};
use lapwing_plan::quant::npz;

/// The data of each input, row by row.
#[derive(Debug)]
pub(crate) struct FileRows {
    /// The file's name.
    name: String,
    /// In the model's order.
    columns: Vec<Column>,
    count: usize,
    length: Option<usize>,
    /// Whether each token of each row counts.
    mask: Option<Vec<bool>>,
}

#[derive(Debug)]
struct Column {
    values: Values,
    /// Elements of one row.
    each: usize,
}

impl FileRows {
    /// Reads a file for a model that has a plan; `argument` names the command's argument in errors.
    pub(crate) fn read(path: &Path, argument: &str, model: &Model) -> Result<Self, ToolError> {
        let fails = |reason: String| ToolError::argument(argument, format!("{}: {reason}", path.display()));
        let bytes = std::fs::read(path).map_err(|e| fails(e.to_string()))?;
        let arrays = if bytes.starts_with(b"PK") {
            npz::read(&bytes).map_err(|e| fails(e.to_string()))?
        } else {
            let array = npy::read(&bytes).map_err(|e| fails(e.to_string()))?;
            match model.inputs() {
                [input] => vec![(input.name.clone(), array)],
                inputs => {
                    let names: Vec<&str> = inputs.iter().map(|port| port.name.as_str()).collect();
                    return Err(fails(format!("is one array, and the model has the inputs {names:?}: a .npz has one for each")));
                }
            }
        };
        let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
        Self::new(name, arrays, model).map_err(fails)
    }

    fn new(name: String, mut arrays: Vec<(String, Npy)>, model: &Model) -> Result<Self, String> {
        let plan = model.plan().ok_or("the model has no plan")?;
        if plan.has_past() {
            return Err("the model has a cache, and is not quantized".into());
        }
        let mut columns = Vec::new();
        let (mut count, mut length) = (None, None);
        let names: Vec<String> = arrays.iter().map(|(name, _)| name.clone()).collect();
        for (port, planned) in model.inputs().iter().zip(&plan.inputs) {
            let at = arrays.iter().position(|(name, _)| *name == port.name);
            let at = at.ok_or_else(|| format!("{}: is an input of the model, and none of the arrays, {names:?}", port.name))?;
            let (_, array) = arrays.swap_remove(at);
            fits(port, &array)?;
            let is_token = plan.value(planned.value).rows == plan::Rows::Token;
            for (axis, known) in [(0, &mut count), (1, &mut length)].into_iter().take(if is_token { 2 } else { 1 }) {
                let got = array.shape[axis];
                let before = *known.get_or_insert(got);
                if before != got {
                    let what = ["rows", "tokens"][axis];
                    return Err(format!("{}: has {got} {what}, the inputs before it {before}", port.name));
                }
            }
            columns.push(Column { each: array.shape[1..].iter().product(), values: array.values });
        }
        if let Some((name, _)) = arrays.first() {
            return Err(format!("{name}: is no input of the model"));
        }
        let count = count.filter(|count| *count > 0).ok_or("has no rows")?;
        if let (Some(length), Some(longest)) = (length, plan.longest())
            && length > longest
        {
            return Err(format!("rows have {length} tokens, the model's positions end at {longest}"));
        }
        let mask = plan.mask().and_then(|at| columns.get(at)).map(|column| not_zero(&column.values));
        Ok(Self { name, columns, count, length, mask })
    }

    /// The file's name.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The number of rows.
    pub(crate) const fn count(&self) -> usize {
        self.count
    }

    /// Tokens of each, if the model has them.
    pub(crate) const fn length(&self) -> Option<usize> {
        self.length
    }

    /// Ranges of `rows` rows; the last one may be smaller.
    pub(crate) fn batches(&self, rows: usize) -> impl Iterator<Item = Range<usize>> + use<> {
        let count = self.count;
        (0..count).step_by(rows.max(1)).map(move |from| from..(from + rows).min(count))
    }

    /// Whether each token of these rows counts; `None` if the model has no mask.
    pub(crate) fn mask(&self, range: Range<usize>) -> Option<&[bool]> {
        let length = self.length.unwrap_or(1);
        self.mask.as_ref()?.get(range.start * length..range.end * length)
    }

    /// Calls `work` with these rows as a batch.
    pub(crate) fn with<T>(&self, range: Range<usize>, work: impl FnOnce(&Batch<'_>) -> T) -> T {
        let length = self.length.unwrap_or(1);
        let offsets: Vec<usize> = (0..=range.len()).map(|row| row * length).collect();
        let inputs: Vec<Input<'_>> = self.columns.iter().map(|column| column.input(&range)).collect();
        work(&Batch { offsets: &offsets, past: &[], inputs: &inputs })
    }
}

impl Column {
    fn input(&self, range: &Range<usize>) -> Input<'_> {
        let range = range.start * self.each..range.end * self.each;
        match &self.values {
            Values::F32(values) => Input::F32(&values[range]),
            Values::I64(values) => Input::I64(&values[range]),
            Values::I32(values) => Input::I32(&values[range]),
            Values::Bool(values) => Input::Bool(&values[range]),
        }
    }
}

/// Checks that an array fits an input.
fn fits(port: &TensorSpec, array: &Npy) -> Result<(), String> {
    let got = match array.values {
        Values::F32(_) => Datatype::Fp32,
        Values::I64(_) => Datatype::Int64,
        Values::I32(_) => Datatype::Int32,
        Values::Bool(_) => Datatype::Bool,
    };
    if got != port.datatype {
        return Err(format!("{}: expected {}, got {}", port.name, port.datatype.name(), got.name()));
    }
    let is_fit = |(want, got): (&Option<usize>, &usize)| want.map_or(*got > 0, |want| want == *got);
    if array.shape.len() != port.shape.len() || !port.shape.iter().zip(&array.shape).all(is_fit) {
        let shown: Vec<String> =
            port.shape.iter().map(|length| length.map_or("-1".into(), |length| length.to_string())).collect();
        return Err(format!("{}: expected shape [{}], got {:?}", port.name, shown.join(", "), array.shape));
    }
    Ok(())
}

fn not_zero(values: &Values) -> Vec<bool> {
    match values {
        Values::F32(values) => values.iter().map(|value| *value != 0.0).collect(),
        Values::I64(values) => values.iter().map(|value| *value != 0).collect(),
        Values::I32(values) => values.iter().map(|value| *value != 0).collect(),
        Values::Bool(values) => values.clone(),
    }
}
