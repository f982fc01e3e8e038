//! Paths to one value of a document, or to one of each element of lists: `$.rows`, `$.data[].embedding`.

use std::fmt;

use super::pattern::{PathPattern, PatternStep};

/// A step of a path to a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ValueStep {
    /// The member of this name.
    Key(String),
    /// One element.
    Element(usize),
    /// Every element, in order.
    EachElement,
}

/// A path to a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValuePath {
    text: String,
    steps: Vec<ValueStep>,
}

impl ValuePath {
    /// Parses a path: as a pattern of paths, without steps to several members.
    ///
    /// # Errors
    ///
    /// The reason why it is none.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        let step = |step| match step {
            PatternStep::Key(key) => Ok(ValueStep::Key(key)),
            PatternStep::Element(index) => Ok(ValueStep::Element(index)),
            PatternStep::AnyElement => Ok(ValueStep::EachElement),
            PatternStep::AnyKey | PatternStep::Descend => Err("must lead to one value, so it can have neither .* nor .."),
        };
        let steps = PathPattern::parse(text)?.0.into_iter().map(step).collect::<Result<_, _>>()?;
        Ok(Self { text: text.trim().to_owned(), steps })
    }

    /// Its steps, from the document on.
    pub(crate) fn steps(&self) -> &[ValueStep] {
        &self.steps
    }
}

impl fmt::Display for ValuePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_leads_to_one_value() {
        let steps = |text: &str| ValuePath::parse(text).map(|path| path.steps);
        assert_eq!(steps("$"), Ok(vec![]));
        let expected = vec![ValueStep::Key("a b".into()), ValueStep::EachElement, ValueStep::Element(2)];
        assert_eq!(steps("$[\"a b\"][][2]"), Ok(expected));
        for wrong in ["rows", "$.*", "$..x", "$.a.*.b", "$["] {
            assert!(steps(wrong).is_err(), "{wrong}");
        }
    }
}
