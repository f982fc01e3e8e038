//! How values of HTTP are written in a recording: texts as texts, header fields as pairs, bodies as base64.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The most header fields of a message.
const MAX_FIELDS: usize = 1024;

/// Methods and paths.
pub(crate) mod text {
    use std::fmt::Display;
    use std::str::FromStr;

    use super::{Deserialize, Deserializer, Error, Serializer};

    pub(crate) fn serialize<T: Display, S: Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(value)
    }

    pub(crate) fn deserialize<'de, T, D>(deserializer: D) -> Result<T, D::Error>
    where
        T: FromStr<Err: Display>,
        D: Deserializer<'de>,
    {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

/// Header fields in their order, as `["name", "value"]`. A value that is not ASCII text is left out.
pub(crate) mod header_fields {
    use super::{Deserialize, Deserializer, Error, HeaderMap, HeaderName, HeaderValue, MAX_FIELDS, Serialize, Serializer};

    pub(crate) fn serialize<S: Serializer>(fields: &HeaderMap, serializer: S) -> Result<S::Ok, S::Error> {
        let texts: Vec<_> = fields.iter().filter_map(|(name, value)| Some((name.as_str(), value.to_str().ok()?))).collect();
        texts.serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<HeaderMap, D::Error> {
        let texts = Vec::<(String, String)>::deserialize(deserializer)?;
        if texts.len() > MAX_FIELDS {
            return Err(D::Error::custom(format!("{} header fields; there may be {MAX_FIELDS}", texts.len())));
        }
        let mut fields = HeaderMap::with_capacity(texts.len());
        for (name, value) in texts {
            let name = HeaderName::try_from(&name).map_err(|_| D::Error::custom(format!("{name:?} is no header's name")))?;
            let value = HeaderValue::try_from(&value).map_err(|_| D::Error::custom(format!("{value:?} is no header's value")))?;
            fields.append(name, value);
        }
        Ok(fields)
    }
}

/// A body.
pub(crate) mod base64_body {
    use super::{BASE64_STANDARD, Bytes, Deserialize, Deserializer, Engine, Error, Serializer};

    pub(crate) fn serialize<S: Serializer>(body: &Bytes, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&BASE64_STANDARD.encode(body))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Bytes, D::Error> {
        let text = std::borrow::Cow::<'_, str>::deserialize(deserializer)?;
        BASE64_STANDARD.decode(text.as_bytes()).map(Bytes::from).map_err(|error| D::Error::custom(format!("no base64: {error}")))
    }
}
