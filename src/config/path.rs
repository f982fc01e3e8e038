//! The path of a value in the configuration: `attribution.spans[2].stage`.

use std::fmt;

use figment::value::{Dict, Value};

/// One step from a section or list to a part of it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Step {
    Key(String),
    Index(usize),
}

/// The steps from the root.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Path(pub(crate) Vec<Step>);

impl Path {
    pub(crate) fn key(&self, key: &str) -> Self {
        self.with(Step::Key(key.to_owned()))
    }

    pub(crate) fn index(&self, index: usize) -> Self {
        self.with(Step::Index(index))
    }

    pub(crate) fn with(&self, step: Step) -> Self {
        let mut steps = self.0.clone();
        steps.push(step);
        Self(steps)
    }

    /// The value at this path.
    pub(crate) fn get<'v>(&self, tree: &'v Value) -> Option<&'v Value> {
        self.0.iter().try_fold(tree, child)
    }

    /// The value at this path, or the nearest section or list around it.
    pub(crate) fn nearest<'v>(&self, tree: &'v Value) -> &'v Value {
        let mut at = tree;
        for step in &self.0 {
            let Some(next) = child(at, step) else { break };
            at = next;
        }
        at
    }

    /// The value at this path, mutably.
    pub(crate) fn get_mut<'v>(&self, tree: &'v mut Value) -> Option<&'v mut Value> {
        self.0.iter().try_fold(tree, |at, step| match (at, step) {
            (Value::Dict(_, dict), Step::Key(key)) => dict.get_mut(key),
            (Value::Array(_, list), Step::Index(index)) => list.get_mut(*index),
            _ => None,
        })
    }

    /// Puts `value` here, in sections that are made where there are none; nothing where a step is none into a section.
    pub(crate) fn put(&self, tree: &mut Value, value: Value) {
        let Some((Step::Key(last), before)) = self.0.split_last() else { return };
        let mut at = tree;
        for step in before {
            let (Value::Dict(_, dict), Step::Key(key)) = (at, step) else { return };
            at = dict.entry(key.clone()).or_insert_with(|| Value::from(Dict::new()));
        }
        if let Value::Dict(_, dict) = at {
            dict.insert(last.clone(), value);
        }
    }

    /// Removes the key at the end of the path; `false` if there is no such key.
    pub(crate) fn remove(&self, tree: &mut Value) -> bool {
        let Some((Step::Key(last), before)) = self.0.split_last() else { return false };
        match Self(before.to_vec()).get_mut(tree) {
            Some(Value::Dict(_, dict)) => dict.remove(last).is_some(),
            _ => false,
        }
    }
}

fn child<'v>(at: &'v Value, step: &Step) -> Option<&'v Value> {
    match (at, step) {
        (Value::Dict(_, dict), Step::Key(key)) => dict.get(key),
        (Value::Array(_, list), Step::Index(index)) => list.get(*index),
        _ => None,
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, step) in self.0.iter().enumerate() {
            match step {
                Step::Key(key) if at == 0 && key.is_empty() => f.write_str("\"\"")?,
                Step::Key(key) if at == 0 => f.write_str(key)?,
                Step::Key(key) => write!(f, ".{key}")?,
                Step::Index(index) => write!(f, "[{index}]")?,
            }
        }
        Ok(())
    }
}

impl From<&serde_path_to_error::Path> for Path {
    fn from(path: &serde_path_to_error::Path) -> Self {
        use serde_path_to_error::Segment;
        let step = |segment: &Segment| match segment {
            Segment::Seq { index } => Some(Step::Index(*index)),
            Segment::Map { key } => Some(Step::Key(key.clone())),
            // a variant is part of the value
            Segment::Enum { .. } | Segment::Unknown => None,
        };
        Self(path.iter().filter_map(step).collect())
    }
}

impl From<&serde_ignored::Path<'_>> for Path {
    fn from(path: &serde_ignored::Path<'_>) -> Self {
        use serde_ignored::Path as Ignored;
        match path {
            Ignored::Root => Self::default(),
            Ignored::Seq { parent, index } => Self::from(*parent).index(*index),
            Ignored::Map { parent, key } => Self::from(*parent).key(key),
            Ignored::Some { parent } | Ignored::NewtypeStruct { parent } | Ignored::NewtypeVariant { parent } => {
                Self::from(*parent)
            }
        }
    }
}
