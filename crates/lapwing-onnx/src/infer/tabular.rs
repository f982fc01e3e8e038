//! The operators of `ai.onnx.ml`, which read a matrix, or a vector as one row.

use super::lengths::{Symbols, shown};
use crate::shaped::Length;
use crate::view::{Shapes, View};

/// The rows of the first input.
fn rows(view: &View<'_>, symbols: &mut Symbols) -> Result<Length, String> {
    match view.required(0)? {
        None => Ok(symbols.fresh()),
        Some([]) => Err("reads a scalar".into()),
        Some([_]) => Ok(Length::Value(1)),
        Some([rows, ..]) => Ok(rows.clone()),
    }
}

/// A column for each number of the attribute.
fn columns(count: usize, symbols: &mut Symbols) -> Length {
    if count == 0 { symbols.fresh() } else { symbols.of(count as i64) }
}

/// Classifiers: a label for each row, and a score for each class.
pub(crate) fn classifier(view: &View<'_>, symbols: &mut Symbols) -> Shapes {
    let names = ["classlabels_int64s", "classlabels_ints"];
    let ints = names.iter().filter_map(|name| view.node.ints(name)).map(<[i64]>::len);
    let texts = ["classlabels_strings"].iter().map(|name| view.node.texts(name));
    let classes = ints.chain(texts).max().unwrap_or(0);
    let rows = rows(view, symbols)?;
    // support vectors without probabilities may answer with a score for each pair of classes
    let is_certain = view.node.operator != "SVMClassifier" || view.node.floats("prob_a").is_some_and(|given| !given.is_empty());
    let scores = if is_certain { columns(classes, symbols) } else { symbols.fresh() };
    Ok(vec![Some(vec![rows.clone()]), Some(vec![rows, scores])])
}

/// Regressors: a number for each target.
pub(crate) fn regressor(view: &View<'_>, symbols: &mut Symbols) -> Shapes {
    let targets = view.node.int("n_targets").or_else(|| view.node.int("targets")).unwrap_or(1);
    Ok(vec![Some(vec![rows(view, symbols)?, symbols.of(targets)])])
}

/// `FeatureVectorizer`: the columns of all inputs side by side.
pub(crate) fn features(view: &View<'_>, symbols: &mut Symbols) -> Shapes {
    let columns = view.node.ints("inputdimensions").map_or(0, |given| given.iter().fold(0_i64, |sum, n| sum.saturating_add(*n)));
    let columns = if columns > 0 { symbols.of(columns) } else { symbols.fresh() };
    Ok(vec![Some(vec![rows(view, symbols)?, columns])])
}

/// `ArrayFeatureExtractor`: the columns that the indices name.
pub(crate) fn extract(view: &View<'_>, symbols: &mut Symbols) -> Shapes {
    let (Some(shape), indices) = (view.required(0)?, view.required(1)?) else { return Ok(vec![None]) };
    let taken = if let Some(indices) = indices { symbols.product(indices) } else { symbols.fresh() };
    Ok(vec![Some(match shape {
        [] => return Err("reads a scalar".into()),
        [_] => vec![Length::Value(1), taken],
        [outer @ .., _] => [outer, &[taken]].concat(),
    })])
}

/// `OneHotEncoder`: an axis more, with the categories.
pub(crate) fn one_hot(view: &View<'_>, symbols: &mut Symbols) -> Shapes {
    let Some(shape) = view.required(0)? else { return Ok(vec![None]) };
    let categories = view.node.ints("cats_int64s").map_or(0, <[i64]>::len).max(view.node.texts("cats_strings"));
    Ok(vec![Some([shape, &[columns(categories, symbols)]].concat())])
}

/// `TfIdfVectorizer`: the last axis has the counts.
pub(crate) fn tf_idf(view: &View<'_>, symbols: &mut Symbols) -> Shapes {
    let Some(shape) = view.required(0)? else { return Ok(vec![None]) };
    let columns = view.node.ints("ngram_indexes").and_then(|given| given.iter().max().copied());
    let columns = match columns {
        Some(most @ 0..) => symbols.of(most.saturating_add(1)),
        _ => symbols.fresh(),
    };
    Ok(vec![Some(match shape {
        [] => return Err(format!("reads the shape {}", shown(shape))),
        [outer @ .., _] => [outer, &[columns]].concat(),
    })])
}
