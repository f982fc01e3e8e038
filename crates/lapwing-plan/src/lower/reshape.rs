//! Reshapes: columns are split and merged, axes of length one come and go; batch and tokens stay.

use lapwing_onnx::shaped::ShapedNode;

use super::constant::with_shape;
use super::extent::{Extent, Values, extent, is_all_tokens};
use super::form::{Axis, Matrix, Places, Score};
use super::merged::{with_heads, with_repeats, with_tokens};
use super::{Lowered, Lowering, TensorForm, axis_of};
use crate::plan::Rows;

impl Lowering<'_> {
    /// `Reshape` and `Flatten`.
    pub(crate) fn reshape(&mut self, node: &ShapedNode) -> Lowered {
        let made = match self.input(node, 0)? {
            TensorForm::Matrix(matrix) => {
                if let Some(flat) = self.flat(node, &matrix)? {
                    return Ok(vec![flat]);
                }
                let from: Vec<Extent> = extents(&matrix)?;
                let to = if node.operator == "Flatten" {
                    flattened(&from, axis_of(node.int("axis").unwrap_or(1), from.len() + 1)?)?
                } else {
                    self.target(node, &from)?
                };
                TensorForm::Matrix(reshaped(&matrix, &from, &to)?)
            }
            TensorForm::Const(constant) => {
                // spread over batch and tokens: only axes of one elsewhere can be told apart
                let to = self.lengths(node, 1)?;
                let fixed = |values: &Option<Values>| match values.map(extent) {
                    Some(Extent::Fixed(length)) => length,
                    _ => 1,
                };
                let to: Vec<usize> = to.iter().map(fixed).collect();
                if to.iter().product::<usize>() != constant.elements() {
                    return Err("reshapes a constant that is spread over the batch".into());
                }
                TensorForm::Const(with_shape(&constant, to).into())
            }
            TensorForm::Places(places) => TensorForm::Places(self.reshaped_places(node, places)?),
            TensorForm::Flat(matrix, _) => self.unflattened(node, &matrix)?,
            count @ TensorForm::Count { .. } => count,
            TensorForm::Scores(scores) => {
                // exporters fold the heads into the batch and back: only what changes nothing is taken
                let to = self.lengths(node, 1)?;
                let fits = |(score, values): (&Score, &Option<Values>)| match (score, values.map(extent)) {
                    (Score::Batch, Some(Extent::Batch)) | (Score::Query, Some(Extent::Token)) => true,
                    (Score::Key, Some(Extent::Token)) => !scores.is_of_context,
                    (Score::Key, Some(Extent::Context)) => scores.is_of_context,
                    (Score::Head, Some(Extent::Fixed(heads))) => heads == scores.heads,
                    (Score::One, Some(Extent::Fixed(1))) => true,
                    (_, None) => true,
                    (_, Some(_)) => *values == Some([0; 3]) || *values == Some([-1; 3]),
                };
                if to.len() != scores.axes.len() || !scores.axes.iter().zip(&to).all(fits) {
                    return Err("changes the axes of scores".into());
                }
                TensorForm::Scores(scores)
            }
            TensorForm::ByPosition(..)
            | TensorForm::Distances(_)
            | TensorForm::Pairs(_)
            | TensorForm::Rotation(_)
            | TensorForm::Tuple(_)
            | TensorForm::NaNs(_) => {
                return Err("reshapes what is cut by position".into());
            }
        };
        Ok(vec![made])
    }

    /// The lengths that a `Reshape` asks for; the one that it leaves open is what remains.
    fn target(&self, node: &ShapedNode, from: &[Extent]) -> Result<Vec<Extent>, String> {
        let is_kept = node.int("allowzero").unwrap_or(0) == 0;
        let mut to = Vec::new();
        for (place, values) in self.lengths(node, 1)?.into_iter().enumerate() {
            to.push(match values {
                Some([0, 0, 0]) if is_kept => *from.get(place).ok_or("keeps an axis that is not there")?,
                Some(values) => extent(values),
                None => Extent::Other,
            });
        }
        let mut open = to.iter().enumerate().filter(|(_, extent)| **extent == Extent::Other).map(|(place, _)| place);
        let Some(place) = open.next() else { return Ok(to) };
        if open.next().is_some() {
            return Err("asks for several lengths that are not known".into());
        }
        let is =
            |extent: &Extent, kind: Extent| *extent == kind || (kind == Extent::Batch && matches!(extent, Extent::BatchTimes(_)));
        let count = |of: &[Extent], kind: Extent| of.iter().filter(|extent| is(extent, kind)).count();
        let factor = |extent: &Extent| if let Extent::Fixed(n) | Extent::BatchTimes(n) = extent { *n } else { 1 };
        let fixed = |of: &[Extent]| -> usize { of.iter().map(factor).product() };
        let missing = |kind: Extent| count(from, kind).checked_sub(count(&to, kind));
        let (all, given) = (fixed(from), fixed(&to));
        to[place] = match (missing(Extent::Batch), missing(Extent::Token), missing(Extent::Context)) {
            (Some(0), Some(0), Some(0)) if given > 0 && all.is_multiple_of(given) => Extent::Fixed(all / given),
            (Some(1), Some(0), Some(0)) if all == given => Extent::Batch,
            (Some(1), Some(0), Some(0)) if given > 0 && all.is_multiple_of(given) => Extent::BatchTimes(all / given),
            (Some(0), Some(1), Some(0)) if all == given => Extent::Token,
            (Some(0), Some(0), Some(1)) if all == given => Extent::Context,
            (Some(1), Some(1), Some(0)) if all == given => Extent::AllTokens,
            _ => return Err("merges or splits the batch or token axis".into()),
        };
        Ok(to)
    }

    /// A matrix of one column whose batch and tokens are merged, if the node does that.
    fn flat(&self, node: &ShapedNode, matrix: &Matrix) -> Result<Option<TensorForm>, String> {
        let open: Vec<Axis> = matrix.axes.iter().copied().filter(|axis| *axis != Axis::One).collect();
        if !matches!(open[..], [Axis::Batch, Axis::Token | Axis::Context]) {
            return Ok(None);
        }
        let rest = if node.operator == "Flatten" {
            let axis = axis_of(node.int("axis").unwrap_or(1), matrix.axes.len() + 1)?;
            let token = matrix.axes.iter().position(|axis| *axis == open[1]);
            (token.is_some_and(|token| token < axis)).then_some(1)
        } else {
            let to = self.lengths(node, 1)?;
            let ones = to.iter().skip(1).filter(|values| **values == Some([1; 3])).count();
            let is_merged =
                to.first().is_some_and(|values| values.is_none_or(|values| is_all_tokens(values) || values == [-1; 3]));
            (is_merged && ones + 1 == to.len()).then_some(ones)
        };
        Ok(rest.map(|rest| TensorForm::Flat(matrix.clone(), rest)))
    }

    /// Merged batch and tokens, taken apart again.
    fn unflattened(&self, node: &ShapedNode, matrix: &Matrix) -> Result<TensorForm, String> {
        let no = || "merges or splits the batch or token axis".to_owned();
        if node.operator == "Flatten" {
            return Err(no());
        }
        let to = self.lengths(node, 1)?;
        // the tokens', or the context's
        let own = if matrix.rows() == Rows::Context { Axis::Context } else { Axis::Token };
        let mut axes = Vec::with_capacity(to.len());
        for values in &to {
            axes.push(match values.map(extent) {
                Some(Extent::Batch) => Axis::Batch,
                Some(Extent::Token) if own == Axis::Token => own,
                Some(Extent::Context) if own == Axis::Context => own,
                Some(Extent::Fixed(1)) => Axis::One,
                _ if *values == Some([-1; 3]) || values.is_none_or(is_all_tokens) => Axis::Spread(None),
                _ => return Err(no()),
            });
        }
        let open: Vec<Axis> = axes.iter().copied().filter(|axis| *axis != Axis::One).collect();
        match open[..] {
            [Axis::Batch, Axis::Token | Axis::Context] => Ok(TensorForm::Matrix(matrix.with_axes(axes))),
            [Axis::Spread(None)] if axes[0] == Axis::Spread(None) => Ok(TensorForm::Flat(matrix.clone(), axes.len() - 1)),
            // one of the two is what remains
            [Axis::Spread(None), Axis::Token | Axis::Context] | [Axis::Batch, Axis::Spread(None)] => {
                let other = if open[0] == Axis::Batch { own } else { Axis::Batch };
                let axes = axes.into_iter().map(|axis| if axis == Axis::Spread(None) { other } else { axis }).collect();
                Ok(TensorForm::Matrix(matrix.with_axes(axes)))
            }
            _ => Err(no()),
        }
    }

    /// Places with axes of length one added and removed.
    fn reshaped_places(&self, node: &ShapedNode, places: Places) -> Result<Places, String> {
        let no = "changes the axis of the tokens";
        if node.operator == "Flatten" {
            return Err(no.into());
        }
        let to = self.lengths(node, 1)?;
        let open: Vec<usize> = (0..to.len()).filter(|at| to[*at] != Some([1; 3])).collect();
        let mut own: Vec<usize> = places.terms.iter().map(|term| term.at).collect();
        own.sort_unstable();
        own.dedup();
        if open.len() != own.len() {
            return Err(no.into());
        }
        let moved = |at: usize| own.iter().position(|own| *own == at).map_or(at, |place| open[place]);
        Ok(places.moved(to.len(), moved))
    }

    pub(crate) fn squeeze(&mut self, node: &ShapedNode) -> Lowered {
        let form = self.input(node, 0)?;
        let rank = rank(&form);
        let named = self.numbers(node, "axes", 1)?;
        let mut places = match named {
            Some(axes) => axes.into_iter().map(|axis| axis_of(axis, rank)).collect::<Result<Vec<_>, _>>()?,
            None => match &form {
                TensorForm::Matrix(matrix) => (0..rank).filter(|place| matrix.axes[*place] == Axis::One).collect(),
                TensorForm::Const(constant) => (0..rank).filter(|place| constant.shape[*place] == 1).collect(),
                _ => return Err("removes axes that it does not name".into()),
            },
        };
        places.sort_unstable();
        let mut form = form;
        for place in places.into_iter().rev() {
            form = without(form, place)?;
        }
        Ok(vec![form])
    }

    pub(crate) fn unsqueeze(&mut self, node: &ShapedNode) -> Lowered {
        let mut form = self.input(node, 0)?;
        let axes = self.numbers(node, "axes", 1)?.ok_or("names no axes")?;
        let rank = rank(&form) + axes.len();
        let mut places = axes.into_iter().map(|axis| axis_of(axis, rank)).collect::<Result<Vec<_>, _>>()?;
        places.sort_unstable();
        for place in places {
            form = with_one(form, place)?;
        }
        Ok(vec![form])
    }
}

/// The number of a form's axes; a number of tokens has none.
pub(crate) fn rank(form: &TensorForm) -> usize {
    match form {
        TensorForm::Const(constant) | TensorForm::ByPosition(constant, ..) => constant.shape.len(),
        TensorForm::Matrix(matrix) => matrix.axes.len(),
        TensorForm::Distances(distances) => distances.values.shape.len(),
        TensorForm::Pairs(pairs) => pairs.distances.values.shape.len(),
        TensorForm::Rotation(rotation) => rotation.rank(),
        TensorForm::Places(places) => places.rank,
        TensorForm::Tuple(places) => places.first().map_or(0, |first| first.rank + 1),
        TensorForm::Flat(_, ones) => 1 + ones,
        TensorForm::Count { .. } => 0,
        TensorForm::Scores(scores) | TensorForm::NaNs(scores) => scores.axes.len(),
    }
}

/// The form with an axis of length one at `at`.
pub(crate) fn with_one(form: TensorForm, at: usize) -> Result<TensorForm, String> {
    let behind = |axis: usize| if at <= axis { axis + 1 } else { axis };
    let with = |mut shape: Vec<usize>| {
        shape.insert(at.min(shape.len()), 1);
        shape
    };
    Ok(match form {
        TensorForm::Matrix(mut matrix) => {
            matrix.axes.insert(at, Axis::One);
            TensorForm::Matrix(matrix)
        }
        TensorForm::Const(constant) => TensorForm::Const(with_shape(&constant, with(constant.shape.clone())).into()),
        TensorForm::ByPosition(constant, axis, from) => {
            TensorForm::ByPosition(with_shape(&constant, with(constant.shape.clone())).into(), behind(axis), from)
        }
        TensorForm::Places(places) => {
            let rank = places.rank + 1;
            TensorForm::Places(places.moved(rank, behind))
        }
        TensorForm::Distances(distances) => {
            let values = with_shape(&distances.values, with(distances.values.shape.clone()));
            TensorForm::Distances(distances.moved(values, behind))
        }
        TensorForm::Flat(matrix, ones) if at > 0 => TensorForm::Flat(matrix, ones + 1),
        TensorForm::Flat(..) | TensorForm::Tuple(_) | TensorForm::NaNs(_) | TensorForm::Pairs(_) | TensorForm::Rotation(_) => {
            return Err("changes the axes of merged tokens".into());
        }
        TensorForm::Scores(mut scores) => {
            scores.axes.insert(at, Score::One);
            TensorForm::Scores(scores)
        }
        count @ TensorForm::Count { .. } => count,
    })
}

/// The form without the axis at `at`, which must be of length one.
fn without(form: TensorForm, at: usize) -> Result<TensorForm, String> {
    let is_one = |constant: &lapwing_onnx::shaped::Constant| constant.shape.get(at) == Some(&1);
    let cut = |constant: &lapwing_onnx::shaped::Constant| {
        let mut shape = constant.shape.clone();
        shape.remove(at);
        with_shape(constant, shape)
    };
    let before = |axis: usize| if at < axis { axis - 1 } else { axis };
    Ok(match form {
        TensorForm::Matrix(mut matrix) => match matrix.axes.get(at) {
            Some(Axis::One) => {
                matrix.axes.remove(at);
                TensorForm::Matrix(matrix)
            }
            other => return Err(format!("removes axis {at}, which is {other:?}")),
        },
        TensorForm::Const(constant) if is_one(&constant) => TensorForm::Const(cut(&constant).into()),
        TensorForm::ByPosition(constant, axis, from) if axis != at && is_one(&constant) => {
            TensorForm::ByPosition(cut(&constant).into(), before(axis), from)
        }
        TensorForm::Places(places) if places.terms.iter().all(|term| term.at != at) => {
            let rank = places.rank - 1;
            TensorForm::Places(places.moved(rank, before))
        }
        TensorForm::Distances(distances) if distances.from != at && distances.to != at && is_one(&distances.values) => {
            let values = cut(&distances.values);
            TensorForm::Distances(distances.moved(values, before))
        }
        TensorForm::Flat(matrix, ones) if at > 0 && ones > 0 => TensorForm::Flat(matrix, ones - 1),
        TensorForm::Scores(mut scores) if scores.axes.get(at) == Some(&Score::One) => {
            scores.axes.remove(at);
            TensorForm::Scores(scores)
        }
        _ => return Err(format!("removes axis {at}, which is not of length one")),
    })
}

/// The lengths of a matrix's axes.
fn extents(matrix: &Matrix) -> Result<Vec<Extent>, String> {
    let extent = |axis: &Axis| match axis {
        Axis::Batch => Ok(Extent::Batch),
        Axis::Token => Ok(Extent::Token),
        Axis::Past => Ok(Extent::Past),
        Axis::Context => Ok(Extent::Context),
        Axis::Column(place) => Ok(Extent::Fixed(matrix.sizes[*place])),
        Axis::AllTokens => Ok(Extent::AllTokens),
        Axis::Repeated(place, times) => Ok(Extent::Fixed(matrix.sizes[*place] * times)),
        Axis::BatchAnd(place, times) => Ok(Extent::BatchTimes(place.map_or(1, |place| matrix.sizes[place]) * times)),
        Axis::One => Ok(Extent::Fixed(1)),
        Axis::Spread(Some(length)) => Ok(Extent::Fixed(*length)),
        Axis::Spread(None) => Err("reshapes what is the same along an axis".to_owned()),
    };
    matrix.axes.iter().map(extent).collect()
}

fn flattened(from: &[Extent], axis: usize) -> Result<Vec<Extent>, String> {
    let product = |part: &[Extent]| {
        let open: Vec<Extent> = part.iter().copied().filter(|extent| !matches!(extent, Extent::Fixed(_))).collect();
        let fixed: usize = part.iter().map(|extent| if let Extent::Fixed(length) = extent { *length } else { 1 }).product();
        match open[..] {
            [] => Ok(Extent::Fixed(fixed)),
            [open] if fixed == 1 => Ok(open),
            _ => Err("merges or splits the batch or token axis".to_owned()),
        }
    };
    Ok(vec![product(&from[..axis])?, product(&from[axis..])?])
}

/// The matrix with other axes: each run of fixed lengths between the open ones is split or merged on its own.
fn reshaped(matrix: &Matrix, from: &[Extent], to: &[Extent]) -> Result<Matrix, String> {
    let merges = || "merges or splits the batch or token axis".to_owned();
    if let Some(made) = with_repeats(matrix, from, to).or_else(|| with_heads(matrix, from, to)) {
        return Ok(made);
    }
    if let Some((made, from)) = with_tokens(matrix, from, to) {
        return reshaped(&made, &from, to);
    }
    let open = |extents: &[Extent]| -> Vec<Extent> {
        extents.iter().copied().filter(|extent| !matches!(extent, Extent::Fixed(_))).collect()
    };
    if open(from) != open(to) {
        return Err(merges());
    }
    let mut made = matrix.clone();
    // from the end, so that places before it stay
    let (mut source, mut target) = (from.len(), to.len());
    loop {
        let run = |extents: &[Extent], end: usize| {
            extents[..end].iter().rposition(|extent| !matches!(extent, Extent::Fixed(_))).map_or(0, |open| open + 1)
        };
        let (first, wanted) = (run(from, source), run(to, target));
        let lengths = |extents: &[Extent]| -> Vec<usize> {
            extents.iter().map(|extent| if let Extent::Fixed(length) = extent { *length } else { 1 }).collect()
        };
        let (old, new) = (lengths(&from[first..source]), lengths(&to[wanted..target]));
        if old != new {
            if old.iter().product::<usize>() != new.iter().product::<usize>() {
                return Err(merges());
            }
            made = made.reshaped(first, &old, &new).ok_or("merges columns that are not contiguous, or the same along an axis")?;
        }
        if first == 0 || wanted == 0 {
            return if first == wanted { Ok(made) } else { Err(merges()) };
        }
        (source, target) = (first - 1, wanted - 1);
    }
}
