//! Patterns of paths, matched step by step.

use smallvec::SmallVec;

use super::PathPart;

/// The most steps of a pattern.
const MAX_STEPS: usize = 30;

/// A step of a pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PatternStep {
    Key(String),
    AnyKey,
    Element(usize),
    AnyElement,
    /// Any number of steps, also none, before the next one.
    Descend,
}

/// A pattern of paths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PathPattern(pub(crate) Vec<PatternStep>);

impl PathPattern {
    /// Parses a pattern.
    ///
    /// # Errors
    ///
    /// The reason why it is none.
    pub(crate) fn parse(text: &str) -> Result<Self, &'static str> {
        let mut rest =
            text.trim().strip_prefix('$').ok_or("must be a path that begins with $, as in $.created or $.choices[].id")?;
        let mut steps = Vec::new();
        while !rest.is_empty() {
            rest = if let Some(tail) = rest.strip_prefix('[') {
                let (step, tail) = bracket(tail)?;
                steps.push(step);
                tail
            } else if let Some(tail) = rest.strip_prefix("..") {
                steps.push(PatternStep::Descend);
                member(tail, &mut steps)?
            } else if let Some(tail) = rest.strip_prefix('.') {
                member(tail, &mut steps)?
            } else {
                return Err("must have a . or a [ before each step, as in $.choices[].id");
            };
        }
        if steps.len() > MAX_STEPS {
            return Err("must have at most 30 steps");
        }
        Ok(Self(steps))
    }

    /// The steps that may come next once `reached` were taken: a `Descend` may also be skipped.
    fn open(&self, reached: u32) -> u32 {
        let mut open = reached;
        for (at, step) in self.0.iter().enumerate() {
            if open & (1 << at) != 0 && *step == PatternStep::Descend {
                open |= 1 << (at + 1);
            }
        }
        open
    }

    /// The number of steps taken after one more, as bits; several may be possible at once.
    fn advance(&self, reached: u32, part: &PathPart<'_>) -> u32 {
        let mut next = 0;
        for (at, step) in self.0.iter().enumerate().filter(|(at, _)| reached & (1 << at) != 0) {
            let is_taken = match (step, part) {
                (PatternStep::Descend, _) => {
                    next |= 1 << at;
                    false
                }
                (PatternStep::Key(own), PathPart::Key(key)) => own == key,
                (PatternStep::AnyKey, PathPart::Key(_)) | (PatternStep::AnyElement, PathPart::Element(_)) => true,
                (PatternStep::Element(own), PathPart::Element(index)) => own == index,
                _ => false,
            };
            next |= u32::from(is_taken) << (at + 1);
        }
        self.open(next)
    }
}

/// The rest of a step after `[`, and what follows it.
fn bracket(text: &str) -> Result<(PatternStep, &str), &'static str> {
    if text.starts_with('"') {
        let mut keys = serde_json::Deserializer::from_str(text).into_iter::<String>();
        let key = keys.next().and_then(Result::ok).ok_or("must close the quotes of a key, as in $[\"a b\"]")?;
        let tail = text.get(keys.byte_offset()..).and_then(|tail| tail.strip_prefix(']'));
        return Ok((PatternStep::Key(key), tail.ok_or("must close each [ by a ]")?));
    }
    let (inner, tail) = text.split_once(']').ok_or("must close each [ by a ]")?;
    let step = match inner.trim() {
        "" | "*" => PatternStep::AnyElement,
        index => PatternStep::Element(index.parse().map_err(|_| "must have an index, * or a key in quotes between [ and ]")?),
    };
    Ok((step, tail))
}

/// Takes the key after a `.`; what follows it is returned.
fn member<'t>(text: &'t str, steps: &mut Vec<PatternStep>) -> Result<&'t str, &'static str> {
    let (key, tail) = text.split_at(text.find(['.', '[']).unwrap_or(text.len()));
    match key {
        "" if tail.starts_with('[') && steps.last() == Some(&PatternStep::Descend) => {}
        "" => return Err("must have a key after each . as in $.created"),
        "*" => steps.push(PatternStep::AnyKey),
        key => steps.push(PatternStep::Key(key.to_owned())),
    }
    Ok(tail)
}

/// Patterns, of which any may match.
#[derive(Clone, Debug, Default)]
pub(crate) struct PathSet(Vec<PathPattern>);

/// Which steps of each pattern were taken on the way to a value.
#[derive(Clone, Debug, Default)]
pub(crate) struct PathState(SmallVec<[u32; 4]>);

impl PathSet {
    /// Compiles patterns; those that cannot be parsed are left out, because the configuration was checked.
    pub(crate) fn new<'t>(patterns: impl IntoIterator<Item = &'t String>) -> Self {
        Self(patterns.into_iter().filter_map(|text| PathPattern::parse(text).ok()).collect())
    }

    /// The state at the document itself.
    pub(crate) fn start(&self) -> PathState {
        PathState(self.0.iter().map(|pattern| pattern.open(1)).collect())
    }

    /// The state one step further.
    pub(crate) fn step(&self, state: &PathState, part: &PathPart<'_>) -> PathState {
        PathState(self.0.iter().zip(&state.0).map(|(pattern, reached)| pattern.advance(*reached, part)).collect())
    }

    /// Whether a pattern matches the value at `state`.
    pub(crate) fn matches(&self, state: &PathState) -> bool {
        self.0.iter().zip(&state.0).any(|(pattern, reached)| reached & (1 << pattern.0.len()) != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matched(pattern: &str, path: &[PathPart<'_>]) -> bool {
        let set = PathSet::new([&pattern.to_owned()]);
        assert_eq!(set.0.len(), 1, "{pattern}");
        let state = path.iter().fold(set.start(), |state, part| set.step(&state, part));
        set.matches(&state)
    }

    #[test]
    fn patterns_match_paths() {
        use PathPart::{Element, Key};
        let id = &[Key("choices"), Element(2), Key("id")][..];
        for (pattern, path, yes) in [
            ("$", &[][..], true),
            ("$", id, false),
            ("$.choices[].id", id, true),
            ("$.choices[*].id", id, true),
            ("$[\"choices\"][2][\"id\"]", id, true),
            ("$.choices[1].id", id, false),
            ("$.*[].*", id, true),
            ("$.*.*", id, false),
            ("$..id", id, true),
            ("$..choices..id", id, true),
            ("$..[2].id", id, true),
            ("$..choices", id, false),
            ("$.choices[]", id, false),
            ("$..id", &[Key("id")], true),
            ("$..a..a", &[Key("a")], false),
            ("$[\"a.b\"]", &[Key("a.b")], true),
        ] {
            assert_eq!(matched(pattern, path), yes, "{pattern} {path:?}");
        }
        for wrong in ["", "created", "$created", "$.", "$.a[", "$.a[x]", "$[\"a]", "$[\"a\"", "$..", "$.a..", "$..[", "$.a b["] {
            assert!(PathPattern::parse(wrong).is_err(), "{wrong}");
        }
        assert!(PathPattern::parse(&format!("${}", ".a".repeat(31))).is_err());
        assert!(PathPattern::parse(&format!("${}", ".a".repeat(30))).is_ok());
    }
}
