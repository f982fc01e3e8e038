//! The tree of a document, with the place of each node in the text.

use std::collections::HashMap;
use std::ops::Range;

use granit_parser::{Event, Parser, ScalarStyle, Span, StructureStyle};
use serde_json::{Map, Value};

use super::error::ManifestError;

/// The most nodes that a text may stand for once its aliases are written out.
const MAX_NODES: usize = 1_000_000;
/// The deepest nesting; a Kubernetes object has about 20 levels.
const MAX_DEPTH: usize = 200;

/// A node of a document.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    /// Bytes of the text; of a block collection, from its first to behind its last node.
    pub(crate) range: Range<usize>,
    pub(crate) kind: Kind,
    /// The anchor by which aliases name it; 0 for none.
    anchor: usize,
}

#[derive(Clone, Debug)]
pub(crate) enum Kind {
    Scalar { value: String, style: ScalarStyle },
    Sequence { items: Vec<Node>, is_flow: bool },
    Mapping { entries: Vec<Entry>, is_flow: bool },
    Alias(usize),
}

/// A key of a mapping and its value.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) key: Node,
    pub(crate) value: Node,
}

impl Node {
    /// The value of a key, if it stands in the text itself.
    pub(crate) fn entry(&self, key: &str) -> Option<&Entry> {
        let Kind::Mapping { entries, .. } = &self.kind else { return None };
        entries.iter().find(|entry| matches!(&entry.key.kind, Kind::Scalar { value, .. } if value == key))
    }

    /// Whether it is a scalar that stands for nothing: `null`, `~`, or no character.
    pub(crate) fn is_null(&self) -> bool {
        matches!(&self.kind, Kind::Scalar { value, style: ScalarStyle::Plain } if plain(value).is_null())
    }

    /// Whether it is a sequence or mapping without anything in it.
    pub(crate) fn is_empty(&self) -> bool {
        match &self.kind {
            Kind::Sequence { items, .. } => items.is_empty(),
            Kind::Mapping { entries, .. } => entries.is_empty(),
            Kind::Scalar { .. } | Kind::Alias(_) => false,
        }
    }
}

/// The documents of a text, each with its values.
///
/// # Errors
///
/// If the text is no YAML, or is nested or repeated beyond bounds.
pub(crate) fn documents(text: &str) -> Result<Vec<(Node, Value)>, ManifestError> {
    let mut roots = Vec::new();
    let mut open: Vec<Node> = Vec::new();
    // keys that wait for their values, by depth
    let mut keys: Vec<Option<Node>> = Vec::new();
    for next in Parser::new_from_str(text) {
        let (event, span) = next.map_err(|error| ManifestError::NotYaml(error.to_string()))?;
        let done = match event {
            Event::Scalar(value, style, anchor, _) => {
                Node { range: of(&span), kind: Kind::Scalar { value: value.into_owned(), style }, anchor }
            }
            Event::Alias(id) => Node { range: of(&span), kind: Kind::Alias(id), anchor: 0 },
            Event::SequenceStart(style, anchor, _) => {
                open.push(begun(&span, anchor, Kind::Sequence { items: Vec::new(), is_flow: style == StructureStyle::Flow }));
                keys.push(None);
                continue;
            }
            Event::MappingStart(style, anchor, _) => {
                open.push(begun(&span, anchor, Kind::Mapping { entries: Vec::new(), is_flow: style == StructureStyle::Flow }));
                keys.push(None);
                continue;
            }
            Event::SequenceEnd | Event::MappingEnd => {
                keys.pop();
                let Some(mut node) = open.pop() else { continue };
                node.range.end = end(text, &node, &span);
                node
            }
            _ => continue,
        };
        if open.len() > MAX_DEPTH {
            return Err(ManifestError::TooDeep);
        }
        match (open.last_mut().map(|node| &mut node.kind), keys.last_mut()) {
            (Some(Kind::Sequence { items, .. }), _) => items.push(done),
            (Some(Kind::Mapping { entries, .. }), Some(key)) => match key.take() {
                None => *key = Some(done),
                Some(key) => entries.push(Entry { key, value: done }),
            },
            _ => roots.push(done),
        }
    }
    let mut left = MAX_NODES;
    roots.into_iter().map(|root| value_of_root(&root, &mut left).map(|value| (root, value))).collect()
}

fn begun(span: &Span, anchor: usize, kind: Kind) -> Node {
    Node { range: of(span), kind, anchor }
}

fn of(span: &Span) -> Range<usize> {
    span.byte_range().unwrap_or_default()
}

/// Where a collection ends: in flow style behind its bracket, in block style behind its last node.
fn end(text: &str, node: &Node, closed: &Span) -> usize {
    let (is_flow, last) = match &node.kind {
        Kind::Sequence { items, is_flow } => (*is_flow, items.last()),
        Kind::Mapping { entries, is_flow } => {
            (*is_flow, entries.last().map(|entry| if entry.value.range.is_empty() { &entry.key } else { &entry.value }))
        }
        Kind::Scalar { .. } | Kind::Alias(_) => (false, None),
    };
    match last {
        Some(last) if !is_flow => last_byte(text, last),
        _ => of(closed).end,
    }
}

/// Behind the last byte of a node: a block scalar's span goes on to what follows it.
pub(crate) fn last_byte(text: &str, node: &Node) -> usize {
    let is_block = matches!(&node.kind, Kind::Scalar { style: ScalarStyle::Literal | ScalarStyle::Folded, .. });
    if !is_block {
        return node.range.end;
    }
    let written = text.get(node.range.clone()).unwrap_or_default();
    let header = text[..node.range.start].trim_end().rsplit([' ', '\n']).next().unwrap_or_default();
    let kept = if header.contains('+') { written.trim_end_matches([' ', '\t']).len() } else { written.trim_end().len() };
    node.range.start + kept
}

fn value_of_root(root: &Node, left: &mut usize) -> Result<Value, ManifestError> {
    let mut anchors = HashMap::new();
    collect(root, &mut anchors);
    value(root, &anchors, left, 0)
}

fn collect<'a>(node: &'a Node, anchors: &mut HashMap<usize, &'a Node>) {
    if node.anchor != 0 {
        anchors.insert(node.anchor, node);
    }
    match &node.kind {
        Kind::Sequence { items, .. } => items.iter().for_each(|item| collect(item, anchors)),
        Kind::Mapping { entries, .. } => entries.iter().for_each(|entry| {
            collect(&entry.key, anchors);
            collect(&entry.value, anchors);
        }),
        Kind::Scalar { .. } | Kind::Alias(_) => {}
    }
}

fn value(node: &Node, anchors: &HashMap<usize, &Node>, left: &mut usize, depth: usize) -> Result<Value, ManifestError> {
    *left = left.checked_sub(1).ok_or(ManifestError::TooManyNodes(MAX_NODES))?;
    if depth > MAX_DEPTH {
        return Err(ManifestError::TooDeep);
    }
    Ok(match &node.kind {
        Kind::Scalar { value, style: ScalarStyle::Plain } => plain(value),
        Kind::Scalar { value, .. } => Value::String(value.clone()),
        Kind::Alias(id) => match anchors.get(id) {
            Some(target) => value(target, anchors, left, depth + 1)?,
            None => Value::Null,
        },
        Kind::Sequence { items, .. } => {
            Value::Array(items.iter().map(|item| value(item, anchors, left, depth + 1)).collect::<Result<_, _>>()?)
        }
        Kind::Mapping { entries, .. } => {
            let (mut own, mut merged) = (Map::new(), Map::new());
            for entry in entries {
                let name = match &entry.key.kind {
                    Kind::Scalar { value, .. } => value.clone(),
                    Kind::Alias(_) => value(&entry.key, anchors, left, depth + 1)?.as_str().unwrap_or_default().to_owned(),
                    _ => return Err(ManifestError::NotYaml("a key is a sequence or a mapping".to_owned())),
                };
                let value = value(&entry.value, anchors, left, depth + 1)?;
                if name == "<<" {
                    merge(&mut merged, value);
                } else if own.insert(name.clone(), value).is_some() {
                    return Err(ManifestError::NotYaml(format!("the key {name} is there twice")));
                }
            }
            merged.append(&mut own);
            Value::Object(merged)
        }
    })
}

/// Adds what a merge key (`<<`) names: a mapping, or several of which the first that has a key decides.
fn merge(into: &mut Map<String, Value>, from: Value) {
    match from {
        Value::Object(from) => from.into_iter().for_each(|(key, value)| {
            into.entry(key).or_insert(value);
        }),
        Value::Array(several) => several.into_iter().for_each(|one| merge(into, one)),
        _ => {}
    }
}

/// What a plain scalar stands for, as Kubernetes reads it: YAML 1.1 without its sexagesimal numbers.
pub(crate) fn plain(text: &str) -> Value {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Value::Null,
        "true" | "True" | "TRUE" | "yes" | "Yes" | "YES" | "on" | "On" | "ON" => return Value::Bool(true),
        "false" | "False" | "FALSE" | "no" | "No" | "NO" | "off" | "Off" | "OFF" => return Value::Bool(false),
        _ => {}
    }
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    if !digits.starts_with(|first: char| first.is_ascii_digit() || first == '.') {
        return Value::String(text.to_owned());
    }
    if let Ok(whole) = text.parse::<i64>() {
        // a leading zero is octal there, and no port or count here
        return if digits.len() > 1 && digits.starts_with('0') { Value::String(text.to_owned()) } else { whole.into() };
    }
    match text.parse::<f64>().ok().and_then(serde_json::Number::from_f64) {
        Some(number) if digits.contains(|c: char| c.is_ascii_digit()) => Value::Number(number),
        _ => Value::String(text.to_owned()),
    }
}
