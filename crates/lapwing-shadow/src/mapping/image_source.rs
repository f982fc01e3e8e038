//! Where a request has pictures.

use lapwing_compare::outputs::ValuePath;

/// Where a request has pictures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ImageSource {
    /// The whole body.
    Body,
    /// The part of this name of a form (`multipart/form-data`).
    Part(String),
    /// Base64 in a document, as data of a URL or alone.
    Document(ValuePath),
}

impl ImageSource {
    /// Parses `body`, `part:NAME` or a path.
    pub(crate) fn parse(text: &str) -> Result<Self, &'static str> {
        match (text, text.strip_prefix("part:")) {
            ("body", _) => Ok(Self::Body),
            (_, Some("")) => Err("must have the name of a part after part:"),
            (_, Some(part)) => Ok(Self::Part(part.to_owned())),
            _ => ValuePath::parse(text).map(Self::Document).map_err(|_| "must be body, part:NAME, or a path that begins with $"),
        }
    }
}
