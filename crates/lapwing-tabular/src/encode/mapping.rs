//! `LabelEncoder` and `CategoryMapper`: a table from keys to values, of any two types.

use bytes::Bytes;
use rustc_hash::FxHashMap;

use crate::attributes::{Attributes, Reason};
use crate::operator::{Operator, Scratch, required};
use crate::value::{Elements, Value, from_proto};

/// Keys by what is equal: a number's bits, with one zero and one NaN; or a string.
#[derive(Debug)]
enum Keys {
    F32(FxHashMap<u32, usize>),
    F64(FxHashMap<u64, usize>),
    I64(FxHashMap<i64, usize>),
    I32(FxHashMap<i32, usize>),
    Text(FxHashMap<Bytes, usize>),
}

fn single_key(x: f32) -> u32 {
    if x.is_nan() { f32::NAN.to_bits() } else { (x + 0.0).to_bits() }
}

fn double_key(x: f64) -> u64 {
    if x.is_nan() { f64::NAN.to_bits() } else { (x + 0.0).to_bits() }
}

/// The first of equal keys counts.
fn table<K: Eq + std::hash::Hash>(keys: impl Iterator<Item = K>) -> FxHashMap<K, usize> {
    let mut table = FxHashMap::default();
    for (at, key) in keys.enumerate() {
        table.entry(key).or_insert(at);
    }
    table
}

impl Keys {
    fn new(keys: Elements, finds_nan: bool) -> Result<Self, Reason> {
        Ok(match keys {
            // a NaN that finds nothing gets a key that no number has
            Elements::F32(keys) => Self::F32(table(keys.iter().map(|x| if finds_nan { single_key(*x) } else { unequal(*x) }))),
            Elements::F64(keys) => Self::F64(table(keys.iter().map(|x| double_key(*x)))),
            Elements::I64(keys) => Self::I64(table(keys.into_iter())),
            Elements::I32(keys) => Self::I32(table(keys.into_iter())),
            Elements::Text(keys) => Self::Text(table(keys.into_iter())),
            Elements::Bool(_) => return Err("has keys of type BOOL".into()),
        })
    }

    /// The places of the elements in the table.
    fn find(&self, elements: &Elements) -> Result<Vec<Option<usize>>, Reason> {
        Ok(match (self, elements) {
            (Self::F32(table), Elements::F32(items)) => items.iter().map(|x| table.get(&single_key(*x)).copied()).collect(),
            (Self::F64(table), Elements::F64(items)) => items.iter().map(|x| table.get(&double_key(*x)).copied()).collect(),
            (Self::I64(table), Elements::I64(items)) => items.iter().map(|x| table.get(x).copied()).collect(),
            (Self::I32(table), Elements::I32(items)) => items.iter().map(|x| table.get(x).copied()).collect(),
            (Self::Text(table), Elements::Text(items)) => items.iter().map(|x| table.get(x).copied()).collect(),
            (_, other) => return Err(format!("reads {}, which is not the type of its keys", other.datatype().name())),
        })
    }
}

fn unequal(x: f32) -> u32 {
    if x.is_nan() { f32::NAN.to_bits() | 1 } else { single_key(x) }
}

/// A table, and what stands for keys that are not in it.
#[derive(Debug)]
struct Mapping {
    keys: Keys,
    values: Elements,
    /// One element, of the values' type.
    default: Elements,
}

impl Operator for Mapping {
    fn run(&self, inputs: &[Option<&Value>], _: &mut Scratch) -> Result<Vec<Value>, Reason> {
        let value = required(inputs, 0)?;
        let places = self.keys.find(&value.elements)?;
        macro_rules! taken {
            ($kind:ident, $values:expr) => {{
                let Elements::$kind(default) = &self.default else { return Err("its default is of another type".into()) };
                let default = default.first().ok_or("has no default")?;
                let of = |place: &Option<usize>| place.and_then(|place| $values.get(place)).unwrap_or(default).clone();
                Elements::$kind(places.iter().map(of).collect())
            }};
        }
        let elements = match &self.values {
            Elements::F32(values) => taken!(F32, values),
            Elements::F64(values) => taken!(F64, values),
            Elements::I64(values) => taken!(I64, values),
            Elements::I32(values) => taken!(I32, values),
            Elements::Text(values) => taken!(Text, values),
            Elements::Bool(_) => return Err("has values of type BOOL".into()),
        };
        Ok(vec![Value::new(&value.shape, elements)?])
    }
}

fn texts(items: &[Vec<u8>]) -> Elements {
    Elements::Text(items.iter().map(|item| Bytes::copy_from_slice(item)).collect())
}

/// The one of `keys_…` or `values_…` that the node has.
fn listed(node: Attributes<'_>, prefix: &str) -> Result<Elements, Reason> {
    let (strings, ints) = (node.strings(&format!("{prefix}_strings"))?, node.ints(&format!("{prefix}_int64s"))?);
    let floats = node.floats(&format!("{prefix}_floats"))?;
    let tensor = node.tensor(&format!("{prefix}_tensor"))?;
    let mut given = Vec::new();
    if !strings.is_empty() {
        given.push(texts(strings));
    }
    if !ints.is_empty() {
        given.push(Elements::I64(ints.to_vec()));
    }
    if !floats.is_empty() {
        given.push(Elements::F32(floats.to_vec()));
    }
    if let Some(tensor) = tensor {
        given.push(from_proto(tensor)?.elements);
    }
    match <[Elements; 1]>::try_from(given) {
        Ok([only]) => Ok(only),
        Err(given) => Err(format!("has {} lists of {prefix}, expected one", given.len())),
    }
}

/// `LabelEncoder`.
pub(crate) fn label_encoder(node: Attributes<'_>, inputs: &[Option<&Value>]) -> Result<Box<dyn Operator>, Reason> {
    let classes = node.strings("classes_strings")?;
    if node.opset < 2 {
        let numbers: Vec<i64> = (0..classes.len() as i64).collect();
        return between(node, inputs, classes, &numbers);
    }
    let (keys, values) = (listed(node, "keys")?, listed(node, "values")?);
    if keys.len() != values.len() {
        return Err(format!("has {} keys and {} values", keys.len(), values.len()));
    }
    let default = match node.tensor("default_tensor")? {
        Some(tensor) if tensor.data_type != 0 => from_proto(tensor)?.elements,
        _ => match &values {
            Elements::F32(_) => Elements::F32(vec![node.float("default_float")?.unwrap_or(-0.0)]),
            Elements::F64(_) => Elements::F64(vec![-0.0]),
            Elements::I64(_) => Elements::I64(vec![node.int("default_int64")?.unwrap_or(-1)]),
            Elements::I32(_) => Elements::I32(vec![-1]),
            Elements::Text(_) => Elements::Text(vec![default_text(node)?]),
            Elements::Bool(_) => return Err("has values of type BOOL".into()),
        },
    };
    Ok(Box::new(Mapping { keys: Keys::new(keys, node.opset >= 4)?, values, default }))
}

fn default_text(node: Attributes<'_>) -> Result<Bytes, Reason> {
    Ok(Bytes::copy_from_slice(node.bytes("default_string")?.unwrap_or(b"_Unused")))
}

/// `CategoryMapper`.
pub(crate) fn category_mapper(node: Attributes<'_>, inputs: &[Option<&Value>]) -> Result<Box<dyn Operator>, Reason> {
    between(node, inputs, node.strings("cats_strings")?, node.ints("cats_int64s")?)
}

/// A table between strings and whole numbers, in the direction that the input asks for. The last of equal keys counts.
fn between(
    node: Attributes<'_>,
    inputs: &[Option<&Value>],
    strings: &[Vec<u8>],
    ints: &[i64],
) -> Result<Box<dyn Operator>, Reason> {
    if strings.len() != ints.len() {
        return Err(format!("has {} strings and {} whole numbers", strings.len(), ints.len()));
    }
    let strings: Vec<Vec<u8>> = strings.iter().rev().cloned().collect();
    let ints: Vec<i64> = ints.iter().rev().copied().collect();
    let is_text = matches!(required(inputs, 0)?.elements, Elements::Text(_));
    let (keys, values, default) = if is_text {
        (texts(&strings), Elements::I64(ints), Elements::I64(vec![node.int("default_int64")?.unwrap_or(-1)]))
    } else {
        (Elements::I64(ints), texts(&strings), Elements::Text(vec![default_text(node)?]))
    };
    Ok(Box::new(Mapping { keys: Keys::new(keys, true)?, values, default }))
}
