//! One value of a JSON body, by its pointer: of bodies that somebody has whole, whatever their protocol.

use std::sync::Arc;

use crate::json_pointer::paths_of_pointer;
use crate::wire::{JsonPaths, JsonReader, JsonValue};

/// A pointer into JSON bodies (RFC 6901).
#[derive(Clone, Debug)]
pub struct BodyPointer(Arc<JsonPaths<()>>);

impl BodyPointer {
    /// `None` if it is no pointer, or has more than six numbers.
    #[must_use]
    pub fn new(pointer: &str) -> Option<Self> {
        let paths = paths_of_pointer(pointer)?;
        Some(Self(Arc::new(JsonPaths::from_steps(paths.into_iter().map(|steps| (steps, ()))))))
    }

    /// The text or number that it points to in the body of these pieces, the last if there are several; `None` if there is none. Of a text its
    /// first 128 bytes.
    pub fn find<'p>(&self, pieces: impl IntoIterator<Item = &'p [u8]>) -> Option<Vec<u8>> {
        let (mut reader, mut found) = (JsonReader::new(self.0.clone()), None);
        let mut note = |(), value: JsonValue<'_>| match value {
            JsonValue::Text { head, .. } => found = Some(head.to_vec()),
            JsonValue::Number(number) => found = Some(number.to_string().into_bytes()),
            _ => {}
        };
        pieces.into_iter().for_each(|piece| reader.feed(piece, &mut note));
        reader.end(&mut note);
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_found_however_the_body_is_cut() {
        let body = br#"{"user": {"id": 7, "name": "a\u00e9"}, "list": ["x", "y"], "no": null, "twice": "a", "twice": "b"}"#;
        for (pointer, expected) in [
            ("/user/id", Some("7")),
            ("/user/name", Some("a\u{e9}")),
            ("/list/1", Some("y")),
            ("/twice", Some("b")),
            ("/no", None),
            ("/user", None),
            ("/missing", None),
        ] {
            let pointer_of = BodyPointer::new(pointer).unwrap();
            for size in [1, 5, body.len()] {
                let found = pointer_of.find(body.chunks(size));
                assert_eq!(found.as_deref(), expected.map(str::as_bytes), "{pointer} in pieces of {size}");
            }
        }
        assert!(BodyPointer::new("user").is_none());
    }
}
