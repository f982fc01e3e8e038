//! Recognises attention across several operators. Scores, with a row and a column for each token, exist only between
//! the product of queries and keys and the product with the values; in between, only operations that lead to a softmax
//! of scaled and masked scores are supported.

use lapwing_onnx::shaped::ShapedNode;

use super::constant::{of_floats, scalar, with_shape};
use super::form::{Axis, Matrix, Score, Scores};
use super::linear::EinsumAxis;
use super::{Lowering, TensorForm};
use crate::plan::{Binary, Columns, Fold, Instruction, Op, Program, Rows, ValueId};

/// A number below this absorbs any score that it is added to.
const ABSORBS: f32 = -1e30;

impl Scores {
    /// The rows of the keys.
    pub(crate) const fn key_rows(&self) -> Rows {
        if self.is_of_context { Rows::Context } else { Rows::Token }
    }

    /// The softmax over the keys.
    pub(crate) fn softmax(&self, axis: usize) -> Result<Self, String> {
        if self.axes.get(axis) != Some(&Score::Key) || self.is_softmax {
            return Err("is not over the keys".into());
        }
        Ok(Self { is_softmax: true, ..self.clone() })
    }

    /// Whether a matrix has one value for each key, the same for every query and head.
    pub(crate) fn is_by_key(&self, matrix: &Matrix) -> bool {
        let fits = |(axis, score): (&Axis, &Score)| match axis {
            Axis::Batch => *score == Score::Batch,
            Axis::Token => *score == Score::Key && !self.is_of_context,
            Axis::Context => *score == Score::Key && self.is_of_context,
            Axis::Past | Axis::Column(_) | Axis::Repeated(..) | Axis::AllTokens | Axis::BatchAnd(..) => false,
            Axis::One | Axis::Spread(_) => true,
        };
        matrix.axes.len() == self.axes.len() && matrix.axes.iter().zip(&self.axes).all(fits)
    }
}

/// The column axis of the heads of keys or values, none if there is one head, if they are for so many heads of queries.
fn key_heads(matrix: &Matrix, axis: Axis, heads: usize) -> Option<Option<usize>> {
    match axis {
        Axis::Column(place) => (matrix.sizes[place] == heads).then_some(Some(place)),
        Axis::Repeated(place, times) => (matrix.sizes[place] * times == heads).then_some(Some(place)),
        // broadcast as operators do it, or before
        Axis::One => Some(None),
        Axis::Spread(Some(times)) => (times == heads).then_some(None),
        _ => None,
    }
}

impl Lowering<'_> {
    /// The product of queries and keys.
    pub(crate) fn scores(&mut self, node: &ShapedNode, axes: &[EinsumAxis], q: &Matrix, k: &Matrix) -> Result<Scores, String> {
        let no = || "multiplies two matrices in a way that no attention does".to_owned();
        let of = |matrix: &Matrix, place: Option<usize>| place.map(|place| matrix.axes[place]);
        let rank = axes.iter().filter_map(|axis| axis.out).max().map_or(0, |last| last + 1);
        let mut out = vec![Score::One; rank];
        let (mut heads, mut head) = (None, None);
        for axis in axes {
            let (a, b) = (of(q, axis.a), of(k, axis.b));
            let score = match (a, b, axis.out) {
                (Some(Axis::Batch), Some(Axis::Batch), Some(_)) => Score::Batch,
                (Some(Axis::Token), None, Some(_)) => Score::Query,
                (None, Some(Axis::Token | Axis::Context), Some(_)) => Score::Key,
                (Some(Axis::Column(i)), Some(other), Some(_)) if heads.is_none() => {
                    heads = Some((i, key_heads(k, other, q.sizes[i]).ok_or_else(no)?));
                    Score::Head
                }
                (Some(Axis::Column(i)), Some(Axis::Column(j)), None) if head.is_none() => {
                    head = Some((i, j));
                    continue;
                }
                (None | Some(Axis::One), None | Some(Axis::One), _) => Score::One,
                _ => return Err(no()),
            };
            if let Some(place) = axis.out {
                out[place] = score;
            }
        }
        let has = |score: Score| out.iter().filter(|own| **own == score).count() == 1;
        if !(has(Score::Batch) && has(Score::Query) && has(Score::Key)) {
            return Err(no());
        }
        // within a row, the columns of a head must be contiguous, and there may be no other axes
        let is_sound = |matrix: &Matrix, place: Option<usize>, of_head: Option<usize>| {
            let all = usize::from(place.is_some()) + usize::from(of_head.is_some()) == matrix.sizes.len();
            all && place.is_none_or(|place| of_head.is_none_or(|of_head| place < of_head))
        };
        let (heads_of_q, heads_of_k) = heads.unzip();
        let (in_q, in_k) = head.unzip();
        if !is_sound(q, heads_of_q, in_q) || !is_sound(k, heads_of_k.flatten(), in_k) {
            return Err("has heads whose columns are not contiguous".into());
        }
        let length = |place: Option<usize>| place.map_or(1, |place| q.sizes[place]);
        let (heads, head) = (length(heads_of_q), length(in_q));
        let key_heads = heads_of_k.flatten().map_or(1, |place| k.sizes[place]);
        let is_of_context = k.rows() == Rows::Context;
        if q.rows() != Rows::Token {
            return Err(no());
        }
        let (q, first) = self.unscaled(node, q);
        let (k, second) = self.unscaled(node, k);
        Ok(Scores {
            q,
            k,
            heads,
            key_heads,
            head,
            scale: first * second,
            bias: None,
            by_distance: None,
            axes: out,
            is_of_context,
            is_softmax: false,
            is_guarded: false,
        })
    }

    /// If the value was last multiplied by a factor: the value before that, and the factor.
    fn unscaled(&mut self, node: &ShapedNode, matrix: &Matrix) -> (ValueId, f32) {
        let value = self.float(node, matrix);
        let Some(made) = self.plan.nodes.iter().find(|made| made.output == value) else { return (value, 1.0) };
        let Op::Map { program, args } = &made.op else { return (value, 1.0) };
        let [first, second, Instruction::Binary(op @ (Binary::Mul | Binary::Div), 0, 1)] = program.code() else {
            return (value, 1.0);
        };
        let (arg, factor) = match (first, second, op, &args[..]) {
            (Instruction::Arg(0), Instruction::Scalar(factor), Binary::Mul, [arg])
            | (Instruction::Scalar(factor), Instruction::Arg(0), Binary::Mul, [arg]) => (*arg, *factor),
            (Instruction::Arg(0), Instruction::Scalar(divisor), Binary::Div, [arg]) => (*arg, 1.0 / divisor),
            _ => return (value, 1.0),
        };
        if self.plan.value(arg).width == matrix.width() { (arg, factor) } else { (value, 1.0) }
    }

    /// Scores that are multiplied by a scalar or have a mask added; `None` if no input is scores.
    pub(crate) fn scored(&mut self, node: &ShapedNode, op: Binary) -> Result<Option<Scores>, String> {
        let (scores, other, is_left) = match (self.input(node, 0)?, self.input(node, 1)?) {
            (TensorForm::Scores(scores), other) => (scores, other, true),
            (other, TensorForm::Scores(scores)) => (scores, other, false),
            _ => return Ok(None),
        };
        let no = || format!("does {op:?} to scores in a way that no attention does");
        if scores.is_softmax {
            return Err(no());
        }
        let number = if let TensorForm::Const(tensor) = &other { scalar(tensor) } else { None };
        let made = match (op, number, other) {
            (Binary::Mul, Some(factor), _) => self.times(node, scores, factor),
            (Binary::Div, Some(divisor), _) if is_left => self.times(node, scores, 1.0 / divisor),
            // the same for every key: the softmax is invariant to it
            (Binary::Add, Some(_), _) => scores,
            (Binary::Add, None, TensorForm::Matrix(bias)) if scores.is_by_key(&bias) => {
                let value = self.float(node, &bias);
                let (scores, value) = self.halved_masks(node, scores, value);
                self.biased(node, scores, value)
            }
            (Binary::Add, None, TensorForm::Distances(bias)) => self.biased_by_distance(node, &scores, &bias).ok_or_else(no)?,
            (Binary::Add, None, TensorForm::Pairs(pairs)) if pairs.is_sum => {
                self.biased_by_pairs(node, scores, &pairs).ok_or_else(no)?
            }
            _ => return Err(no()),
        };
        Ok(Some(made))
    }

    fn times(&mut self, node: &ShapedNode, scores: Scores, factor: f32) -> Scores {
        let bias = scores.bias.map(|bias| {
            let steps = vec![Instruction::Arg(0), Instruction::Scalar(factor), Instruction::Binary(Binary::Mul, 0, 1)];
            self.push(&node.name, scores.key_rows(), 1, Op::Map { program: Program::new(steps), args: vec![bias] })
        });
        let by_distance = scores.by_distance.map(|table| self.times_by_distance(node, table, factor));
        Scores { scale: scores.scale * factor, bias, by_distance, ..scores }
    }

    pub(crate) fn biased(&mut self, node: &ShapedNode, scores: Scores, more: ValueId) -> Scores {
        let bias = match scores.bias {
            None => more,
            Some(bias) => {
                let steps = vec![Instruction::Arg(0), Instruction::Arg(1), Instruction::Binary(Binary::Add, 0, 1)];
                self.push(&node.name, scores.key_rows(), 1, Op::Map { program: Program::new(steps), args: vec![bias, more] })
            }
        };
        Scores { bias: Some(bias), ..scores }
    }

    /// The biases by distance and by key, each half of what it is if both mask out by finite numbers whose sum is infinite: where all keys
    /// are masked, those that both mask out are below the others, and the kernels' lowest score is finite.
    fn halved_masks(&mut self, node: &ShapedNode, scores: Scores, bias: ValueId) -> (Scores, ValueId) {
        let is_lowest = |x: f32| x.is_finite() && x < f32::MIN / 2.0;
        let is_mask = |table: &[f32]| table.iter().all(|x| *x == 0.0 || is_lowest(*x)) && table.iter().any(|x| *x != 0.0);
        let table = scores.by_distance.filter(|id| is_mask(&self.plan.weight(*id).data));
        let made = self.plan.nodes.iter().find(|made| made.output == bias).map(|made| &made.op);
        let is_lowered = |step: &Instruction| matches!(step, Instruction::Scalar(x) if is_lowest(*x));
        let (Some(table), Some(Op::Map { program, .. })) = (table, made) else { return (scores, bias) };
        if scores.bias.is_some() || !program.code().iter().any(is_lowered) {
            return (scores, bias);
        }
        let by_distance = Some(self.times_by_distance(node, table, 0.5));
        let steps = vec![Instruction::Arg(0), Instruction::Scalar(0.5), Instruction::Binary(Binary::Mul, 0, 1)];
        let bias = self.push(&node.name, scores.key_rows(), 1, Op::Map { program: Program::new(steps), args: vec![bias] });
        (Scores { by_distance, ..scores }, bias)
    }

    /// Whether a bias may be infinite: those of it that are finite leave each sequence a softmax.
    fn is_infinite(&self, bias: ValueId) -> bool {
        let Some(made) = self.plan.nodes.iter().find(|made| made.output == bias) else { return true };
        let Op::Map { program, args } = &made.op else { return true };
        let is_input = |arg: &ValueId| self.plan.inputs.iter().any(|port| port.value == *arg);
        let is_finite = |number: &Instruction| !matches!(number, Instruction::Scalar(number) if number.is_infinite());
        !program.code().iter().all(is_finite) || args.iter().any(|arg| !is_input(arg) && self.is_infinite(*arg))
    }

    /// Whether queries without a key have to get zeros from a kernel with biases by distance.
    fn is_zero_if_masked(&self, scores: &Scores) -> Result<bool, String> {
        let Some(table) = scores.by_distance.map(|id| self.plan.weight(id)) else {
            return Ok(scores.is_of_context && scores.is_guarded && scores.bias.is_some_and(|bias| self.is_infinite(bias)));
        };
        let by_distance = table.data.contains(&f32::NEG_INFINITY);
        let is_lowered = table.data.iter().any(|x| x.is_finite() && *x <= ABSORBS);
        let by_key = scores.bias.map(|bias| self.is_infinite(bias));
        // of a query that has only keys of one of the two, the other one would tell them apart
        if (by_distance && by_key == Some(false)) || (is_lowered && by_key == Some(true)) {
            return Err("has a mask by key and one by distance of different numbers".into());
        }
        Ok(scores.is_guarded && (by_distance || by_key == Some(true)))
    }

    /// Zero for the sequences whose every key has an infinite bias, where the softmax is no number.
    fn zero_where_all_masked(&mut self, node: &ShapedNode, value: ValueId, bias: ValueId) -> ValueId {
        let most = self.push(&node.name, Rows::Batch, 1, Op::Pool { x: bias, fold: Fold::Max });
        let is_masked = Instruction::Binary(Binary::Greater, 1, 2);
        let steps = [Instruction::Arg(0), Instruction::Arg(1), Instruction::Scalar(f32::NEG_INFINITY), is_masked];
        let program = Program::new([&steps[..], &[Instruction::Scalar(0.0), Instruction::Where(3, 0, 4)]].concat());
        let width = self.plan.value(value).width;
        self.push(&node.name, Rows::Token, width, Op::Map { program, args: vec![value, most] })
    }

    /// Scores of which some are replaced by a number so low that adding it would have the same effect.
    pub(crate) fn masked(&mut self, node: &ShapedNode) -> Result<Option<Scores>, String> {
        let (scores, other, is_kept_where_true) = match (self.input(node, 1)?, self.input(node, 2)?) {
            (TensorForm::Scores(scores), other) => (scores, other, true),
            (other, TensorForm::Scores(scores)) => (scores, other, false),
            _ => return Ok(None),
        };
        let number = if let TensorForm::Const(tensor) = &other { scalar(tensor) } else { None };
        let number = number.filter(|number| *number <= ABSORBS).ok_or("replaces scores by something that is not a mask")?;
        let form = self.input(node, 0)?;
        if let (TensorForm::Distances(_) | TensorForm::Pairs(_), false) = (&form, scores.is_softmax) {
            let no = "has a mask of other axes than the scores";
            let lowest = with_shape(&of_floats(Vec::new(), &[number]), vec![1; scores.axes.len()]);
            return match self.chosen(node, form, &lowest, is_kept_where_true)? {
                TensorForm::Distances(bias) => Ok(Some(self.biased_by_distance(node, &scores, &bias).ok_or(no)?)),
                TensorForm::Pairs(pairs) => Ok(Some(self.biased_by_pairs(node, scores, &pairs).ok_or(no)?)),
                _ => Err(no.into()),
            };
        }
        let mask = self.matrix(node, 0)?;
        if !scores.is_by_key(&mask) || scores.is_softmax {
            return Err("has a mask that is not the same for every query and head".into());
        }
        let mut steps = vec![Instruction::Arg(0), Instruction::Scalar(0.0), Instruction::Scalar(number)];
        steps.push(if is_kept_where_true { Instruction::Where(0, 1, 2) } else { Instruction::Where(0, 2, 1) });
        let more = self.push(&node.name, scores.key_rows(), 1, Op::Map { program: Program::new(steps), args: vec![mask.value] });
        Ok(Some(self.biased(node, scores, more)))
    }

    /// The product with the values.
    pub(crate) fn attend(
        &mut self,
        node: &ShapedNode,
        axes: &[EinsumAxis],
        scores: &Scores,
        v: &Matrix,
    ) -> Result<Matrix, String> {
        let no = || "multiplies scores in a way that no attention does".to_owned();
        if !scores.is_softmax {
            return Err("multiplies scores without a softmax".into());
        }
        let rank = axes.iter().filter_map(|axis| axis.out).max().map_or(0, |last| last + 1);
        let mut out = vec![Axis::One; rank];
        let (mut head, mut column) = (None, None);
        for axis in axes {
            let (score, own) = (axis.a.map(|place| scores.axes[place]), axis.b.map(|place| v.axes[place]));
            let made = match (score, own, axis.out) {
                (Some(Score::Batch), Some(Axis::Batch), Some(_)) => Axis::Batch,
                (Some(Score::Query), None, Some(_)) => Axis::Token,
                (Some(Score::Key), Some(Axis::Token | Axis::Context), None) if v.rows() == scores.key_rows() => continue,
                (Some(Score::Head), Some(other), Some(_)) => {
                    head = key_heads(v, other, scores.heads).ok_or_else(no)?;
                    Axis::Column(0)
                }
                (None, Some(Axis::Column(place)), Some(_)) if column.is_none() => {
                    column = Some(place);
                    Axis::Column(usize::from(scores.heads > 1))
                }
                (None | Some(Score::One), None | Some(Axis::One), _) => Axis::One,
                _ => return Err(no()),
            };
            if let Some(place) = axis.out {
                out[place] = made;
            }
        }
        let in_order = head.is_none_or(|head| column.is_none_or(|column| head < column));
        if !in_order {
            return Err("has heads whose columns are not contiguous".into());
        }
        let head_out = column.map_or(1, |place| v.sizes[place]);
        let has_heads = head.map_or(1, |place| v.sizes[place]) == scores.key_heads;
        if !has_heads || scores.key_heads * head_out != v.width() {
            return Err(no());
        }
        let is_zero_if_masked = self.is_zero_if_masked(scores)?;
        let v = self.float(node, v);
        let columns = |value| Columns { value, from: 0 };
        let op = Op::Attention {
            q: columns(scores.q),
            k: columns(scores.k),
            v: columns(v),
            heads: scores.heads,
            key_heads: scores.key_heads,
            head: scores.head,
            head_out,
            scale: scores.scale,
            bias: scores.bias,
            by_distance: scores.by_distance,
            is_zero_if_masked,
        };
        let mut value = self.push(&node.name, Rows::Token, scores.heads * head_out, op);
        // the kernels for biases by distance and for contexts do it themselves
        let bias = scores.bias.filter(|_| scores.is_guarded && scores.by_distance.is_none() && !scores.is_of_context);
        if let Some(bias) = bias.filter(|bias| self.is_infinite(*bias)) {
            value = self.zero_where_all_masked(node, value, bias);
        }
        let sizes = if scores.heads > 1 { vec![scores.heads, head_out] } else { vec![head_out] };
        Ok(Matrix { value, axes: out, sizes }.squeezed())
    }
}
