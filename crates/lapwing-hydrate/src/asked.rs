//! What a request asks for: its entities, row by row, and where their features go.

use rustc_hash::FxHashMap;
use serde_json::value::RawValue;

use crate::config::HydrateEntity;
use crate::document::{Document, MAX_ELEMENTS, members, scalars};
use crate::edit::{Gaps, Inputs, Into};
use crate::entity::{EntityValue, EntityValues};
use crate::passed::HydratePassed;
use crate::place::JsonPlace;
use crate::types::EntityType;

/// Where a request has a part of its entities' key.
#[derive(Debug)]
pub(crate) struct EntityPart {
    pub(crate) name: Box<str>,
    source: EntitySource,
    of_type: Option<EntityType>,
}

#[derive(Debug)]
enum EntitySource {
    Tensor(Box<str>),
    Place(JsonPlace),
}

/// The entities of a request, each once, and which of them each row is of.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) entities: Vec<EntityValues>,
    pub(crate) rows: Vec<usize>,
    /// Whether the request has one entity, and not a list of one.
    pub(crate) is_one: bool,
    pub(crate) gaps: Gaps,
}

/// The values of one part.
struct PartValues<'a> {
    values: Vec<&'a RawValue>,
    is_one: bool,
}

impl EntityPart {
    /// From settings that have been checked; `None` from others.
    pub(crate) fn new(entity: &HydrateEntity) -> Option<Self> {
        let source = match (&entity.tensor, &entity.pointer) {
            (Some(tensor), _) => EntitySource::Tensor(tensor.as_str().into()),
            (None, pointer) => EntitySource::Place(JsonPlace::parse(pointer.as_deref()?).ok()?),
        };
        Some(Self { name: entity.name.as_str().into(), source, of_type: entity.of_type })
    }

    fn values<'a>(&self, document: &Document<'a>, inputs: Option<&Inputs<'a>>) -> Result<PartValues<'a>, HydratePassed> {
        match &self.source {
            EntitySource::Tensor(name) => {
                let tensor = inputs.ok_or(HydratePassed::Format)?.named(name)?.ok_or(HydratePassed::Entity)?;
                Ok(PartValues { values: of_tensor(tensor)?, is_one: false })
            }
            EntitySource::Place(place) => match document.at(place)?.as_slice() {
                [one] if place.in_each.is_none() => Ok(PartValues { values: scalars(one)?, is_one: !one.get().starts_with('[') }),
                each => Ok(PartValues { values: each.to_vec(), is_one: false }),
            },
        }
    }
}

/// The elements of a tensor that has one in each row.
fn of_tensor(tensor: &RawValue) -> Result<Vec<&RawValue>, HydratePassed> {
    let ([shape, data], _) = members(tensor, ["shape", "data"])?;
    // without data it is in shared memory
    let (shape, data) = shape.zip(data).ok_or(HydratePassed::Entity)?;
    let shape: Vec<u64> = serde_json::from_str(shape.get()).map_err(|_| HydratePassed::Format)?;
    let values = scalars(data)?;
    match shape.split_first() {
        Some((rows, others)) if *rows == values.len() as u64 && others.iter().all(|dim| *dim == 1) => Ok(values),
        _ => Err(HydratePassed::Entity),
    }
}

impl Asked {
    /// Reads what the body of a request asks for.
    ///
    /// # Errors
    ///
    /// Why the request passes as it came.
    pub(crate) fn read(body: &[u8], parts: &[EntityPart], into: &Into) -> Result<Self, HydratePassed> {
        let document = Document::read(body)?;
        let inputs = Inputs::of(&document)?;
        let gaps = into.gaps(&document, inputs.as_ref())?;
        let of_parts: Vec<PartValues<'_>> =
            parts.iter().map(|part| part.values(&document, inputs.as_ref())).collect::<Result<_, _>>()?;
        // what is there once is of all rows
        let is_one = of_parts.iter().all(|part| part.is_one);
        let in_entities = of_parts.iter().filter(|part| !part.is_one).map(|part| part.values.len());
        let in_gaps = if let Gaps::Each(gaps) = &gaps { Some(gaps.len()) } else { None };
        let mut lengths = in_entities.chain(in_gaps);
        let length = lengths.next().unwrap_or(1);
        if lengths.any(|other| other != length) || length == 0 {
            return Err(HydratePassed::Entity);
        }
        if length > MAX_ELEMENTS {
            return Err(HydratePassed::TooMany);
        }
        let (mut entities, mut rows, mut known) = (Vec::new(), Vec::with_capacity(length), FxHashMap::default());
        for row in 0..length {
            let value = |(part, of): (&PartValues<'_>, &EntityPart)| {
                let value = part.values.get(if part.is_one { 0 } else { row })?;
                EntityValue::read(value, of.of_type)
            };
            let values: EntityValues =
                of_parts.iter().zip(parts).map(value).collect::<Option<_>>().ok_or(HydratePassed::Entity)?;
            let at = *known.entry(values).or_insert_with_key(|values| {
                entities.push(values.clone());
                entities.len() - 1
            });
            rows.push(at);
        }
        Ok(Self { entities, rows, is_one, gaps })
    }
}
