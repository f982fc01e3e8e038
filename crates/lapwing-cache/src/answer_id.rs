//! Where the `id` of an answer stands in its JSON, so that another can take its place and every other byte stays.

use std::ops::Range;

use serde::de::IgnoredAny;

/// Where the member `id` of an object stands, or would stand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum IdPlace {
    /// It is there.
    Present {
        /// Its value.
        value: Range<usize>,
        /// What goes with it if it goes: it, and a comma beside it.
        member: Range<usize>,
    },
    /// It is not there; it would come here, first.
    Absent {
        at: usize,
        /// Whether others would follow.
        is_followed: bool,
    },
}

impl IdPlace {
    /// Finds it in a whole document. `None` if that is no object, or has an `id` twice, or one that is no text.
    pub(crate) fn find(json: &[u8]) -> Option<Self> {
        serde_json::from_slice::<IgnoredAny>(json).ok()?;
        let mut cursor = Cursor { json, at: 0 };
        cursor.skip_space();
        cursor.take(b'{')?;
        let at = cursor.at;
        let (mut found, mut members) = (None, 0);
        // where the member before ended, at its comma
        let mut comma = None;
        cursor.skip_space();
        while cursor.peek()? != b'}' {
            let key = cursor.value();
            cursor.skip_space();
            cursor.take(b':')?;
            cursor.skip_space();
            let value = cursor.value();
            cursor.skip_space();
            let end = cursor.at;
            let is_last = cursor.take(b',').is_none();
            cursor.skip_space();
            if serde_json::from_slice::<String>(json.get(key.clone())?).is_ok_and(|key| key == "id") {
                serde_json::from_slice::<String>(json.get(value.clone())?).ok()?;
                // the first goes with the comma behind it, others with the one before
                let member = match comma {
                    Some(comma) => comma..value.end,
                    None if is_last => key.start..value.end,
                    None => key.start..cursor.at,
                };
                if found.replace(Self::Present { value, member }).is_some() {
                    return None;
                }
            }
            comma = Some(end);
            members += 1;
        }
        Some(found.unwrap_or(Self::Absent { at, is_followed: members > 0 }))
    }

    /// What stands in place of which bytes if the id is `id`, as JSON, or none.
    pub(crate) fn edit(&self, id: Option<&str>) -> (Range<usize>, String) {
        match (self, id) {
            (Self::Present { value, .. }, Some(id)) => (value.clone(), id.to_owned()),
            (Self::Present { member, .. }, None) => (member.clone(), String::new()),
            (Self::Absent { at, is_followed }, Some(id)) => {
                (*at..*at, format!("\"id\":{id}{}", if *is_followed { "," } else { "" }))
            }
            (Self::Absent { at, .. }, None) => (*at..*at, String::new()),
        }
    }
}

/// Reads valid JSON.
struct Cursor<'a> {
    json: &'a [u8],
    at: usize,
}

impl Cursor<'_> {
    fn peek(&self) -> Option<u8> {
        self.json.get(self.at).copied()
    }

    fn take(&mut self, byte: u8) -> Option<()> {
        (self.peek() == Some(byte)).then(|| self.at += 1)
    }

    fn skip_space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    /// Passes over a value and returns where it is.
    fn value(&mut self) -> Range<usize> {
        let (start, mut depth) = (self.at, 0_usize);
        while let Some(byte) = self.peek() {
            match byte {
                b'"' => self.text(),
                b'[' | b'{' => {
                    depth += 1;
                    self.at += 1;
                }
                b']' | b'}' | b',' | b':' | b' ' | b'\t' | b'\n' | b'\r' if depth == 0 => break,
                b']' | b'}' => {
                    depth -= 1;
                    self.at += 1;
                }
                _ => self.at += 1,
            }
        }
        start..self.at
    }

    fn text(&mut self) {
        self.at += 1;
        while let Some(byte) = self.peek() {
            self.at += if byte == b'\\' { 2 } else { 1 };
            if byte == b'"' {
                break;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn edited(json: &str, id: Option<&str>) -> Option<String> {
        let (range, text) = IdPlace::find(json.as_bytes())?.edit(id);
        Some([&json[..range.start], &text, &json[range.end..]].concat())
    }

    #[test]
    fn every_other_byte_stays() {
        for (json, with, without) in [
            ("{}", r#"{"id":"7"}"#, "{}"),
            (r#"{"a": 1}"#, r#"{"id":"7","a": 1}"#, r#"{"a": 1}"#),
            (r#" { "id" : "x" } "#, r#" { "id" : "7" } "#, " {  } "),
            (r#"{"id":"x", "a":[1, {"id": 2}]}"#, r#"{"id":"7", "a":[1, {"id": 2}]}"#, r#"{"a":[1, {"id": 2}]}"#),
            (r#"{"a":"}\",{" , "id":"x","b":{}}"#, r#"{"a":"}\",{" , "id":"7","b":{}}"#, r#"{"a":"}\",{" ,"b":{}}"#),
            (r#"{"a":1, "\u0069d": "x"}"#, r#"{"a":1, "\u0069d": "7"}"#, r#"{"a":1}"#),
        ] {
            assert_eq!(edited(json, Some("\"7\"")).as_deref(), Some(with), "{json}");
            assert_eq!(edited(json, None).as_deref(), Some(without), "{json}");
        }
        for unreadable in
            ["", "[]", "\"id\"", r#"{"id": 7}"#, r#"{"id": null}"#, r#"{"id": "a", "id": "b"}"#, r#"{"id": "a""#, "{} {}"]
        {
            assert_eq!(edited(unreadable, None), None, "{unreadable}");
        }
    }

    proptest! {
        #[test]
        fn an_edited_document_has_the_id_and_else_what_it_had(
            members in prop::collection::vec(("[a-c\"\\\\]{0,2}", prop::sample::select(vec!["1", "[1, {\"id\":2}]", "\"}\\\",\"", "null"])), 0..4),
            id in prop::option::of("[a-z\"]{0,3}"),
            at in 0_usize..5,
            new in prop::option::of("[a-z\"]{0,3}"),
        ) {
            let mut all: Vec<String> = members.iter().map(|(key, value)| format!("{} : {value}", serde_json::json!(format!("{key}_")))).collect();
            if let Some(id) = &id {
                all.insert(at.min(all.len()), format!("\"id\":{}", serde_json::json!(id)));
            }
            let json = format!("{{ {} }}", all.join(" , "));
            let new = new.map(|new| serde_json::json!(new));
            let edited = edited(&json, new.as_ref().map(ToString::to_string).as_deref()).unwrap();
            let (mut before, mut after): (serde_json::Value, serde_json::Value) =
                (serde_json::from_str(&json).unwrap(), serde_json::from_str(&edited).unwrap());
            prop_assert_eq!(after.as_object_mut().unwrap().remove("id"), new);
            before.as_object_mut().unwrap().remove("id");
            prop_assert_eq!(before, after);
        }
    }
}
