//! Converts OTLP/JSON, as exporters really write it, into protobuf, a span (metric, log record) at a time: the tree of a whole
//! request would take hundreds of times the memory of its text.
//!
//! By the specification: camelCase keys, hexadecimal ids, enums as numbers, 64-bit numbers as text. In practice also: snake_case
//! keys, enums by name, bare numbers, `null` for unset fields, ids in base64, and names that were replaced in 2022. All are read; an id
//! that is neither becomes empty, so that it costs its span and not the whole message.

mod normalise;

use std::fmt;

use bytes::Bytes;
use opentelemetry_proto::tonic::logs::v1::{LogRecord, ResourceLogs, ScopeLogs};
use opentelemetry_proto::tonic::metrics::v1::{Metric, ResourceMetrics, ScopeMetrics};
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};
use prost::Message;
use serde::Deserializer;
use serde::de::{DeserializeOwned, DeserializeSeed, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use self::normalise::{camel, normalise};
use super::decode::{MAX_SPANS, Undecodable, put_delimited};
use crate::collector::Signal;

/// Marks of JSON (`{`, `[`, `:` and `,`) in one span, resource, scope, metric or log record: an attribute has about seven. An
/// object takes two of them and about 700 bytes in memory.
const MAX_MARKS: usize = 131_072;

/// A request in protobuf.
#[derive(Debug)]
pub(crate) struct ProtobufBody {
    pub(crate) bytes: Bytes,
    /// Spans that were in the JSON, exceed the bounds, and are not here.
    pub(crate) left_out: u64,
}

/// Converts a request.
pub(crate) fn to_protobuf(signal: Signal, body: &[u8]) -> Result<ProtobufBody, Undecodable> {
    let converted = converted(signal, body)?;
    if converted.is_too_large {
        return Err(Undecodable::TooMany("a resource or a scope, or too many of them"));
    }
    if converted.left_out > 0 && signal != Signal::Traces {
        return Err(Undecodable::TooMany("its metrics or log records, or too many of them"));
    }
    Ok(ProtobufBody { bytes: converted.protobuf.into(), left_out: converted.left_out })
}

/// A request as far as it is converted.
#[derive(Debug, Default)]
struct Converted {
    protobuf: Vec<u8>,
    /// Spans, metrics or log records that were left out, because they exceed the bounds.
    left_out: u64,
    /// Whether a resource or a scope exceeds them. Then nothing of the request can be used.
    is_too_large: bool,
    items: usize,
    containers: usize,
}

fn converted(signal: Signal, body: &[u8]) -> Result<Converted, serde_json::Error> {
    let mut converted = Converted::default();
    let mut text = serde_json::Deserializer::from_slice(body);
    let protobuf = Container { signal, depth: 0, to: &mut converted }.deserialize(&mut text)?;
    text.end()?;
    Ok(Converted { protobuf, ..converted })
}

/// An object with a list of others: the request, of resources; a resource, of scopes; a scope, of items. Its other fields are few.
/// The numbers of its fields are the same for all signals: the list is field 1 in the request, else 2.
struct Container<'t> {
    signal: Signal,
    depth: usize,
    to: &'t mut Converted,
}

impl Container<'_> {
    const fn list(&self) -> (&'static str, u32) {
        let [resources, scopes, items] = match self.signal {
            Signal::Traces => ["resourceSpans", "scopeSpans", "spans"],
            Signal::Metrics => ["resourceMetrics", "scopeMetrics", "metrics"],
            Signal::Logs => ["resourceLogs", "scopeLogs", "logRecords"],
        };
        match self.depth {
            0 => (resources, 1),
            1 => (scopes, 2),
            _ => (items, 2),
        }
    }

    /// The fields other than the list, in protobuf.
    fn others(&self, fields: Map<String, Value>) -> Result<Vec<u8>, serde_json::Error> {
        let fields = Value::Object(fields);
        match (self.signal, self.depth) {
            (_, 0) => Ok(Vec::new()),
            (Signal::Traces, 1) => encoded::<ResourceSpans>(fields),
            (Signal::Traces, _) => encoded::<ScopeSpans>(fields),
            (Signal::Metrics, 1) => encoded::<ResourceMetrics>(fields),
            (Signal::Metrics, _) => encoded::<ScopeMetrics>(fields),
            (Signal::Logs, 1) => encoded::<ResourceLogs>(fields),
            (Signal::Logs, _) => encoded::<ScopeLogs>(fields),
        }
    }
}

fn encoded<T: DeserializeOwned + Message>(mut value: Value) -> Result<Vec<u8>, serde_json::Error> {
    normalise(&mut value);
    Ok(T::deserialize(value)?.encode_to_vec())
}

impl<'de> DeserializeSeed<'de> for Container<'_> {
    /// In protobuf.
    type Value = Vec<u8>;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Vec<u8>, D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Container<'_> {
    type Value = Vec<u8>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Vec<u8>, A::Error> {
        let (list, field) = self.list();
        let (mut out, mut others) = (Vec::new(), Map::new());
        while let Some(key) = map.next_key::<String>()? {
            let key = modern(camel(key));
            if key == list {
                let Self { signal, depth, .. } = self;
                map.next_value_seed(List { signal, depth, field, to: &mut *self.to, out: &mut out })?;
            } else if self.depth > 0 && matches!(key.as_str(), "resource" | "scope" | "schemaUrl") {
                let text = map.next_value::<&RawValue>()?.get();
                if fits_json(text) {
                    others.insert(key, serde_json::from_str(text).map_err(A::Error::custom)?);
                } else {
                    self.to.is_too_large = true;
                }
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        others.retain(|_, value| !value.is_null());
        out.extend(self.others(others).map_err(A::Error::custom)?);
        Ok(out)
    }
}

/// The key that took the place of one that senders of 2021 write.
fn modern(key: String) -> String {
    match key.as_str() {
        "instrumentationLibrarySpans" => "scopeSpans".to_owned(),
        "instrumentationLibraryMetrics" => "scopeMetrics".to_owned(),
        "instrumentationLibraryLogs" => "scopeLogs".to_owned(),
        "instrumentationLibrary" => "scope".to_owned(),
        _ => key,
    }
}

/// The list of a container, whose elements go to `out` as its field `field`.
struct List<'t> {
    signal: Signal,
    depth: usize,
    field: u32,
    to: &'t mut Converted,
    out: &'t mut Vec<u8>,
}

impl List<'_> {
    fn item(&mut self, text: &str) -> Result<(), serde_json::Error> {
        if text == "null" {
            return Ok(());
        }
        if self.to.items >= MAX_SPANS || !fits_json(text) {
            self.to.left_out += 1;
            return Ok(());
        }
        self.to.items += 1;
        let value = serde_json::from_str(text)?;
        let item = match self.signal {
            Signal::Traces => encoded::<Span>(value),
            Signal::Metrics => encoded::<Metric>(value),
            Signal::Logs => encoded::<LogRecord>(value),
        };
        put_delimited(self.field, &item?, self.out);
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for List<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for List<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut list: A) -> Result<(), A::Error> {
        while let Some(text) = list.next_element::<&RawValue>()? {
            let text = text.get();
            if self.depth == 2 {
                self.item(text).map_err(A::Error::custom)?;
                continue;
            }
            if text == "null" {
                continue;
            }
            self.to.containers += 1;
            if self.to.containers > 2 * MAX_SPANS {
                self.to.is_too_large = true;
                continue;
            }
            let inner = Container { signal: self.signal, depth: self.depth + 1, to: &mut *self.to };
            let inner = inner.deserialize(&mut serde_json::Deserializer::from_str(text)).map_err(A::Error::custom)?;
            put_delimited(self.field, &inner, self.out);
        }
        Ok(())
    }
}

/// Whether a text of JSON has at most [`MAX_MARKS`].
fn fits_json(text: &str) -> bool {
    let (mut marks, mut in_text, mut is_escaped) = (0, false, false);
    for byte in text.bytes() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = true,
            b'"' => in_text = !in_text,
            b'{' | b'[' | b':' | b',' if !in_text => marks += 1,
            _ => {}
        }
    }
    marks <= MAX_MARKS
}

#[cfg(test)]
mod tests;
