//! Lists of JSON that end at their bound: elements are counted as they are read, and none is built beyond the bound.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{IgnoredAny, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::bounds::{MAX_AXES, MAX_TENSORS};
use crate::error::Bound;
use crate::error::RequestError;

/// The inputs, or the requested outputs.
pub(crate) type Tensors<T> = BoundedList<T, MAX_TENSORS>;
/// A shape.
pub(crate) type Axes = BoundedList<usize, MAX_AXES>;

/// A list that keeps its first `MOST` elements and counts all of them.
#[derive(Debug)]
pub(crate) struct BoundedList<T, const MOST: usize> {
    kept: Vec<T>,
    count: usize,
}

impl<T, const MOST: usize> Default for BoundedList<T, MOST> {
    fn default() -> Self {
        Self { kept: Vec::new(), count: 0 }
    }
}

impl<T> Tensors<T> {
    /// The elements, if they are within the bound; `field` is where they are.
    pub(crate) fn checked(self, field: &str) -> Result<Vec<T>, RequestError> {
        Bound::Tensors.check(field, self.count, MAX_TENSORS).map(|()| self.kept)
    }
}

impl Axes {
    /// The lengths, if they are within the bound; `input` is where they are.
    pub(crate) fn checked(self, input: &str) -> Result<Vec<usize>, RequestError> {
        Bound::Axes.check(&format!("{input}: shape"), self.count, MAX_AXES).map(|()| self.kept)
    }
}

impl<'de, T: Deserialize<'de>, const MOST: usize> Deserialize<'de> for BoundedList<T, MOST> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(Elements(PhantomData))
    }
}

struct Elements<T, const MOST: usize>(PhantomData<T>);

impl<'de, T: Deserialize<'de>, const MOST: usize> Visitor<'de> for Elements<T, MOST> {
    type Value = BoundedList<T, MOST>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a sequence")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Self::Value, A::Error> {
        let mut list = BoundedList::default();
        while list.kept.len() < MOST {
            let Some(element) = elements.next_element()? else { return Ok(list) };
            list.kept.push(element);
            list.count += 1;
        }
        while elements.next_element::<IgnoredAny>()?.is_some() {
            list.count += 1;
        }
        Ok(list)
    }
}
