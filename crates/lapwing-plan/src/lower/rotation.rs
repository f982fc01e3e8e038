//! Recognises the rotation of queries and keys by the tokens' positions: the columns of each head times cosines, plus the same columns with
//! their halves swapped, the then first one negated, times sines. Both are tables by position, or computed from ids of positions.

use lapwing_onnx::shaped::{Constant, ShapedNode};

use super::constant::{floats, of_rank, part};
use super::form::{Axis, Factors, Matrix, Rotation};
use super::{Lowering, TensorForm};
use crate::plan::{Angles, Binary, Columns, Op, Rows, ValueId, WeightId};

impl Rotation {
    /// The columns of `from..to` of each head, if they are a half of them.
    pub(crate) fn half(matrix: &Matrix, column: usize, from: usize, to: usize) -> Option<TensorForm> {
        if column != 1 || matrix.sizes.len() != 2 {
            return None;
        }
        let (half, size) = (matrix.sizes[1] / 2, matrix.sizes[1]);
        let is_second = (from, to) == (half, size);
        let is_half = size.is_multiple_of(2) && (is_second || (from, to) == (0, half));
        let half = Self::Half { of: matrix.clone(), is_second, is_negative: false };
        is_half.then_some(TensorForm::Rotation(half))
    }

    /// The negative of a half.
    pub(crate) fn negative(self) -> Option<TensorForm> {
        let Self::Half { of, is_second, is_negative } = self else { return None };
        Some(TensorForm::Rotation(Self::Half { of, is_second, is_negative: !is_negative }))
    }

    /// The second half negated and the first one, joined along their columns.
    pub(crate) fn turned(forms: &[TensorForm], axis: usize) -> Option<TensorForm> {
        let [TensorForm::Rotation(first), TensorForm::Rotation(second)] = forms else { return None };
        match (first, second) {
            (
                Self::Half { of, is_second: true, is_negative: true },
                Self::Half { of: other, is_second: false, is_negative: false },
            ) if of == other && of.axes[axis] == Axis::Column(1) => Some(TensorForm::Rotation(Self::Turned(of.clone()))),
            _ => None,
        }
    }
}

impl Lowering<'_> {
    /// A product or a sum that is a part of a rotation; `None` if it is none.
    pub(crate) fn rotated(&mut self, node: &ShapedNode, op: Binary) -> Result<Option<TensorForm>, String> {
        let product = |of: Matrix, is_turned: bool, table: Option<Factors>| {
            table.map(|table| TensorForm::Rotation(Rotation::Product { of, is_turned, table }))
        };
        let no = || Err("takes parts of columns in a way that no rotation does".to_owned());
        Ok(match (op, self.input(node, 0)?, self.input(node, 1)?) {
            (Binary::Mul, TensorForm::Matrix(of), TensorForm::ByPosition(table, axis, from))
            | (Binary::Mul, TensorForm::ByPosition(table, axis, from), TensorForm::Matrix(of)) => {
                let table = rows(&of, &table, axis, from)?.filter(|_| !self.has_past());
                product(of, false, table.map(|table| Factors::ByPosition(table.into())))
            }
            (Binary::Mul, TensorForm::Rotation(Rotation::Turned(of)), TensorForm::ByPosition(table, axis, from))
            | (Binary::Mul, TensorForm::ByPosition(table, axis, from), TensorForm::Rotation(Rotation::Turned(of))) => {
                let table = rows(&of, &table, axis, from)?.filter(|_| !self.has_past());
                let table = table.map(|table| Factors::ByPosition(table.into()));
                product(of, true, table).map_or_else(no, |made| Ok(Some(made)))?
            }
            (Binary::Mul, TensorForm::Matrix(one), TensorForm::Matrix(other)) => {
                let (of, table) = if one.sizes.len() > other.sizes.len() { (one, other) } else { (other, one) };
                let table = by_token(&of, &table).map(Factors::ByToken);
                product(of, false, table)
            }
            (Binary::Mul, TensorForm::Rotation(Rotation::Turned(of)), TensorForm::Matrix(table))
            | (Binary::Mul, TensorForm::Matrix(table), TensorForm::Rotation(Rotation::Turned(of))) => {
                let table = by_token(&of, &table).map(Factors::ByToken);
                product(of, true, table).map_or_else(no, |made| Ok(Some(made)))?
            }
            (Binary::Add, TensorForm::Rotation(one), TensorForm::Rotation(other)) => match (one, other) {
                (
                    Rotation::Product { of, is_turned: false, table: cos },
                    Rotation::Product { of: also, is_turned: true, table: sin },
                )
                | (
                    Rotation::Product { of: also, is_turned: true, table: sin },
                    Rotation::Product { of, is_turned: false, table: cos },
                ) if of == also => Some(TensorForm::Matrix(self.rotation(node, of, &cos, &sin)?)),
                _ => no()?,
            },
            (_, TensorForm::Rotation(_), _) | (_, _, TensorForm::Rotation(_)) => no()?,
            _ => None,
        })
    }

    fn rotation(&mut self, node: &ShapedNode, of: Matrix, cos: &Factors, sin: &Factors) -> Result<Matrix, String> {
        let angles = match (cos, sin) {
            (Factors::ByPosition(cos), Factors::ByPosition(sin)) => {
                Angles::ByPosition { cos: self.position_table(node, cos)?, sin: self.position_table(node, sin)? }
            }
            (Factors::ByToken(cos), Factors::ByToken(sin)) => Angles::ByToken { cos: *cos, sin: *sin },
            _ => return Err("rotates by a table and by what is computed".into()),
        };
        let x = Columns { value: self.float(node, &of), from: 0 };
        let op = Op::Rotate { x, heads: of.sizes[0], head: of.sizes[1], angles };
        let value = self.push(&node.name, Rows::Token, of.width(), op);
        Ok(Matrix { value, ..of })
    }

    /// A table by position as a weight; the layers of a model share it.
    fn position_table(&mut self, node: &ShapedNode, table: &Constant) -> Result<WeightId, String> {
        let is_known =
            |(known, _): &&(bytes::Bytes, WeightId)| known.as_ptr() == table.data.as_ptr() && known.len() == table.data.len();
        if let Some((_, id)) = self.tables.iter().find(is_known) {
            return Ok(*id);
        }
        let width = table.shape.last().copied().unwrap_or(1);
        let id = self.weight(&node.name, table.elements() / width.max(1), width, floats(table)?);
        self.tables.push((table.data.clone(), id));
        Ok(id)
    }
}

/// The value of factors that are computed for each token, if there is one for each column of a head.
fn by_token(of: &Matrix, table: &Matrix) -> Option<ValueId> {
    let (token, column) = (Axis::Token, Axis::Column(1));
    let fits = |(own, factor): (&Axis, &Axis)| match *own {
        own if own == column => *factor == Axis::Column(0),
        own if own == token => *factor == token,
        Axis::Batch => matches!(factor, Axis::Batch | Axis::One | Axis::Spread(_)),
        _ => matches!(factor, Axis::One | Axis::Spread(_)),
    };
    let is_table = of.sizes.len() == 2
        && table.sizes == of.sizes[1..]
        && table.axes.len() == of.axes.len()
        && of.rows() == Rows::Token
        && table.axes.contains(&token)
        && of.axes.iter().zip(&table.axes).all(fits);
    is_table.then_some(table.value)
}

/// The table's rows by position, if it has one for each token and a number for each column of a head.
fn rows(of: &Matrix, table: &Constant, axis: usize, from: usize) -> Result<Option<Constant>, String> {
    let rank = of.axes.len();
    let Some(added) = rank.checked_sub(table.shape.len()) else { return Ok(None) };
    let (table, token) = (of_rank(table, rank), axis + added);
    let column = of.axes.iter().position(|own| *own == Axis::Column(1));
    let fits = |(at, length): (usize, &usize)| {
        at == token || (Some(at) == column && Some(length) == of.sizes.get(1)) || (Some(at) != column && *length == 1)
    };
    let is_table = of.sizes.len() == 2
        && of.axes[token] == Axis::Token
        && column.is_some_and(|column| token < column)
        && table.shape.iter().enumerate().all(fits);
    if !is_table {
        return Ok(None);
    }
    Ok(Some(if from == 0 { table } else { part(&table, token, from, usize::MAX)? }))
}
