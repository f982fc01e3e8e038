//! Keys in a Redis of one's own: a text with the names of parts of entities, and of features, in braces.

use crate::entity::EntityValue;

/// The name that stands for the feature.
const FEATURE: &str = "feature";

/// A piece of a key.
#[derive(Debug, PartialEq, Eq)]
enum Piece {
    Text(Box<str>),
    /// The part of the entity at this place.
    Part(usize),
    Feature,
}

/// How keys are made.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct KeyTemplate(Vec<Piece>);

impl KeyTemplate {
    /// Reads a template for entities whose parts have these `names`. The error is the reason.
    pub(crate) fn parse(text: &str, names: &[&str]) -> Result<Self, String> {
        let mut pieces = Vec::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('{') {
            let Some((name, after)) = after.split_once('}') else { return Err("has a { without its }".to_owned()) };
            if !before.is_empty() {
                pieces.push(Piece::Text(before.into()));
            }
            pieces.push(match names.iter().position(|one| *one == name) {
                Some(at) => Piece::Part(at),
                None if name == FEATURE => Piece::Feature,
                None => return Err(format!("names {{{name}}}, which is none of entity")),
            });
            rest = after;
        }
        if !rest.is_empty() {
            pieces.push(Piece::Text(rest.into()));
        }
        for (at, name) in names.iter().enumerate() {
            if !pieces.contains(&Piece::Part(at)) {
                return Err(format!("must have {{{name}}} in it, as in user:{{user}}: else other entities have the same key"));
            }
        }
        Ok(Self(pieces))
    }

    /// Whether each feature has a key of its own.
    pub(crate) fn has_feature(&self) -> bool {
        self.0.contains(&Piece::Feature)
    }

    /// The key of an entity, or of one of its features.
    pub(crate) fn key(&self, values: &[EntityValue], feature: &str) -> Vec<u8> {
        let mut key = String::new();
        for piece in &self.0 {
            match piece {
                Piece::Text(text) => key.push_str(text),
                Piece::Part(at) => key.push_str(&values.get(*at).map(EntityValue::in_key).unwrap_or_default()),
                Piece::Feature => key.push_str(feature),
            }
        }
        key.into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_braces_are_replaced() {
        let values = [EntityValue::Int64(7), EntityValue::Text("n{user}".into())];
        let template = KeyTemplate::parse("f:{zone}:{user}:{feature}!", &["user", "zone"]).unwrap();
        assert_eq!((template.key(&values, "age"), template.has_feature()), (b"f:n{user}:7:age!".to_vec(), true));
        for (text, reason) in [
            ("user:", "must have {user} in it"),
            ("", "must have {user} in it"),
            ("{user", "has a { without its }"),
            ("{user}{age}", "names {age}"),
        ] {
            assert!(KeyTemplate::parse(text, &["user"]).unwrap_err().starts_with(reason), "{text}");
        }
    }
}
