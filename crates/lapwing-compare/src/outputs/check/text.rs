//! Text against text: byte by byte, normalised, and by token edit similarity.

use std::hash::{Hash, Hasher};

use rustc_hash::FxHasher;

use super::super::comparison::{DifferenceDetail, DifferenceKind, FieldComparison, TextComparison};
use super::super::config::TextRule;
use super::super::decode::GeneratedTexts;
use super::super::rules::Rules;
use super::aligned::{EditDistance, edit_distance};

/// How many steps all alignments of one comparison may take together: some ten milliseconds.
const STEPS: u64 = 4_000_000;

/// From here on every character is a word, because the scripts above it do not separate words.
const IDEOGRAPHS: char = '\u{2e80}';

/// The steps that are left for aligning texts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EditBudget(u64);

impl Default for EditBudget {
    fn default() -> Self {
        Self(STEPS)
    }
}

/// Compares two texts that are not the same. Invalid UTF-8 counts as replacement characters.
pub(crate) fn compare_texts(primary: &[u8], candidate: &[u8], budget: &mut EditBudget) -> TextComparison {
    let first_difference = primary.iter().zip(candidate).take_while(|(p, c)| p == c).count() as u64;
    let bytes = [primary.len() as u64, candidate.len() as u64];
    let (p, c) = (String::from_utf8_lossy(primary), String::from_utf8_lossy(candidate));
    let is_same_normalised = is_same_normalised(&p, &c);
    let (p, c) = (tokens(&p), tokens(&c));
    let (distance, is_bound) = match edit_distance(&p, &c, &mut budget.0) {
        EditDistance::Exact(distance) => (distance, false),
        EditDistance::AtLeast(distance) => (distance, true),
    };
    let similarity = 1.0 - distance as f64 / p.len().max(c.len()).max(1) as f64;
    TextComparison { bytes, is_same_normalised, similarity, is_bound, first_difference }
}

/// Whether texts that are not the same agree by the rule. A similarity that is only bounded is not enough.
pub(crate) fn is_agreed(found: &TextComparison, rules: &Rules) -> bool {
    match rules.text {
        TextRule::Exact => false,
        TextRule::Normalised => found.is_same_normalised,
        TextRule::Similarity => !found.is_bound && found.similarity >= rules.similarity,
    }
}

/// Compares texts that are whole fields. `None` if they are the same.
pub(crate) fn compare_field(
    name: &str,
    primary: &[u8],
    candidate: &[u8],
    rules: &Rules,
    budget: &mut EditBudget,
) -> Option<FieldComparison> {
    if primary == candidate {
        return None;
    }
    let found = compare_texts(primary, candidate, budget);
    let mut field = FieldComparison::new(name);
    if !is_agreed(&found, rules) {
        field.differs(DifferenceKind::Text, || detail(String::new(), &found));
    }
    field.text = Some(found);
    Some(field)
}

/// What is shown of texts that differ: lengths, not the texts.
pub(crate) fn detail(at: String, found: &TextComparison) -> DifferenceDetail {
    let [primary, candidate] = found.bytes.map(|bytes| format!("{bytes} bytes"));
    DifferenceDetail { at, primary, candidate }
}

/// The words and marks of a text, as hashes.
fn tokens(text: &str) -> Vec<u64> {
    let mut tokens = Vec::new();
    let mut word: Option<FxHasher> = None;
    for c in text.chars() {
        let is_part_of_word = c < IDEOGRAPHS && c.is_alphanumeric();
        if is_part_of_word {
            c.hash(word.get_or_insert_default());
            continue;
        }
        tokens.extend(word.take().map(|word| word.finish()));
        if !c.is_whitespace() {
            let mut mark = FxHasher::default();
            c.hash(&mut mark);
            tokens.push(mark.finish());
        }
    }
    tokens.extend(word.take().map(|word| word.finish()));
    tokens
}

/// Whether the texts are the same but for case and white space.
fn is_same_normalised(a: &str, b: &str) -> bool {
    let (mut a, mut b) = (a.split_whitespace(), b.split_whitespace());
    loop {
        match (a.next(), b.next()) {
            (None, None) => return true,
            (Some(a), Some(b)) if a == b || a.chars().flat_map(char::to_lowercase).eq(b.chars().flat_map(char::to_lowercase)) => {
            }
            _ => return false,
        }
    }
}

/// Compares what two models wrote. The choices share a field for each part, because which choice it is says nothing.
pub(crate) fn compare_generated(
    primary: &GeneratedTexts,
    candidate: &GeneratedTexts,
    rules: &Rules,
    budget: &mut EditBudget,
) -> Vec<FieldComparison> {
    let mut fields: Vec<FieldComparison> = Vec::new();
    let keys = primary.0.keys().chain(candidate.0.keys().filter(|key| !primary.0.contains_key(key)));
    for (choice, part) in keys {
        let [p, c] = [primary, candidate].map(|side| side.0.get(&(*choice, *part)).map_or(&b""[..], |text| text.as_bytes()));
        let Some(found) = compare_field(part.name(), p, c, rules, budget) else { continue };
        match fields.iter_mut().find(|field| field.field == found.field) {
            Some(field) => {
                field.kinds = field.kinds.union(found.kinds);
                let is_worse = found.text.zip(field.text).is_none_or(|(new, old)| new.similarity < old.similarity);
                if is_worse {
                    (field.text, field.detail) = (found.text, found.detail.or_else(|| field.detail.take()));
                }
            }
            None => fields.push(found),
        }
    }
    fields
}
