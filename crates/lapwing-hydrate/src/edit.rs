//! What is put into a body. All that was there stays, byte for byte.

use bytes::Bytes;
use serde_json::value::RawValue;

use crate::config::HydrateInto;
use crate::document::{Document, Gap, elements, members};
use crate::passed::HydratePassed;
use crate::place::{JsonPlace, JsonStep};
use crate::types::FeatureDatatype;

/// Where features are written, as settings say it.
#[derive(Debug)]
pub(crate) enum Into {
    /// As a further tensor.
    Tensor(Box<str>, FeatureDatatype),
    /// As this member of what is there.
    Member(JsonPlace, JsonStep),
}

/// Where the features of one request are written.
#[derive(Debug)]
pub(crate) enum Gaps {
    /// All in one place.
    One(Gap),
    /// Each row in one of these.
    Each(Vec<Gap>),
}

impl Into {
    /// From settings that have been checked; `None` from others.
    pub(crate) fn new(into: &HydrateInto) -> Option<Self> {
        Some(match (&into.tensor, &into.pointer) {
            (Some(name), _) => Self::Tensor(name.as_str().into(), into.datatype),
            (None, Some(pointer)) => {
                let (holder, name) = JsonPlace::parse(pointer).ok()?.member()?;
                Self::Member(holder, name)
            }
            (None, None) => return None,
        })
    }

    /// Finds where they are written in a document whose inputs, if it has any, are these.
    pub(crate) fn gaps(&self, document: &Document<'_>, inputs: Option<&Inputs<'_>>) -> Result<Gaps, HydratePassed> {
        match self {
            Self::Tensor(name, _) => {
                let inputs = inputs.ok_or(HydratePassed::Format)?;
                if inputs.named(name)?.is_some() {
                    return Err(HydratePassed::Present);
                }
                Ok(Gaps::One(document.gap_for_element(inputs.list, &inputs.elements)))
            }
            Self::Member(holder, name) => {
                let holders = document.at(holder).map_err(|passed| match passed {
                    // nothing to write it into
                    HydratePassed::Entity => HydratePassed::Format,
                    other => other,
                })?;
                let mut gaps = holders.into_iter().map(|object| document.gap_for_member(object, name));
                match (&holder.in_each, gaps.next()) {
                    (None, Some(gap)) => gap.map(Gaps::One),
                    (_, first) => first.into_iter().chain(gaps).collect::<Result<_, _>>().map(Gaps::Each),
                }
            }
        }
    }

    /// Writes `rows` into `body` at `gaps`. Each row is `width` numbers as JSON, apart by commas. Where they are in one member, they are a
    /// list of rows, unless `is_one`: then they are the only one.
    pub(crate) fn apply(&self, body: &[u8], gaps: &Gaps, rows: &[&str], width: usize, is_one: bool) -> Bytes {
        let quoted = |text: &str| serde_json::Value::from(text).to_string();
        let mut edited = Vec::with_capacity(body.len() + rows.iter().map(|row| row.len() + 64).sum::<usize>());
        let mut from = 0;
        let mut put = |gap: &Gap, text: &str| {
            edited.extend_from_slice(&body[from..gap.at]);
            if !gap.is_first {
                edited.push(b',');
            }
            edited.extend_from_slice(text.as_bytes());
            from = gap.at;
        };
        match (self, gaps) {
            (Self::Tensor(name, datatype), Gaps::One(gap)) => {
                let (name, datatype, data, length) = (quoted(name), datatype.name(), rows.join(","), rows.len());
                put(gap, &format!(r#"{{"name":{name},"shape":[{length},{width}],"datatype":"{datatype}","data":[{data}]}}"#));
            }
            (Self::Member(_, name), Gaps::One(gap)) => {
                let list = if is_one { rows.concat() } else { format!("[{}]", rows.join("],[")) };
                put(gap, &format!("{}:[{list}]", quoted(name)));
            }
            (Self::Member(_, name), Gaps::Each(gaps)) => {
                let name = quoted(name);
                gaps.iter().zip(rows).for_each(|(gap, row)| put(gap, &format!("{name}:[{row}]")));
            }
            // a tensor is in one place
            (Self::Tensor(..), Gaps::Each(_)) => {}
        }
        edited.extend_from_slice(&body[from..]);
        edited.into()
    }
}

/// The input tensors of a request of the Open Inference Protocol.
#[derive(Debug)]
pub(crate) struct Inputs<'a> {
    list: &'a RawValue,
    elements: Vec<&'a RawValue>,
}

impl<'a> Inputs<'a> {
    /// Those of `document`; `None` if it is another protocol's with `instances`.
    pub(crate) fn of(document: &Document<'a>) -> Result<Option<Self>, HydratePassed> {
        let ([inputs, instances], _) = members(document.root(), ["inputs", "instances"])?;
        match (inputs, instances) {
            (Some(list), None) => {
                let elements = elements(list)?;
                for element in &elements {
                    let ([name, datatype], _) = members(element, ["name", "datatype"])?;
                    name.and(datatype).ok_or(HydratePassed::Format)?;
                }
                Ok(Some(Self { list, elements }))
            }
            (None, Some(instances)) if instances.get().starts_with('[') => Ok(None),
            _ => Err(HydratePassed::Format),
        }
    }

    /// The tensor `name`.
    pub(crate) fn named(&self, name: &str) -> Result<Option<&'a RawValue>, HydratePassed> {
        let mut found = None;
        for element in &self.elements {
            let ([its], _) = members(element, ["name"])?;
            let is_it = its.and_then(|its| serde_json::from_str::<String>(its.get()).ok()).is_some_and(|its| its == name);
            if is_it && found.replace(*element).is_some() {
                return Err(HydratePassed::Format);
            }
        }
        Ok(found)
    }
}
