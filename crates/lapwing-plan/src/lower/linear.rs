//! Matrix products: with a weight, or of two matrices inside an attention.

use lapwing_onnx::shaped::{Constant, ShapedNode};
use lapwing_onnx::tensor::Datatype;

use super::constant::{floats, of_floats, of_rank, permuted, with_shape};
use super::form::{Axis, Matrix};
use super::layout::Operand;
use super::reshape::rank;
use super::{Lowered, Lowering, TensorForm};
use crate::plan::{Activation, Binary, Instruction, Op};

impl Lowering<'_> {
    pub(crate) fn matmul(&mut self, node: &ShapedNode) -> Lowered {
        let (a, b) = (self.input(node, 0)?, self.input(node, 1)?);
        let (rank_a, rank_b) = (rank(&a), rank(&b));
        if rank_a == 0 || rank_b == 0 {
            return Err("multiplies a number".into());
        }
        // a vector is a row of the left operand, or a column of the right one, without an axis of its own in the result
        let (row, column) = (usize::from(rank_a > 1), usize::from(rank_b > 1));
        let (outer_a, outer_b) = (rank_a - 1 - row, rank_b - 1 - column);
        let outer = outer_a.max(outer_b);
        let mut axes = Vec::new();
        for place in 0..outer {
            let own = |count: usize| (place + count).checked_sub(outer);
            axes.push(EinsumAxis { a: own(outer_a), b: own(outer_b), out: Some(place) });
        }
        if row == 1 {
            axes.push(EinsumAxis { a: Some(rank_a - 2), b: None, out: Some(outer) });
        }
        axes.push(EinsumAxis { a: Some(rank_a - 1), b: Some(rank_b - 1 - column), out: None });
        if column == 1 {
            axes.push(EinsumAxis { a: None, b: Some(rank_b - 1), out: Some(outer + row) });
        }
        self.product(node, &axes, a, b).map(|made| vec![made])
    }

    /// `alpha · A · B + beta · C`, each of A and B turned if the node says so.
    pub(crate) fn gemm(&mut self, node: &ShapedNode) -> Lowered {
        let is_turned = |name: &str| node.int(name).unwrap_or(0) != 0;
        let (turn_a, turn_b) = (usize::from(is_turned("transA")), usize::from(is_turned("transB")));
        let axes = [
            EinsumAxis { a: Some(turn_a), b: None, out: Some(0) },
            EinsumAxis { a: Some(1 - turn_a), b: Some(turn_b), out: None },
            EinsumAxis { a: None, b: Some(1 - turn_b), out: Some(1) },
        ];
        let product = self.product(node, &axes, self.input(node, 0)?, self.input(node, 1)?)?;
        let TensorForm::Matrix(mut product) = product else { return Err("is no product with a weight".into()) };
        let alpha = node.float("alpha").unwrap_or(1.0);
        if alpha.to_bits() != 1.0_f32.to_bits() {
            product = self.mapped(node, &[Operand::Matrix(product)], &|places| {
                vec![Instruction::Scalar(alpha), Instruction::Binary(Binary::Mul, places[0], places.len())]
            })?;
        }
        if let Some(added) = Self::tensor(node, 2) {
            let beta = node.float("beta").unwrap_or(1.0);
            let mut operand = self.operand(node, self.form(added).ok_or("input 2 is no matrix")?)?;
            if beta.to_bits() != 1.0_f32.to_bits() {
                operand = match operand {
                    Operand::Const(constant) => {
                        let times: Vec<f32> = floats(&constant)?.into_iter().map(|x| x * beta).collect();
                        Operand::Const(of_floats(constant.shape.clone(), &times))
                    }
                    Operand::Matrix(_) => return Err("adds a multiple of a matrix".into()),
                };
            }
            product = self.mapped(node, &[Operand::Matrix(product), operand], &|places| {
                vec![Instruction::Binary(Binary::Add, places[0], places[1])]
            })?;
        }
        Ok(vec![TensorForm::Matrix(product)])
    }

    /// An einsum of two operands, each letter at most once in each of them.
    pub(crate) fn einsum(&mut self, node: &ShapedNode) -> Lowered {
        let equation: String = node.word("equation").unwrap_or("").chars().filter(|c| !c.is_whitespace()).collect();
        let (operands, out) = equation.split_once("->").ok_or("does not name the axes of its result")?;
        let parts: Vec<Vec<char>> = operands.split(',').chain([out]).map(|part| part.chars().collect()).collect();
        let [a, b, out] = &parts[..] else { return Err("is not a product of two tensors".into()) };
        let mut letters: Vec<char> = out.iter().chain(a).chain(b).copied().collect();
        letters.sort_unstable();
        letters.dedup();
        let place = |part: &[char], letter: char| part.iter().position(|own| *own == letter);
        let is_twice = |part: &[char]| part.iter().any(|letter| part.iter().filter(|own| *own == letter).count() > 1);
        if letters.iter().any(|letter| !letter.is_ascii_alphabetic()) || parts.iter().any(|part| is_twice(part)) {
            return Err(format!("has the equation {equation}"));
        }
        let axes: Vec<EinsumAxis> = letters
            .iter()
            .map(|letter| EinsumAxis { a: place(a, *letter), b: place(b, *letter), out: place(out, *letter) })
            .collect();
        self.product(node, &axes, self.input(node, 0)?, self.input(node, 1)?).map(|made| vec![made])
    }

    /// A product of a matrix and a weight, or of two matrices inside an attention.
    fn product(
        &mut self,
        node: &ShapedNode,
        axes: &[EinsumAxis],
        left: TensorForm,
        right: TensorForm,
    ) -> Result<TensorForm, String> {
        let output = node.outputs.first().copied().flatten();
        if output.and_then(|output| self.graph.tensor(output).datatype).is_some_and(|kind| kind != Datatype::Fp32) {
            return Err("is not a product of two float32 tensors".into());
        }
        let is_within = |place: Option<usize>, form: &TensorForm| place.is_none_or(|place| place < rank(form));
        if axes.iter().any(|axis| !is_within(axis.a, &left) || !is_within(axis.b, &right)) {
            return Err("names axes that its operands do not have".into());
        }
        let turned = || axes.iter().map(EinsumAxis::turned).collect::<Vec<_>>();
        Ok(match (left, right) {
            (TensorForm::Matrix(x), TensorForm::Const(weight)) => TensorForm::Matrix(self.linear(node, axes, &x, &weight)?),
            (TensorForm::Const(weight), TensorForm::Matrix(x)) => {
                TensorForm::Matrix(self.linear(node, &turned(), &x, &weight)?)
            }
            (TensorForm::Matrix(a), TensorForm::Matrix(b)) => TensorForm::Scores(self.scores(node, axes, &a, &b)?),
            (TensorForm::Scores(scores), TensorForm::Matrix(v)) => TensorForm::Matrix(self.attend(node, axes, &scores, &v)?),
            (TensorForm::Matrix(v), TensorForm::Scores(scores)) => {
                TensorForm::Matrix(self.attend(node, &turned(), &scores, &v)?)
            }
            _ => return Err("multiplies operands that are not matrices".into()),
        })
    }

    fn linear(&mut self, node: &ShapedNode, axes: &[EinsumAxis], x: &Matrix, weight: &Constant) -> Result<Matrix, String> {
        if x.is_by_head() {
            return Err("multiplies keys or values of the past by a weight".into());
        }
        let shape = &weight.shape;
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
        let is_summed_row =
            |axis: &&EinsumAxis| axis.out.is_none() && axis.a.is_some_and(|a| !matches!(x.axes[a], Axis::One | Axis::Column(_)));
        if axes.iter().any(|axis| is_lost(&axis) || is_free(&axis) || is_summed_row(&axis)) {
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

    /// An operand of a map.
    pub(crate) fn operand(&mut self, node: &ShapedNode, form: TensorForm) -> Result<Operand, String> {
        Ok(match form {
            TensorForm::Const(constant) => Operand::Const((*constant).clone()),
            TensorForm::Matrix(matrix) => Operand::Matrix(matrix),
            TensorForm::ByPosition(tensor, axis, from) => Operand::Matrix(self.by_position(node, &tensor, axis, from)?),
            TensorForm::Places(_) | TensorForm::Tuple(_) => {
                return Err("works on the tokens' places, as for relative positions".into());
            }
            TensorForm::Distances(_) | TensorForm::Pairs(_) => {
                return Err("works on a function of the tokens' distances".into());
            }
            TensorForm::Rotation(_) => return Err("works on parts of columns in a way that no rotation does".into()),
            TensorForm::Flat(..) => return Err("works on merged batch and tokens".into()),
            TensorForm::Count { .. } => return Err("works with the number of tokens".into()),
            TensorForm::Scores(_) | TensorForm::NaNs(_) => return Err("works on scores in a way that no attention does".into()),
        })
    }
}

/// Operands with as many axes as the one that has most.
pub(crate) fn aligned(operands: &[Operand]) -> Vec<Operand> {
    let rank = |operand: &Operand| match operand {
        Operand::Matrix(matrix) => matrix.axes.len(),
        Operand::Const(constant) => constant.shape.len(),
    };
    let most = operands.iter().map(rank).max().unwrap_or(0);
    let align = |operand: &Operand| match operand {
        Operand::Matrix(matrix) => Operand::Matrix(matrix.of_rank(most)),
        // a number takes any rank
        Operand::Const(constant) if constant.elements() == 1 => Operand::Const(with_shape(constant, vec![1; most])),
        Operand::Const(constant) => Operand::Const(of_rank(constant, most)),
    };
    operands.iter().map(align).collect()
}

/// The elements with the tensor's axes in this order; omitted axes must be of length one.
fn ordered(tensor: &Constant, order: &[usize]) -> Result<Vec<f32>, String> {
    let mut all = order.to_vec();
    all.extend((0..tensor.shape.len()).filter(|axis| !order.contains(axis)));
    floats(&permuted(tensor, &all)?)
}

/// One axis of an einsum: its index in both operands and in the output.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EinsumAxis {
    pub(crate) a: Option<usize>,
    pub(crate) b: Option<usize>,
    pub(crate) out: Option<usize>,
}

impl EinsumAxis {
    /// With the operands swapped.
    fn turned(&self) -> Self {
        Self { a: self.b, b: self.a, out: self.out }
    }
}
