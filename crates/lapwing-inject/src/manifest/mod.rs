//! Manifests as text: YAML or JSON, several documents, lists. They are changed where the text stands, so that order, comments and
//! layout of all else stay.

mod edit;
mod error;
mod node;
mod splice;
#[cfg(test)]
mod tests;

use serde_json::Value;

pub use self::edit::Edit;
pub(crate) use self::edit::pointer;
pub use self::error::ManifestError;
use self::node::Node;

/// A text of one or several documents.
#[derive(Clone, Debug)]
pub struct Manifest {
    text: String,
    documents: Vec<(Node, Value)>,
}

impl Manifest {
    /// Reads a text.
    ///
    /// # Errors
    ///
    /// If it is no YAML, or beyond bounds.
    pub fn read(text: &str) -> Result<Self, ManifestError> {
        Ok(Self { text: text.to_owned(), documents: node::documents(text)? })
    }

    /// The text.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The documents' values.
    pub fn values(&self) -> impl Iterator<Item = &Value> {
        self.documents.iter().map(|(_, value)| value)
    }

    /// The text with changes of some documents, by their numbers. All else is as it was, to the byte.
    ///
    /// # Errors
    ///
    /// If a path leads nowhere or through an alias, or if the text read anew is not what the changes mean.
    pub fn edited(&self, edits: &[(usize, Edit)]) -> Result<Self, ManifestError> {
        let mut values: Vec<Value> = self.values().cloned().collect();
        for (at, edit) in edits {
            edit.apply(values.get_mut(*at).ok_or_else(|| ManifestError::NoPath(at.to_string()))?)?;
        }
        let roots: Vec<&Node> = self.documents.iter().map(|(root, _)| root).collect();
        let made = Self::read(&splice::spliced(&self.text, &roots, edits)?);
        let first = edits.first().map_or_else(String::new, |(_, edit)| edit.pointer());
        // what the text says decides, not what was meant
        match made {
            Ok(made) if made.values().eq(&values) => Ok(made),
            _ => Err(ManifestError::Layout(first)),
        }
    }
}
