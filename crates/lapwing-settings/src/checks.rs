//! Collects the faults that only a whole configuration shows: ranges, and settings that contradict one another.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::ops::RangeInclusive;

use super::Fault;

/// Collects the faults that a module's `check` reports. Paths are relative to the section that is being checked.
#[derive(Debug, Default)]
pub struct Checks {
    section: String,
    faulty: BTreeSet<String>,
    faults: Vec<Fault>,
}

impl Checks {
    /// Starts with the paths of known faults. Their values are stand-ins, so no further fault is reported for them.
    #[must_use]
    pub fn new(faulty: BTreeSet<String>) -> Self {
        Self { section: String::new(), faulty, faults: Vec::new() }
    }

    /// Runs `check` on the section `name`.
    pub fn section(&mut self, name: &str, check: impl FnOnce(&mut Self)) {
        let inner = self.path(name);
        let outer = std::mem::replace(&mut self.section, inner);
        check(self);
        self.section = outer;
    }

    /// Whether `key` has no fault so far. A fault in a part of it, or in the section around it, counts.
    #[must_use]
    pub fn is_sound(&self, key: &str) -> bool {
        let path = self.path(key);
        let within = |a: &str, b: &str| a.strip_prefix(b).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']));
        !self.faulty.iter().any(|faulty| within(faulty, &path) || within(&path, faulty))
    }

    /// Reports a fault of `key`, unless one is known already.
    pub fn fault(&mut self, key: &str, value: impl Display, reason: impl Into<String>) {
        if self.is_sound(key) {
            let path = self.path(key);
            self.faults.push(Fault::new(path.clone(), value.to_string(), reason));
            self.faulty.insert(path);
        }
    }

    /// Reports a fault of `key` if its value is outside `range`.
    pub fn range<T: PartialOrd + Display>(&mut self, key: &str, value: &T, range: RangeInclusive<T>) {
        if !range.contains(value) {
            self.fault(key, value, format!("must be between {} and {}", range.start(), range.end()));
        }
    }

    /// Returns the reported faults.
    #[must_use]
    pub fn into_faults(self) -> Vec<Fault> {
        self.faults
    }

    fn path(&self, key: &str) -> String {
        if self.section.is_empty() { key.to_owned() } else { format!("{}.{key}", self.section) }
    }
}
