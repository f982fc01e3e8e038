//! A request of the Open Inference Protocol, as JSON or as JSON before binary tensors, so that what does not change its answer
//! does not change its hash: the order of keys, white space, how numbers are written, and `id`.
//!
//! The order of tensors does: servers may give each by its place. `None` always means that the request is not understood.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::canonical::{CanonicalValue, Members, ReadValue, ValueBudget, hash_members, insert_once};
use super::datatype::Datatype;
use super::elements::{MAX_RANK, hash_binary, hash_json};
use super::fields::FieldHasher;

/// Hashes the request and returns its `id` as JSON, if it has one.
pub(crate) fn hash(hasher: &mut FieldHasher, json: &[u8], binary: &[u8]) -> Option<Option<Box<str>>> {
    let budget = ValueBudget::default();
    let mut deserializer = serde_json::Deserializer::from_slice(json);
    let request = ReadRequest(&budget).deserialize(&mut deserializer).ok()?;
    deserializer.end().ok()?;
    hash_members(&request.others, hasher);
    hasher.count(request.inputs.len());
    let mut rest = binary;
    for tensor in &request.inputs {
        hasher.value(tensor.name.as_bytes());
        hasher.value(tensor.datatype.as_bytes());
        hasher.count(tensor.shape.len());
        tensor.shape.iter().for_each(|dim| hasher.number(*dim));
        hash_members(&tensor.others, hasher);
        let datatype = Datatype::parse(&tensor.datatype)?;
        match (tensor.data, tensor.binary_bytes()?) {
            (Some(data), None) => hash_json(hasher, data.get(), &tensor.shape, datatype)?,
            (None, Some(bytes)) => {
                let (data, after) = rest.split_at_checked(bytes)?;
                hash_binary(hasher, data, &tensor.shape, datatype)?;
                rest = after;
            }
            _ => return None,
        }
    }
    rest.is_empty().then_some(request.id.map(|id| id.get().into()))
}

/// A request.
struct InferRequest<'a> {
    id: Option<&'a RawValue>,
    inputs: Vec<InputTensor<'a>>,
    /// Its other members: parameters, outputs, and what a server may know further.
    others: Members,
}

/// One of its inputs.
struct InputTensor<'a> {
    name: String,
    datatype: String,
    shape: Vec<u64>,
    data: Option<&'a RawValue>,
    others: Members,
}

impl InputTensor<'_> {
    /// How many bytes of the binary part are its own, if it says so.
    fn binary_bytes(&self) -> Option<Option<usize>> {
        match self.others.get("parameters").and_then(|parameters| parameters.get("binary_data_size")) {
            None => Some(None),
            Some(CanonicalValue::Unsigned(bytes)) => Some(Some(usize::try_from(*bytes).ok()?)),
            Some(_) => None,
        }
    }
}

struct ReadRequest<'b>(&'b ValueBudget);

impl<'de> DeserializeSeed<'de> for ReadRequest<'_> {
    type Value = InferRequest<'de>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for ReadRequest<'_> {
    type Value = InferRequest<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a request with inputs")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Self::Value, A::Error> {
        let (mut id, mut inputs, mut others) = (None, None, Members::new());
        while let Some(key) = entries.next_key::<String>()? {
            match key.as_str() {
                "id" => once(&mut id, entries.next_value::<&RawValue>()?)?,
                "inputs" => once(&mut inputs, entries.next_value_seed(ReadInputs(self.0))?)?,
                _ => insert_once(&mut others, key, entries.next_value_seed(ReadValue(self.0))?)?,
            }
        }
        if id.is_some_and(|id: &RawValue| serde_json::from_str::<String>(id.get()).is_err()) {
            return Err(A::Error::custom("an id that is no text"));
        }
        let inputs = inputs.ok_or_else(|| A::Error::missing_field("inputs"))?;
        Ok(InferRequest { id, inputs, others })
    }
}

/// Notes a member that must not be there twice.
fn once<T, E: Error>(member: &mut Option<T>, value: T) -> Result<(), E> {
    match member.replace(value) {
        None => Ok(()),
        Some(_) => Err(E::custom("a key that is there twice")),
    }
}

struct ReadInputs<'b>(&'b ValueBudget);

impl<'de> DeserializeSeed<'de> for ReadInputs<'_> {
    type Value = Vec<InputTensor<'de>>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for ReadInputs<'_> {
    type Value = Vec<InputTensor<'de>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of tensors")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Self::Value, A::Error> {
        let mut tensors = Vec::new();
        while let Some(tensor) = elements.next_element_seed(ReadTensor(self.0))? {
            tensors.push(tensor);
        }
        Ok(tensors)
    }
}

struct ReadTensor<'b>(&'b ValueBudget);

impl<'de> DeserializeSeed<'de> for ReadTensor<'_> {
    type Value = InputTensor<'de>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        self.0.take()?;
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for ReadTensor<'_> {
    type Value = InputTensor<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a tensor with a name, a datatype and a shape")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Self::Value, A::Error> {
        let (mut name, mut datatype, mut shape, mut data, mut others) = (None, None, None, None, Members::new());
        while let Some(key) = entries.next_key::<String>()? {
            match key.as_str() {
                "name" => once(&mut name, entries.next_value::<String>()?)?,
                "datatype" => once(&mut datatype, entries.next_value::<String>()?)?,
                "shape" => once(&mut shape, entries.next_value_seed(ReadShape)?)?,
                "data" => once(&mut data, entries.next_value::<&RawValue>()?)?,
                _ => insert_once(&mut others, key, entries.next_value_seed(ReadValue(self.0))?)?,
            }
        }
        Ok(InputTensor {
            name: name.ok_or_else(|| A::Error::missing_field("name"))?,
            datatype: datatype.ok_or_else(|| A::Error::missing_field("datatype"))?,
            shape: shape.ok_or_else(|| A::Error::missing_field("shape"))?,
            data,
            others,
        })
    }
}

struct ReadShape;

impl<'de> DeserializeSeed<'de> for ReadShape {
    type Value = Vec<u64>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Vec<u64>, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for ReadShape {
    type Value = Vec<u64>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at most {MAX_RANK} dimensions")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Vec<u64>, A::Error> {
        let mut shape = Vec::new();
        while let Some(dim) = elements.next_element()? {
            if shape.len() == MAX_RANK {
                return Err(A::Error::custom("too many dimensions"));
            }
            shape.push(dim);
        }
        Ok(shape)
    }
}
