//! Entities: who or what features are looked up for, as a request names them.

use serde_json::value::RawValue;
use smallvec::SmallVec;

use crate::types::EntityType;

/// The longest text that is an entity's value.
const MAX_TEXT_BYTES: usize = 1_024;

/// One value that names an entity.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum EntityValue {
    /// An integer of 64 bits.
    Int64(i64),
    /// An integer of 32 bits, which a store may keep apart from one of 64.
    Int32(i32),
    /// A text.
    Text(Box<str>),
}

/// All values that name an entity, one for each part of its key, in the order of the settings.
pub(crate) type EntityValues = SmallVec<[EntityValue; 1]>;

impl EntityValue {
    /// What `json` says, as a value of the type `of`, or of its own; `None` if it is no text and no integer, or does not fit the type.
    pub(crate) fn read(json: &RawValue, of: Option<EntityType>) -> Option<Self> {
        let json = json.get();
        if json.starts_with('"') {
            let text: Box<str> = serde_json::from_str(json).ok()?;
            return match of {
                _ if text.is_empty() || text.len() > MAX_TEXT_BYTES => None,
                None | Some(EntityType::String) => Some(Self::Text(text)),
                Some(EntityType::Int64) => canonical(&text).map(Self::Int64),
                Some(EntityType::Int32) => canonical(&text).map(Self::Int32),
            };
        }
        match of {
            None | Some(EntityType::Int64) => canonical(json).map(Self::Int64),
            Some(EntityType::Int32) => canonical(json).map(Self::Int32),
            Some(EntityType::String) => canonical::<i64>(json).map(|number| Self::Text(number.to_string().into())),
        }
    }

    /// As it stands in a key.
    pub(crate) fn in_key(&self) -> String {
        match self {
            Self::Int64(number) => number.to_string(),
            Self::Int32(number) => number.to_string(),
            Self::Text(text) => text.to_string(),
        }
    }

    /// As JSON.
    pub(crate) fn json(&self) -> serde_json::Value {
        match self {
            Self::Int64(number) => (*number).into(),
            Self::Int32(number) => (*number).into(),
            Self::Text(text) => (**text).into(),
        }
    }
}

/// The integer that `text` is, in the one way to write it: two texts of one entity would be two.
fn canonical<N: std::str::FromStr + ToString>(text: &str) -> Option<N> {
    let number: N = text.parse().ok()?;
    (number.to_string() == text).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_and_integers_are_entities() {
        let read = |json: &str, of| EntityValue::read(serde_json::from_str(json).unwrap(), of);
        let text = |text: &str| Some(EntityValue::Text(text.into()));
        assert_eq!(read("1001", None), Some(EntityValue::Int64(1001)));
        assert_eq!(read("-5", Some(EntityType::Int32)), Some(EntityValue::Int32(-5)));
        assert_eq!(read("1001", Some(EntityType::String)), text("1001"));
        assert_eq!(read(r#""1001""#, Some(EntityType::Int64)), Some(EntityValue::Int64(1001)));
        assert_eq!((read(r#""Zo\u00eb""#, None), read(r#""1001""#, None)), (text("Zoë"), text("1001")));
        for none in ["1.0", "1e3", "null", "true", "[1]", "{}", "\"\"", "9223372036854775808", "-0"] {
            assert_eq!(read(none, None), None, "{none}");
        }
        assert_eq!(read("3000000000", Some(EntityType::Int32)), None);
        assert_eq!(read(r#""+1""#, Some(EntityType::Int64)), None);
        assert_eq!(read(&format!("\"{}\"", "x".repeat(1_025)), None), None);
    }
}
