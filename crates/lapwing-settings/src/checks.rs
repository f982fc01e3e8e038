//! Collects the faults that only a whole configuration shows: ranges, and settings that contradict one another.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::ops::RangeInclusive;

use super::{Fault, Switch};

/// Collects the faults that a module's `check` reports. Paths are relative to the section that is being checked.
#[derive(Debug, Default)]
pub struct Checks {
    section: String,
    faulty: BTreeSet<String>,
    faults: Vec<Fault>,
    /// The ranges of all keys that were checked, if they are asked for.
    ranges: Option<BTreeMap<String, ValueRange>>,
}

/// The least and the greatest value of a setting, as text.
pub type ValueRange = (String, String);

impl Checks {
    /// Starts with the paths of known faults. Their values are stand-ins, so no further fault is reported for them.
    #[must_use]
    pub fn new(faulty: BTreeSet<String>) -> Self {
        Self { faulty, ..Self::default() }
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
        self.optional_range(key, Some(value), range);
    }

    /// The same of a setting that may be off.
    pub fn switch_range<T: PartialOrd + Display>(&mut self, key: &str, value: &Switch<T>, range: RangeInclusive<T>) {
        self.optional_range(key, value.on(), range);
    }

    /// The same of a value that may be missing.
    pub fn optional_range<T: PartialOrd + Display>(&mut self, key: &str, value: Option<&T>, range: RangeInclusive<T>) {
        let path = self.path(key);
        if let Some(ranges) = &mut self.ranges {
            ranges.insert(path, (range.start().to_string(), range.end().to_string()));
        }
        if let Some(value) = value.filter(|value| !range.contains(value)) {
            self.fault(key, value, format!("must be between {} and {}", range.start(), range.end()));
        }
    }

    /// The ranges by path that `check` holds values against, whether or not they are within: tables and schemas have them from here.
    pub fn ranges_of(check: impl FnOnce(&mut Self)) -> BTreeMap<String, ValueRange> {
        let mut checks = Self { ranges: Some(BTreeMap::new()), ..Self::default() };
        check(&mut checks);
        checks.ranges.unwrap_or_default()
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
