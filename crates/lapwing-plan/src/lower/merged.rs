//! Axes that are merged: heads and tokens with the batch, and taken apart again, and heads with how often each is repeated.

use super::extent::Extent;
use super::form::{Axis, Matrix};

/// The matrix with its heads merged with the batch, or taken apart again; `None` if the lengths are no such.
pub(crate) fn with_heads(matrix: &Matrix, from: &[Extent], to: &[Extent]) -> Option<Matrix> {
    let place = |extents: &[Extent]| {
        extents.iter().enumerate().find_map(|(at, extent)| if let Extent::BatchTimes(n) = extent { Some((at, *n)) } else { None })
    };
    let is_split = |whole: &[Extent], parts: &[Extent], at: usize, heads: usize| {
        parts.get(at..at + 2) == Some(&[Extent::Batch, Extent::Fixed(heads)][..])
            && whole[..at] == parts[..at]
            && whole[at + 1..] == parts[at + 2..]
    };
    let mut axes = matrix.axes.clone();
    match (place(from), place(to)) {
        (None, Some((at, heads))) if is_split(to, from, at, heads) => {
            let merged = match axes[at + 1] {
                Axis::Column(column) => Axis::BatchAnd(Some(column), 1),
                Axis::Repeated(column, times) => Axis::BatchAnd(Some(column), times),
                Axis::Spread(Some(times)) => Axis::BatchAnd(None, times),
                _ => return None,
            };
            axes.splice(at..at + 2, [merged]);
        }
        (Some((at, heads)), None) if is_split(from, to, at, heads) => {
            let column = match axes[at] {
                Axis::BatchAnd(Some(column), 1) => Axis::Column(column),
                Axis::BatchAnd(Some(column), times) => Axis::Repeated(column, times),
                Axis::BatchAnd(None, times) => Axis::Spread(Some(times)),
                _ => return None,
            };
            axes.splice(at..=at, [Axis::Batch, column]);
        }
        _ => return None,
    }
    Some(matrix.with_axes(axes))
}

/// The matrix with a column axis and the axis behind it, along which it was broadcast, merged into one; `None` if the lengths do not ask
/// for that.
pub(crate) fn with_repeats(matrix: &Matrix, from: &[Extent], to: &[Extent]) -> Option<Matrix> {
    let at = matrix.axes.windows(2).position(|pair| matches!(pair, [Axis::Column(_) | Axis::One, Axis::Spread(Some(_))]))?;
    let (Extent::Fixed(columns), Extent::Fixed(times)) = (from[at], from[at + 1]) else { return None };
    let is_merged =
        from[..at] == *to.get(..at)? && *to.get(at)? == Extent::Fixed(columns * times) && from[at + 2..] == to[at + 1..];
    let merged = match matrix.axes[at] {
        Axis::Column(column) => Axis::Repeated(column, times),
        _ => Axis::Spread(Some(times)),
    };
    let mut axes = matrix.axes.clone();
    axes.splice(at..at + 2, [merged]);
    is_merged.then(|| matrix.with_axes(axes))
}

/// The matrix with batch and tokens merged into one axis or taken apart, as the lengths ask for, and its lengths then; `None` if they
/// do not.
pub(crate) fn with_tokens(matrix: &Matrix, from: &[Extent], to: &[Extent]) -> Option<(Matrix, Vec<Extent>)> {
    const APART: [(Extent, Axis); 2] = [(Extent::Batch, Axis::Batch), (Extent::Token, Axis::Token)];
    const MERGED: [(Extent, Axis); 1] = [(Extent::AllTokens, Axis::AllTokens)];
    let place = |all: &[Extent], wanted: &[(Extent, Axis)]| {
        all.windows(wanted.len()).position(|run| run.iter().eq(wanted.iter().map(|(extent, _)| extent)))
    };
    let change = |old: &[(Extent, Axis)], new: &[(Extent, Axis)]| {
        let at = place(from, old).filter(|_| place(to, old).is_none() && place(to, new).is_some())?;
        let (mut axes, mut lengths) = (matrix.axes.clone(), from.to_vec());
        axes.splice(at..at + old.len(), new.iter().map(|(_, axis)| *axis));
        lengths.splice(at..at + old.len(), new.iter().map(|(extent, _)| *extent));
        Some((matrix.with_axes(axes), lengths))
    };
    change(&APART, &MERGED).or_else(|| change(&MERGED, &APART))
}
