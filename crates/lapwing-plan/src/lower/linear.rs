//! Matrix products with a weight.

use tract_onnx::prelude::{DatumType, Tensor, TypedNode};
use tract_onnx::tract_core::axes::Axis as MappedAxis;
use tract_onnx::tract_core::ops::einsum::EinSum;

use super::form::{Axis, Matrix};
use super::{Lowered, Lowering, TensorForm, floats};
use crate::plan::{Activation, Op};

impl Lowering<'_> {
    /// An einsum: of a matrix and a weight, or of two matrices inside an attention.
    pub(crate) fn einsum(&mut self, node: &TypedNode, op: &EinSum) -> Lowered {
        if op.q_params.is_some() || node.inputs.len() != 2 || op.operating_dt != DatumType::F32 {
            return Err("is not a product of two float32 tensors".into());
        }
        let axes: Vec<EinsumAxis> = op.axes.iter_all_axes().map(EinsumAxis::new).collect::<Result<_, _>>()?;
        let made = match (self.input(node, 0)?.clone(), self.input(node, 1)?.clone()) {
            (TensorForm::Matrix(x), TensorForm::Const(weight)) => TensorForm::Matrix(self.linear(node, &axes, &x, &weight)?),
            (TensorForm::Const(weight), TensorForm::Matrix(x)) => {
                let turned: Vec<_> = axes.iter().map(EinsumAxis::turned).collect();
                TensorForm::Matrix(self.linear(node, &turned, &x, &weight)?)
            }
            (TensorForm::Matrix(a), TensorForm::Matrix(b)) => TensorForm::Scores(self.scores(node, &axes, &a, &b)?),
            (TensorForm::Scores(scores), TensorForm::Matrix(v)) => TensorForm::Matrix(self.attend(node, &axes, &scores, &v)?),
            (TensorForm::Matrix(v), TensorForm::Scores(scores)) => {
                let turned: Vec<_> = axes.iter().map(EinsumAxis::turned).collect();
                TensorForm::Matrix(self.attend(node, &turned, &scores, &v)?)
            }
            _ => return Err("multiplies operands that are not matrices".into()),
        };
        Ok(Some(made))
    }

    fn linear(&mut self, node: &TypedNode, axes: &[EinsumAxis], x: &Matrix, weight: &Tensor) -> Result<Matrix, String> {
        let shape = weight.shape();
        let is_wide = |axis: &&EinsumAxis| axis.b.is_some_and(|place| shape[place] > 1);
        // the weight's summed axes in the order of x's columns, then its output axes in their order
        let mut summed = Vec::new();
        for place in x.columns() {
            let axis = axes.iter().find(|axis| axis.a == Some(place)).ok_or("an axis is not mapped")?;
            match (axis.b, axis.out) {
                (Some(place), None) => summed.push(place),
                _ => return Err("keeps columns of the left operand in the output".into()),
            }
        }
        let mut made: Vec<&EinsumAxis> = axes.iter().filter(|axis| axis.out.is_some()).filter(is_wide).collect();
        made.sort_by_key(|axis| axis.out);
        if let Some(shared) = made.iter().find(|axis| axis.a.is_some_and(|place| x.axes[place] != Axis::One)) {
            return Err(format!("multiplies each of axis {:?} by a weight of its own", shared.out));
        }
        let is_lost =
            |axis: &&EinsumAxis| axis.b.is_none() && axis.out.is_none() && axis.a.is_some_and(|a| x.axes[a] != Axis::One);
        let is_free = |axis: &&EinsumAxis| axis.out.is_none() && axis.b.is_some_and(|b| shape[b] > 1 && !summed.contains(&b));
        if axes.iter().any(|axis| is_lost(&axis) || is_free(&axis)) {
            return Err("sums over more than columns".into());
        }
        let columns: Vec<usize> = made.iter().filter_map(|axis| axis.b).collect();
        let sizes: Vec<usize> = columns.iter().map(|place| shape[*place]).collect();
        let (k, n): (usize, usize) = (summed.iter().map(|place| shape[*place]).product(), sizes.iter().product());
        if k != x.width() {
            return Err(format!("multiplies {} columns by {k} rows", x.width()));
        }
        let order: Vec<usize> = summed.into_iter().chain(columns).collect();
        let data = ordered(weight, &order)?;
        let weight = self.weight(&node.name, k, n, data);
        let left = self.float(node, x);
        let op = Op::Gemm { x: left, weight, bias: None, activation: Activation::None, residual: None };
        let value = self.push(&node.name, x.rows(), n, op);
        let rank = axes.iter().filter_map(|axis| axis.out).max().map_or(0, |last| last + 1);
        let mut out = vec![Axis::One; rank];
        for axis in axes {
            if let (Some(a), Some(place)) = (axis.a, axis.out) {
                out[place] = x.axes[a];
            }
        }
        for (column, axis) in made.iter().enumerate() {
            if let Some(place) = axis.out {
                out[place] = Axis::Column(column);
            }
        }
        Ok(Matrix { value, axes: out, sizes }.squeezed())
    }
}

/// The elements with the tensor's axes in this order; omitted axes must be of length one.
fn ordered(tensor: &Tensor, order: &[usize]) -> Result<Vec<f32>, String> {
    let mut all = order.to_vec();
    all.extend((0..tensor.rank()).filter(|axis| !order.contains(axis)));
    let turned = tensor.clone().permute_axes(&all).map_err(|e| format!("{e:#}"))?;
    floats(&turned)
}

/// One axis of an einsum: its index in both operands and in the output.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EinsumAxis {
    pub(crate) a: Option<usize>,
    pub(crate) b: Option<usize>,
    pub(crate) out: Option<usize>,
}

impl EinsumAxis {
    fn new(axis: &MappedAxis) -> Result<Self, String> {
        let only = |places: &[usize]| match places {
            [] => Ok(None),
            [place] => Ok(Some(*place)),
            _ => Err("takes a diagonal".to_owned()),
        };
        Ok(Self { a: only(&axis.inputs[0])?, b: only(&axis.inputs[1])?, out: only(&axis.outputs[0])? })
    }

    /// With the operands swapped.
    fn turned(&self) -> Self {
        Self { a: self.b, b: self.a, out: self.out }
    }
}
