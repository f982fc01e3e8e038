//! Columns taken apart and put together: `ArrayFeatureExtractor`, `FeatureVectorizer`, `ZipMap`.

use crate::attributes::{Attributes, Reason};
use crate::operator::{Operator, Scratch, required};
use crate::value::{Elements, Value, count, map_each};

#[derive(Debug)]
struct ArrayFeatureExtractor;

/// `ArrayFeatureExtractor`: elements of the last axis, by index.
pub(crate) fn array_feature_extractor(_: Attributes<'_>, _: &[Option<&Value>]) -> Result<Box<dyn Operator>, Reason> {
    Ok(Box::new(ArrayFeatureExtractor))
}

impl Operator for ArrayFeatureExtractor {
    fn run(&self, inputs: &[Option<&Value>], _: &mut Scratch) -> Result<Vec<Value>, Reason> {
        let (value, indices) = (required(inputs, 0)?, required(inputs, 1)?);
        let Some(&width) = value.shape.last() else { return Err("reads a single number".into()) };
        let index = |index: i64| match usize::try_from(index) {
            Ok(index) if index < width => Ok(index),
            _ => Err(format!("takes element {index} of {width}")),
        };
        let indices: Vec<usize> = indices.i64s()?.into_iter().map(index).collect::<Result<_, _>>()?;
        if indices.is_empty() {
            return Err("takes no elements".into());
        }
        let mut shape = value.shape.clone();
        if shape.len() == 1 {
            shape.insert(0, 1);
        }
        if let Some(last) = shape.last_mut() {
            *last = indices.len();
        }
        count(&shape)?;
        let elements = map_each!(&value.elements, items => {
            items.chunks_exact(width.max(1)).flat_map(|row| indices.iter().map(move |index| Clone::clone(&row[*index]))).collect()
        });
        Ok(vec![Value::new(&shape, elements)?])
    }
}

/// How many columns of each input are taken.
#[derive(Debug)]
struct FeatureVectorizer(Vec<usize>);

/// `FeatureVectorizer`: columns of several values side by side, as single precision.
pub(crate) fn feature_vectorizer(node: Attributes<'_>, _: &[Option<&Value>]) -> Result<Box<dyn Operator>, Reason> {
    let widths = node.indices("inputdimensions", 1 << 24)?;
    if widths.is_empty() || widths.len() != node.node.input.len() {
        return Err(format!("has {} inputdimensions for {} inputs", widths.len(), node.node.input.len()));
    }
    Ok(Box::new(FeatureVectorizer(widths)))
}

impl Operator for FeatureVectorizer {
    fn run(&self, inputs: &[Option<&Value>], _: &mut Scratch) -> Result<Vec<Value>, Reason> {
        let (rows, _) = required(inputs, 0)?.rows_and_columns()?;
        let width: usize = self.0.iter().sum();
        let mut columns = vec![0.0_f32; count(&[rows, width])?];
        let mut from = 0;
        for (at, taken) in self.0.iter().enumerate() {
            let value = required(inputs, at)?;
            let (given_rows, given) = value.rows_and_columns()?;
            if given_rows != rows {
                return Err(format!("input {at} has {given_rows} rows, the first has {rows}"));
            }
            // what is missing is 0, what is too much is left out
            let used = given.min(*taken);
            let items = value.to_f32()?;
            for (row, given) in columns.chunks_exact_mut(width.max(1)).zip(items.chunks_exact(given.max(1))) {
                row[from..from + used].copy_from_slice(&given[..used]);
            }
            from += taken;
        }
        Ok(vec![Value::matrix(rows, width, columns)?])
    }
}

/// The number of keys of each map.
#[derive(Debug)]
struct ZipMap(usize);

/// `ZipMap`: the maps' values as a matrix, a row for each map and a column for each key, in the order of the labels.
pub(crate) fn zip_map(node: Attributes<'_>, _: &[Option<&Value>]) -> Result<Box<dyn Operator>, Reason> {
    let (ints, texts) = (node.ints("classlabels_int64s")?.len(), node.strings("classlabels_strings")?.len());
    if (ints == 0) == (texts == 0) {
        return Err("has to have classlabels_int64s or classlabels_strings, and not both".into());
    }
    Ok(Box::new(ZipMap(ints.max(texts))))
}

impl Operator for ZipMap {
    fn run(&self, inputs: &[Option<&Value>], _: &mut Scratch) -> Result<Vec<Value>, Reason> {
        let value = required(inputs, 0)?;
        let (rows, columns) = value.rows_and_columns()?;
        if columns != self.0 {
            return Err(format!("has {} keys for {columns} columns", self.0));
        }
        Ok(vec![Value::new(&[rows, columns], Elements::F32(value.f32s()?.to_vec()))?])
    }
}
