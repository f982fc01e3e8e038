//! `OneHotEncoder`: a column of zeros and ones for each category.

use bytes::Bytes;
use rustc_hash::FxHashMap;

use crate::attributes::{Attributes, Reason};
use crate::operator::{Operator, Scratch, required};
use crate::value::{Elements, Value, count, truncated};

#[derive(Debug)]
struct OneHotEncoder {
    ints: FxHashMap<i64, usize>,
    texts: FxHashMap<Bytes, usize>,
    categories: usize,
    /// Whether an unknown category has zeros everywhere; else it is an error.
    takes_unknown: bool,
}

/// `OneHotEncoder`. The last of equal categories counts.
pub(crate) fn one_hot_encoder(node: Attributes<'_>, _: &[Option<&Value>]) -> Result<Box<dyn Operator>, Reason> {
    let (ints, texts) = (node.ints("cats_int64s")?, node.strings("cats_strings")?);
    if ints.is_empty() == texts.is_empty() {
        return Err("has to have cats_int64s or cats_strings, and not both".into());
    }
    Ok(Box::new(OneHotEncoder {
        categories: ints.len().max(texts.len()),
        ints: ints.iter().copied().zip(0..).collect(),
        texts: texts.iter().map(|text| Bytes::copy_from_slice(text)).zip(0..).collect(),
        takes_unknown: node.int("zeros")?.unwrap_or(1) != 0,
    }))
}

impl Operator for OneHotEncoder {
    fn run(&self, inputs: &[Option<&Value>], scratch: &mut Scratch) -> Result<Vec<Value>, Reason> {
        let value = required(inputs, 0)?;
        let mut shape = value.shape.clone();
        shape.push(self.categories);
        let mut columns = vec![0.0_f32; count(&shape)?];
        let mut set = |at: usize, category: Option<&usize>| {
            if let Some(category) = category {
                columns[at * self.categories + category] = 1.0;
            } else if !self.takes_unknown && !scratch.is_trial {
                return Err(format!("element {at} is of an unknown category"));
            }
            Ok(())
        };
        match &value.elements {
            Elements::Text(items) => items.iter().enumerate().try_for_each(|(at, item)| set(at, self.texts.get(item)))?,
            // numbers are cut to whole ones
            Elements::I64(items) => items.iter().enumerate().try_for_each(|(at, item)| set(at, self.ints.get(item)))?,
            Elements::I32(items) => {
                items.iter().enumerate().try_for_each(|(at, item)| set(at, self.ints.get(&i64::from(*item))))?;
            }
            Elements::F32(items) => {
                items.iter().enumerate().try_for_each(|(at, item)| set(at, self.ints.get(&truncated(f64::from(*item)))))?
            }
            Elements::F64(items) => {
                items.iter().enumerate().try_for_each(|(at, item)| set(at, self.ints.get(&truncated(*item))))?
            }
            Elements::Bool(_) => return Err("reads BOOL".into()),
        }
        Ok(vec![Value::new(&shape, Elements::F32(columns))?])
    }
}
