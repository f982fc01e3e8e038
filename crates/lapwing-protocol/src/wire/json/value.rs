//! The values that a JSON reader returns.

/// A watched value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum JsonValue<'a> {
    /// `null`
    Null,
    /// `true` or `false`
    Bool(bool),
    /// A finite number of at most 40 bytes; others (and `NaN`, which some servers write) are dropped.
    Number(f64),
    /// Several consecutive numbers of one array, if [`ElementMode::Counted`](super::ElementMode::Counted) was asked for.
    Numbers {
        /// How many numbers, at least one.
        len: u64,
    },
    /// A string.
    Text {
        /// The first bytes, unescaped, at most [`TEXT_BYTES`](super::TEXT_BYTES); the last character may be cut.
        head: &'a [u8],
        /// Its length on the wire in bytes, between its quotes.
        bytes: u64,
    },
    /// An array, at its end.
    Array {
        /// The number of its elements.
        len: u64,
    },
    /// An object, at its end.
    Object {
        /// The number of its keys.
        len: u64,
    },
}

/// An event of several documents in a row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum JsonItem<'a, T> {
    /// A watched value and its tag.
    Value(T, JsonValue<'a>),
    /// The document is complete; another one may follow.
    End,
}

/// A number or a word; `None` if it is neither. `NaN` and `Infinity` count as numbers, as Python writes them.
pub(crate) fn word(token: &[u8]) -> Option<JsonValue<'static>> {
    match token {
        b"null" => Some(JsonValue::Null),
        b"true" => Some(JsonValue::Bool(true)),
        b"false" => Some(JsonValue::Bool(false)),
        // most numbers are small and whole
        [b'1'..=b'9', rest @ ..] if rest.len() < 9 && rest.iter().all(u8::is_ascii_digit) => {
            let whole = token.iter().fold(0, |whole: u32, digit| whole * 10 + u32::from(digit - b'0'));
            Some(JsonValue::Number(whole.into()))
        }
        _ => std::str::from_utf8(token).ok()?.parse().ok().map(JsonValue::Number).or_else(|| other_word(token)),
    }
}

/// Words that are not JSON's, but servers': Python's, and MSVC's numbers that are not finite.
fn other_word(token: &[u8]) -> Option<JsonValue<'static>> {
    let is = |words: &[&str]| words.iter().any(|word| token.eq_ignore_ascii_case(word.as_bytes()));
    match token {
        _ if is(&["none", "null", "undefined", "nil"]) => Some(JsonValue::Null),
        _ if is(&["true"]) => Some(JsonValue::Bool(true)),
        _ if is(&["false"]) => Some(JsonValue::Bool(false)),
        // dropped like every number that is not finite
        _ if token.contains(&b'#') => Some(JsonValue::Number(f64::NAN)),
        _ => None,
    }
}
