//! Any document, written in any way and cut anywhere, gives the same values as a walk through its tree; no bytes cause a panic.

use std::sync::Arc;

use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::Value as Tree;

use super::super::*;
use crate::wire::reader_properties;

/// Writes a tree as text, with white space and escapes as `noise` has it, and notes what a reader must report.
struct Writer<'a> {
    patterns: &'a [Vec<PathStep>],
    noise: &'a [u8],
    at: usize,
    out: String,
    way: Vec<PathStep>,
    seen: Vec<String>,
}

impl Writer<'_> {
    fn noise(&mut self) -> u8 {
        self.at += 1;
        self.noise[self.at % self.noise.len()]
    }

    fn space(&mut self) {
        let chosen = usize::from(self.noise() % 16);
        self.out += [" ", "\n  ", "\t", "\r\n"].get(chosen).unwrap_or(&"");
    }

    fn mark(&mut self, mark: char) {
        self.space();
        self.out.push(mark);
        self.space();
    }

    /// Returns how many bytes are between the quotes.
    fn text(&mut self, text: &str) -> usize {
        self.out.push('"');
        let start = self.out.len();
        for c in text.chars() {
            match (self.noise() % 4, c) {
                (0, _) => c.encode_utf16(&mut [0; 2]).iter().for_each(|unit| self.out += &format!("\\u{unit:04x}")),
                (1, '"' | '\\' | '/') => self.out.extend(['\\', c]),
                (_, '"' | '\\' | '\0'..' ') => {
                    let quoted = Tree::from(c.to_string()).to_string();
                    self.out += &quoted[1..quoted.len() - 1];
                }
                _ => self.out.push(c),
            }
        }
        let bytes = self.out.len() - start;
        self.out.push('"');
        bytes
    }

    /// The pattern that matches where the writer is.
    fn tag(&self) -> Option<usize> {
        let names = |pattern: &[PathStep]| {
            pattern.iter().rev().map(|s| matches!(s, PathStep::Key(_) | PathStep::Index(_))).collect::<Vec<_>>()
        };
        let matches = |pattern: &[PathStep]| {
            pattern.len() == self.way.len()
                && pattern.iter().zip(&self.way).all(|(step, here)| match step {
                    PathStep::AnyKey => matches!(here, PathStep::Key(_)),
                    PathStep::Element => matches!(here, PathStep::Index(_)),
                    step => step == here,
                })
        };
        let found = self.patterns.iter().enumerate().filter(|(_, p)| matches(p));
        found.max_by_key(|(_, p)| names(p)).map(|(i, _)| i)
    }

    fn note(&mut self, value: JsonValue<'_>) {
        if let Some(tag) = self.tag() {
            self.seen.push(format!("{tag} {value:?}"));
        }
    }

    fn write(&mut self, tree: &Tree) {
        match tree {
            Tree::Null | Tree::Bool(_) | Tree::Number(_) => {
                self.out += &tree.to_string();
                self.note(match tree {
                    Tree::Bool(b) => JsonValue::Bool(*b),
                    other => other.as_f64().map_or(JsonValue::Null, JsonValue::Number),
                });
            }
            Tree::String(text) => {
                let bytes = self.text(text) as u64;
                self.note(JsonValue::Text { head: &text.as_bytes()[..text.len().min(TEXT_BYTES)], bytes });
            }
            Tree::Array(elements) => {
                self.mark('[');
                for (i, element) in elements.iter().enumerate() {
                    if i > 0 {
                        self.mark(',');
                    }
                    self.way.push(PathStep::Index(i as u64));
                    self.write(element);
                    self.way.pop();
                }
                self.mark(']');
                self.note(JsonValue::Array { len: elements.len() as u64 });
            }
            Tree::Object(values) => {
                self.mark('{');
                for (i, (key, value)) in values.iter().enumerate() {
                    if i > 0 {
                        self.mark(',');
                    }
                    self.text(key);
                    self.mark(':');
                    self.way.push(PathStep::Key(key.clone()));
                    self.write(value);
                    self.way.pop();
                }
                self.mark('}');
                self.note(JsonValue::Object { len: values.len() as u64 });
            }
        }
    }
}

fn any_key() -> impl Strategy<Value = String> {
    prop_oneof![8 => "[abc]", 1 => "[\\PC\"\\\\/\n😀]{0,4}", 1 => Just("é\"\\".to_owned())]
}

fn any_tree() -> impl Strategy<Value = Tree> {
    let text = prop_oneof![4 => "[\\PC\"\\\\/\n\t😀{}\\[\\],:]{0,12}", 1 => "[a-z \"é\\\\]{100,150}"];
    let leaf = prop_oneof![
        Just(Tree::Null),
        any::<bool>().prop_map(Tree::from),
        any::<i64>().prop_map(Tree::from),
        // exact in decimal: serde_json rounds otherwise
        any::<i32>().prop_map(|n| Tree::from(f64::from(n) / 8.0)),
        text.prop_map(Tree::from),
    ];
    leaf.prop_recursive(5, 80, 6, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..6).prop_map(Tree::from),
            vec((any_key(), inner), 0..6).prop_map(|pairs| Tree::Object(pairs.into_iter().collect())),
        ]
    })
}

/// Long arrays, most of whose elements are numbers.
fn any_numbers() -> impl Strategy<Value = Tree> {
    let number = prop_oneof![any::<i64>().prop_map(Tree::from), any::<i32>().prop_map(|n| Tree::from(f64::from(n) / 8.0e9))];
    let other = prop_oneof![
        Just(Tree::Null),
        Just(Tree::from("1,2]")),
        vec(number.clone(), 0..40).prop_map(Tree::from),
        number.clone().prop_map(|n| serde_json::json!({"b": n})),
    ];
    let array = vec(prop_oneof![30 => number, 1 => other], 0..200).prop_map(Tree::from);
    (array, any::<bool>()).prop_map(|(array, inside)| if inside { serde_json::json!({"a": array, "c": 1}) } else { array })
}

fn any_patterns() -> impl Strategy<Value = Vec<Vec<PathStep>>> {
    let step = prop_oneof![
        4 => "[abc]".prop_map(PathStep::Key),
        3 => Just(PathStep::AnyKey),
        4 => Just(PathStep::Element),
        2 => (0..3_u64).prop_map(PathStep::Index),
    ];
    vec(vec(step, 0..4), 0..8).prop_map(|mut patterns| {
        let mut kept: Vec<Vec<PathStep>> = Vec::new();
        for pattern in patterns.drain(..) {
            if !kept.contains(&pattern) {
                kept.push(pattern);
            }
        }
        kept
    })
}

/// Bytes cut at these places, each counted from the one before.
fn pieces<'a>(mut bytes: &'a [u8], lengths: &[usize]) -> Vec<&'a [u8]> {
    let mut pieces = Vec::new();
    for length in lengths {
        let (piece, rest) = bytes.split_at((*length).min(bytes.len()));
        pieces.push(piece);
        bytes = rest;
    }
    pieces.push(bytes);
    pieces
}

/// A tree as it is, or many of it, which are long enough for the widest vectors.
fn short_or_long(tree: impl Strategy<Value = Tree>) -> impl Strategy<Value = Tree> {
    (tree, prop_oneof![3 => Just(1), 1 => Just(40)])
        .prop_map(|(tree, times)| if times == 1 { tree } else { Tree::Array(vec![tree; times]) })
}

proptest! {
    #[test]
    fn a_document_reads_as_its_tree(
        tree in short_or_long(any_tree()),
        patterns in any_patterns(),
        noise in vec(any::<u8>(), 1..40),
        lengths in vec(prop_oneof![0..4_usize, 0..100_usize], 0..30),
    ) {
        let mut writer = Writer { patterns: &patterns, noise: &noise, at: 0, out: String::new(), way: vec![], seen: vec![] };
        writer.write(&tree);
        prop_assert_eq!(&serde_json::from_str::<Tree>(&writer.out).unwrap(), &tree, "the writer");
        let paths = Arc::new(JsonPaths::from_steps(patterns.iter().cloned().enumerate().map(|(i, p)| (p, i))));
        for lengths in [&[][..], &lengths] {
            let (mut seen, mut reader) = (Vec::new(), JsonReader::new(paths.clone()));
            let capacity = reader.frames.capacity();
            let mut on = |tag: usize, value: JsonValue<'_>| seen.push(format!("{tag} {value:?}"));
            for piece in pieces(writer.out.as_bytes(), lengths) {
                reader.feed(piece, &mut on);
            }
            prop_assert!(reader.end(&mut on));
            prop_assert_eq!(&seen, &writer.seen);
            prop_assert_eq!(reader.frames.capacity(), capacity, "nothing is allocated while reading");
        }
    }

    #[test]
    fn numbers_are_counted_as_they_are_many(
        tree in short_or_long(any_numbers()),
        noise in vec(any::<u8>(), 1..40),
        lengths in vec(prop_oneof![0..4_usize, 0..200_usize], 0..30),
    ) {
        let mut writer = Writer { patterns: &[], noise: &noise, at: 0, out: String::new(), way: vec![], seen: vec![] };
        writer.write(&tree);
        let paths = JsonPaths::new(["", "[]", "[][]", "a", "a[]", "a[].b"].map(|p| (p, p)));
        let counting = Arc::new(paths.clone().with_elements(|_| ElementMode::Counted));
        // numbers are unchanged: other elements must be returned between the same numbers
        let read = |paths: &Arc<JsonPaths<&'static str>>, lengths: &[usize]| {
            let (mut seen, mut reader) = (Vec::new(), JsonReader::new(paths.clone()));
            let mut on = |tag: &str, value: JsonValue<'_>| match value {
                JsonValue::Number(_) => seen.push(format!("{tag} number")),
                JsonValue::Numbers { len } => seen.extend((0..len).map(|_| format!("{tag} number"))),
                value => seen.push(format!("{tag} {value:?}")),
            };
            for piece in pieces(writer.out.as_bytes(), lengths) {
                reader.feed(piece, &mut on);
            }
            assert!(reader.end(&mut on));
            seen
        };
        let one_by_one = read(&Arc::new(paths), &[]);
        prop_assert_eq!(&read(&counting, &[]), &one_by_one);
        prop_assert_eq!(&read(&counting, &lengths), &one_by_one);
    }

    #[test]
    fn any_bytes_read_the_same_in_pieces(bytes in vec(any::<u8>(), 0..300)) {
        prop_assert!(reader_properties::same_in_pieces(&bytes, reader_properties::json));
        prop_assert!(reader_properties::same_in_pieces(&bytes, reader_properties::json_many));
    }

    #[test]
    fn scraps_of_json_read_the_same_in_pieces(
        scraps in vec(proptest::sample::select(vec![
            "{", "}", "[", "]", ",", ":", "\"", "\\", "\\u00", "\"a\":", "\"b\":[", "\"c\":{", "1", "-", "null", " ", "{\"model\":\"",
            "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[", "]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]", "\u{1}", "é", "\\ud83d", "0123456789012345678901234567890",
        ]), 0..80),
    ) {
        let text = scraps.concat();
        prop_assert!(reader_properties::same_in_pieces(text.as_bytes(), reader_properties::json));
        prop_assert!(reader_properties::same_in_pieces(text.as_bytes(), reader_properties::json_many));
    }
}
