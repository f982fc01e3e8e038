//! The keys of the configuration and what each holds, derived from the sections' defaults and [`Section::FORMS`].

use serde_json::Value as Json;

use super::path::{Path, Step};
use lapwing_settings::{Form, Record, Section};

/// What a place in the configuration holds.
#[derive(Debug)]
pub(crate) enum Schema {
    /// Text; a number counts as its text.
    Text,
    /// Text; any scalar counts as its text.
    Literal,
    Number,
    Flag,
    Secret,
    /// A section of known keys. `what` describes in a message what is expected.
    Section {
        keys: Vec<(String, Schema)>,
        what: &'static str,
    },
    /// `stand_in` is the text by key that replaces an element that cannot be read.
    List {
        element: Box<Schema>,
        stand_in: &'static [(&'static str, &'static str)],
    },
    /// Names that the user chooses; `is_header` if they are names of headers. `stand_in` as in a list.
    Named {
        value: Box<Schema>,
        stand_in: &'static [(&'static str, &'static str)],
        is_header: bool,
    },
}

/// The smallest record that can be read.
fn smallest(stand_in: &[(&str, &str)]) -> Json {
    Json::Object(stand_in.iter().map(|(key, text)| ((*key).to_owned(), Json::from(*text))).collect())
}

impl Schema {
    /// The schema of a whole configuration.
    pub(crate) fn of<T: Section>() -> Self {
        let defaults = serde_json::to_value(T::default()).unwrap_or_default();
        Self::section(&defaults, T::FORMS)
    }

    fn section(defaults: &Json, forms: &[(&str, Form)]) -> Self {
        let declared = |key: &str| forms.iter().find(|(name, _)| *name == key).map(|(_, form)| form);
        let node = |(key, default): (&String, &Json)| {
            let node = match (declared(key), default) {
                (Some(Form::Section(forms)), default) => Self::section(default, forms),
                (Some(form), _) => Self::form(form),
                (None, Json::Object(_)) => Self::section(default, &[]),
                (None, Json::Number(_)) => Self::Number,
                (None, Json::Bool(_)) => Self::Flag,
                (None, Json::String(_) | Json::Array(_) | Json::Null) => Self::Text,
            };
            (key.clone(), node)
        };
        let keys = defaults.as_object().into_iter().flatten().map(node).collect();
        Self::Section { keys, what: "a section of keys" }
    }

    fn form(form: &Form) -> Self {
        match form {
            Form::Text => Self::Text,
            Form::Literal => Self::Literal,
            Form::Number => Self::Number,
            Form::Section(forms) => {
                let keys = forms.iter().map(|(key, form)| ((*key).to_owned(), Self::form(form))).collect();
                Self::Section { keys, what: "a section of keys" }
            }
            Form::Record(record) => Self::record(record),
            Form::List(record) => Self::List { element: Box::new(Self::record(record)), stand_in: record.stand_in },
            Form::Texts => Self::List { element: Box::new(Self::Text), stand_in: &[] },
            Form::Named(form) => {
                let stand_in = if let Form::Record(record) = form { record.stand_in } else { &[] };
                Self::Named { value: Box::new(Self::form(form)), stand_in, is_header: false }
            }
            Form::Secret => Self::Secret,
            Form::SecretHeaders => Self::Named { value: Box::new(Self::Secret), stand_in: &[], is_header: true },
        }
    }

    fn record(record: &Record) -> Self {
        let keys = record.keys.iter().map(|(key, form)| ((*key).to_owned(), Self::form(form))).collect();
        Self::Section { keys, what: record.what }
    }

    /// Gives every empty list of records one element, the smallest that can be read, and every set of records one under `name`.
    pub(crate) fn fill(&self, value: &mut Json, name: &str) {
        match (self, value) {
            (Self::Section { keys, .. }, Json::Object(section)) => {
                for (key, inner) in keys {
                    section.get_mut(key).into_iter().for_each(|value| inner.fill(value, name));
                }
            }
            (Self::List { element, stand_in }, Json::Array(list)) if matches!(**element, Self::Section { .. }) => {
                list.push(smallest(stand_in));
            }
            (Self::Named { value, stand_in, .. }, Json::Object(names)) if matches!(**value, Self::Section { .. }) => {
                names.insert(name.to_owned(), smallest(stand_in));
            }
            _ => {}
        }
    }

    /// The keys that are known here; none if the user chooses the names.
    pub(crate) fn keys(&self) -> impl Iterator<Item = (&str, &Self)> {
        let keys = if let Self::Section { keys, .. } = self { keys.as_slice() } else { &[] };
        keys.iter().map(|(key, node)| (key.as_str(), node))
    }

    /// The schema one step further.
    pub(crate) fn step(&self, step: &Step) -> Option<&Self> {
        match (self, step) {
            (Self::Section { .. }, Step::Key(key)) => self.keys().find(|(name, _)| name == key).map(|(_, node)| node),
            (Self::Named { value, .. }, Step::Key(_)) => Some(value),
            (Self::List { element, .. }, Step::Index(_)) => Some(element),
            _ => None,
        }
    }

    /// The schema at `path`.
    pub(crate) fn at(&self, path: &[Step]) -> Option<&Self> {
        path.iter().try_fold(self, Self::step)
    }

    /// Whether the value at `path`, or any part of it, is secret.
    pub(crate) fn is_secret(&self, path: &Path) -> bool {
        let hides = |node: &Self| match node {
            Self::Secret => true,
            Self::Named { value, .. } => matches!(**value, Self::Secret),
            _ => false,
        };
        (0..=path.0.len()).any(|end| self.at(&path.0[..end]).is_some_and(hides))
    }

    /// Parses a path: `a.b` or `a[2].b`. Names that the user chooses may contain any characters.
    pub(crate) fn path(&self, text: &str) -> Path {
        let (mut path, mut at, mut rest) = (Path::default(), Some(self), text);
        loop {
            if let Some(Self::Named { value, .. }) = at {
                return Self::named_path(value, &path, rest).unwrap_or_else(|| path.key(rest));
            }
            let element = rest.strip_prefix('[').and_then(|rest| rest.split_once(']'));
            let element = element.and_then(|(index, rest)| Some((index.parse().ok()?, rest)));
            let (step, tail) = if let Some((index, tail)) = element {
                (Step::Index(index), tail)
            } else {
                let end = rest.find(['.', '[']).filter(|end| *end > 0).unwrap_or(rest.len());
                (Step::Key(rest[..end].to_owned()), &rest[end..])
            };
            at = at.and_then(|node| node.step(&step));
            path = path.with(step);
            rest = tail.strip_prefix('.').unwrap_or(tail);
            if rest.is_empty() {
                return path;
            }
        }
    }

    /// Parses a name that the user chose, which may have dots in it, and what follows of the path: the shortest name after which `value` has
    /// all that follows.
    fn named_path(value: &Self, path: &Path, text: &str) -> Option<Path> {
        let mut dots = text.match_indices('.').map(|(at, _)| (&text[..at], &text[at + 1..]));
        dots.find_map(|(name, rest)| value.path_within(&path.key(name), rest))
    }

    /// Parses a path that must be one of values that are known here.
    fn path_within(&self, path: &Path, text: &str) -> Option<Path> {
        self.keys().find_map(|(key, inner)| match text.strip_prefix(key)? {
            "" => Some(path.key(key)),
            rest => match (inner, rest.strip_prefix('.')?) {
                (Self::Named { value, .. }, rest) => {
                    let path = path.key(key);
                    Some(Self::named_path(value, &path, rest).unwrap_or_else(|| path.key(rest)))
                }
                (inner, rest) => inner.path_within(&path.key(key), rest),
            },
        })
    }

    /// Parses the path in a variable's name, given in lower case and without the prefix: `a__b`.
    pub(crate) fn variable_path(&self, name: &str) -> Path {
        let (mut path, mut at, mut rest) = (Path::default(), Some(self), name);
        loop {
            if let Some(Self::Named { is_header: true, .. }) = at {
                // variables cannot have the hyphens that headers have
                return path.key(&rest.replace('_', "-"));
            }
            let Some((key, tail)) = rest.split_once("__") else { return path.key(rest) };
            path = path.key(key);
            at = at.and_then(|node| node.step(&Step::Key(key.to_owned())));
            rest = tail;
        }
    }
}
