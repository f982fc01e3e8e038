//! What is found: circles with the uses that make them.

use std::collections::BTreeMap;
use std::path::PathBuf;

/// The modules of one level that use each other.
#[derive(Debug)]
pub struct Circle {
    /// The package, and its binary where that is a crate of its own: `lapwing`, `lapwing/bin/lapwing`.
    pub of: String,
    /// The path of the level's module in its crate; `crate` for the root.
    pub level: String,
    /// The names of the modules, sorted; `self` is the level's own file.
    pub members: Vec<String>,
    /// Every use between them, in the order of its modules' names.
    pub edges: Vec<Edge>,
}

/// The uses of one module by another.
#[derive(Debug)]
pub struct Edge {
    /// The member that uses.
    pub from: String,
    /// The member that is used.
    pub to: String,
    /// The items that are used, each with the places of its uses.
    pub items: BTreeMap<String, Vec<UsePlace>>,
    /// Whether it is one of the edges without which the circle is none: those that name the fewest items.
    pub is_cut: bool,
}

impl Edge {
    /// How many uses there are.
    #[must_use]
    pub fn uses(&self) -> usize {
        self.items.values().map(Vec::len).sum()
    }
}

/// Where a path stands.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct UsePlace {
    /// The file.
    pub file: PathBuf,
    /// Its line, from 1.
    pub line: usize,
}
