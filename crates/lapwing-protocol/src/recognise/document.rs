//! Matches one JSON document with a signature, in one pass and constant memory.

use std::sync::Arc;

use super::super::wire::{ElementMode, JsonPaths, JsonReader, JsonValue};
use super::signature::{BOOL, Effect, JsonSignature, Kinds, LIST, NUMBER, Need, OBJECT, TEXT};
use super::verdict::Recognised;

/// How many bytes of a text are kept.
const HEAD_BYTES: usize = 48;
/// A document with this member is a call of JSON-RPC, whatever else it has.
const JSON_RPC: &str = "jsonrpc";
/// Where a server that answers 200 says that it failed.
const ERRORS: [&str; 2] = ["error", "[].error"];

/// A compiled signature.
#[derive(Clone, Debug)]
pub(crate) struct JsonShape {
    paths: Arc<JsonPaths<usize>>,
    /// By tag.
    places: Vec<&'static str>,
    signature: JsonSignature,
}

/// What was seen at one place.
#[derive(Clone, Debug, Default)]
struct Seen {
    /// By type.
    counts: [u64; Kinds::COUNT],
    /// The elements of all lists.
    elements: u64,
    /// The beginning of the first text.
    head: Vec<u8>,
    /// Whether a value has the effect that the signature looks for here.
    has_effect: bool,
}

impl JsonShape {
    /// Compiles a signature.
    pub(crate) fn new(signature: JsonSignature) -> Self {
        let mut places: Vec<&'static str> = vec![JSON_RPC];
        places.extend(ERRORS);
        for need in signature.forms.iter().copied().flatten() {
            match need {
                Need::Has(path, _) | Need::Maybe(path, _) | Need::Says(path, _) => places.push(path),
                Need::Each(list, of_element) => {
                    places.push(list);
                    places.extend(of_element.iter().map(|(path, _)| *path));
                }
            }
        }
        places.extend(signature.effects.iter().map(|effect| effect.path()));
        places.sort_unstable();
        places.dedup();
        let tagged = places.iter().enumerate().map(|(tag, path)| (*path, tag));
        let paths = Arc::new(JsonPaths::new(tagged).with_elements(|_| ElementMode::Counted));
        Self { paths, places, signature }
    }

    /// A reader of documents.
    pub(crate) fn reader(&self) -> DocumentReader<'_> {
        DocumentReader { shape: self, json: JsonReader::new(self.paths.clone()), seen: self.nothing() }
    }

    fn nothing(&self) -> Vec<Seen> {
        vec![Seen::default(); self.places.len()]
    }

    fn effect_at(&self, tag: usize) -> Option<Effect> {
        let place = self.places.get(tag)?;
        self.signature.effects.iter().copied().find(|effect| effect.path() == *place)
    }
}

/// Reads documents, one after another.
#[derive(Debug)]
pub(crate) struct DocumentReader<'s> {
    shape: &'s JsonShape,
    json: JsonReader<usize>,
    seen: Vec<Seen>,
}

impl DocumentReader<'_> {
    /// Reads a piece of a document.
    pub(crate) fn feed(&mut self, bytes: &[u8]) {
        let Self { shape, json, seen } = self;
        json.feed(bytes, &mut |tag, value| note(shape, seen, tag, value));
    }

    /// Reads a whole document.
    pub(crate) fn whole(&mut self, document: &[u8]) -> Recognised {
        self.feed(document);
        self.end()
    }

    /// Ends a document. Returns what it is, and is ready for another.
    pub(crate) fn end(&mut self) -> Recognised {
        let Self { shape, json, seen } = self;
        let is_whole = json.end(&mut |tag, value| note(shape, seen, tag, value));
        json.restart();
        let seen = std::mem::replace(seen, shape.nothing());
        if is_whole { shape.judge(&seen) } else { Recognised::No }
    }
}

fn note(shape: &JsonShape, seen: &mut [Seen], tag: usize, value: JsonValue<'_>) {
    let effect = shape.effect_at(tag);
    let Some(place) = seen.get_mut(tag) else { return };
    let (kind, count, is_set) = match value {
        JsonValue::Null => return,
        JsonValue::Bool(is_true) => (BOOL, 1, is_true),
        JsonValue::Number(number) => (NUMBER, 1, number != 0.0),
        JsonValue::Numbers { len } => (NUMBER, len, true),
        JsonValue::Text { bytes, .. } => (TEXT, 1, bytes > 0),
        JsonValue::Array { len } => {
            place.elements = place.elements.saturating_add(len);
            (LIST, 1, len > 0)
        }
        JsonValue::Object { len } => (OBJECT, 1, len > 0),
    };
    let counted = &mut place.counts[kind.0.trailing_zeros() as usize];
    *counted = counted.saturating_add(count);
    let text = if let JsonValue::Text { head, .. } = value { head } else { &[] };
    if kind == TEXT && place.counts[0] == 1 {
        place.head = text.iter().copied().take(HEAD_BYTES).collect();
    }
    place.has_effect |= match effect {
        None => false,
        Some(Effect::Set(_)) => is_set,
        Some(Effect::Zero(_)) => value == JsonValue::Number(0.0) || text.starts_with(b"0"),
        Some(Effect::Other(_, known)) => kind != TEXT || known.iter().all(|known| known.as_bytes() != text),
    };
}

impl JsonShape {
    fn judge(&self, seen: &[Seen]) -> Recognised {
        let at = |path: &str| self.places.iter().position(|place| *place == path).and_then(|tag| seen.get(tag));
        if at(JSON_RPC).is_some_and(|seen| seen.total() > 0) {
            return Recognised::No;
        }
        if self.signature.forms.iter().any(|form| form.iter().all(|need| meets(*need, &at))) {
            let effect = self.places.iter().zip(seen).find(|(_, seen)| seen.has_effect);
            return effect.map_or(Recognised::Yes, |(path, _)| Recognised::Effect(path));
        }
        let is_error = ERRORS.iter().any(|path| at(path).is_some_and(|seen| seen.total() > 0));
        if is_error { Recognised::Error } else { Recognised::No }
    }
}

fn meets<'s>(need: Need, at: &impl Fn(&str) -> Option<&'s Seen>) -> bool {
    match need {
        Need::Has(path, kinds) => at(path).is_some_and(|seen| seen.total() > 0 && seen.of(kinds) == seen.total()),
        Need::Maybe(path, kinds) => at(path).is_none_or(|seen| seen.of(kinds) == seen.total()),
        Need::Each(list, of_element) => at(list).is_some_and(|seen| {
            let found: u64 = of_element.iter().filter_map(|(path, kinds)| Some(at(path)?.of(*kinds))).sum();
            seen.of(LIST) == seen.total() && seen.elements > 0 && found == seen.elements
        }),
        Need::Says(path, words) => at(path).is_some_and(|seen| words.iter().any(|word| seen.head.starts_with(word.as_bytes()))),
    }
}

impl Seen {
    fn total(&self) -> u64 {
        self.counts.iter().sum()
    }

    fn of(&self, kinds: Kinds) -> u64 {
        self.counts.iter().enumerate().filter(|(bit, _)| kinds.0 & (1 << bit) != 0).map(|(_, count)| count).sum()
    }
}
