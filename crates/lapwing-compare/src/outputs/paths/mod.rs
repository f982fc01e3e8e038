//! Paths in a JSON document, and patterns of them: `$.created`, `$.choices[].id`, `$.rows[0]`, `$.*.time`, `$..timestamp`.
//!
//! `.key` or `["key"]` is a member, `.*` any member, `[]` or `[*]` any element, `[2]` one element, `..key` a member at any depth.
//! A pattern selects what it matches and everything in it. Matching advances all patterns by one step at a time: it costs a
//! few operations per step and pattern, whatever the document.

mod pattern;
mod value_path;

pub(crate) use pattern::{PathPattern, PathSet, PathState};
pub use value_path::ValuePath;
pub(crate) use value_path::ValueStep;

use std::fmt::{self, Write as _};

/// A step from a value of a document to one in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PathPart<'a> {
    /// A member of an object.
    Key(&'a str),
    /// An element of an array.
    Element(usize),
}

/// The most bytes of a path that are shown; the rest is cut off and replaced by `…`.
pub(crate) const PATH_BYTES: usize = 200;

/// A path as text, with its indices: `$.rows[3].score`.
pub(crate) fn path_text(parts: &[PathPart<'_>]) -> String {
    let mut text = Bounded("$".to_owned());
    for part in parts {
        if write_part(&mut text, part).is_err() {
            text.0.push('…');
            break;
        }
    }
    text.0
}

fn write_part(text: &mut Bounded, part: &PathPart<'_>) -> fmt::Result {
    match part {
        PathPart::Key(key) if is_plain(key) => write!(text, ".{key}"),
        PathPart::Key(key) => write!(text, "[{key:?}]"),
        PathPart::Element(index) => write!(text, "[{index}]"),
    }
}

/// Appends a key to the name of a field, as [`path_text`] does.
pub(crate) fn append_key(name: &str, key: &str) -> String {
    let mut text = Bounded(name.to_owned());
    if write_part(&mut text, &PathPart::Key(key)).is_err() && !text.0.ends_with('…') {
        text.0.push('…');
    }
    text.0
}

/// Whether a key needs no quotes.
fn is_plain(key: &str) -> bool {
    !key.is_empty() && key.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | '$' | '@'))
}

/// Text that refuses to grow beyond [`PATH_BYTES`].
struct Bounded(String);

impl fmt::Write for Bounded {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.0.len() + text.len() > PATH_BYTES {
            let room = PATH_BYTES.saturating_sub(self.0.len());
            let end = (0..=room.min(text.len())).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
            self.0.push_str(&text[..end]);
            return Err(fmt::Error);
        }
        self.0.push_str(text);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_shown_and_bounded() {
        assert_eq!(path_text(&[]), "$");
        assert_eq!(path_text(&[PathPart::Key("a"), PathPart::Element(3), PathPart::Key("b c")]), "$.a[3][\"b c\"]");
        assert_eq!(append_key("$[]", "x"), "$[].x");
        let long = "k".repeat(1000);
        let text = path_text(&[PathPart::Key(&long), PathPart::Key("more")]);
        assert!(text.len() <= PATH_BYTES + '…'.len_utf8() && text.ends_with('…'), "{text}");
        let wide = "ü".repeat(300);
        assert!(append_key("$", &wide).ends_with('…'));
        assert_eq!(append_key(&append_key("$", &wide), &wide), append_key("$", &wide));
    }
}
