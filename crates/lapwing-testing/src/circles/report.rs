//! Circles as text, and beside those that are known.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use super::circle::{Circle, Edge, UsePlace};

/// A circle without its uses, as a list of known ones has it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct KnownCircle {
    /// The crate.
    pub of: String,
    /// The level; `crate` is the root.
    pub level: String,
    /// The members.
    pub members: BTreeSet<String>,
}

/// What a list says of a circle.
#[must_use]
pub fn known(circle: &Circle) -> KnownCircle {
    KnownCircle { of: circle.of.clone(), level: circle.level.clone(), members: circle.members.iter().cloned().collect() }
}

impl std::fmt::Display for KnownCircle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let members: Vec<_> = self.members.iter().map(String::as_str).collect();
        write!(f, "{} {}: {}", self.of, self.level, members.join(" "))
    }
}

/// Reads a list: one circle on each line, as [`KnownCircle`] is written; `#` begins a comment.
///
/// # Errors
/// The first line that is no circle.
pub fn parse_known(text: &str) -> Result<Vec<KnownCircle>, String> {
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty() && !line.starts_with('#'));
    let circle = |(i, line): (usize, &str)| {
        let (place, members) = line.split_once(": ").ok_or_else(|| format!("line {}: no \": \" in {line:?}", i + 1))?;
        let (of, level) = place.split_once(' ').ok_or_else(|| format!("line {}: no level in {line:?}", i + 1))?;
        let members: BTreeSet<_> = members.split_whitespace().map(str::to_owned).collect();
        match members.len() {
            0 | 1 => Err(format!("line {}: fewer than two members in {line:?}", i + 1)),
            _ => Ok(KnownCircle { of: of.to_owned(), level: level.to_owned(), members }),
        }
    };
    lines.map(circle).collect()
}

/// Where the circles that exist are not those that are known, a line each; empty if they are the same.
#[must_use]
pub fn differences(found: &[Circle], known_circles: &[KnownCircle]) -> Vec<String> {
    let found: Vec<_> = found.iter().map(|circle| (known(circle), circle)).collect();
    let mut said = Vec::new();
    for (name, circle) in found.iter().filter(|(name, _)| !known_circles.contains(name)) {
        let larger =
            known_circles.iter().find(|k| (&k.of, &k.level) == (&name.of, &name.level) && k.members.is_superset(&name.members));
        match larger {
            Some(larger) => said.push(format!("smaller than it is known to be, write \"{name}\" instead of \"{larger}\"")),
            None => said.push(format!("a circle that is not known:\n{}", describe(circle, Detail::Edges))),
        }
    }
    for gone in known_circles.iter().filter(|k| !found.iter().any(|(name, _)| name == *k)) {
        said.push(format!("no longer a circle, strike it off the list: \"{gone}\""));
    }
    let mut twice: Vec<_> = known_circles.to_vec();
    twice.sort();
    said.extend(twice.windows(2).filter(|two| two[0] == two[1]).map(|two| format!("listed twice: \"{}\"", two[0])));
    said
}

/// How much of a circle's uses is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Detail {
    /// The edges to cut, each with its items and the first place of each.
    Cuts,
    /// The edges that stay, too.
    Edges,
    /// Every place.
    Places,
}

/// A circle with its uses, an edge each line; those to cut come first.
#[must_use]
pub fn describe(circle: &Circle, detail: Detail) -> String {
    let (cut, kept): (Vec<_>, Vec<_>) = circle.edges.iter().partition(|edge| edge.is_cut);
    let items: usize = cut.iter().map(|edge| edge.items.len()).sum();
    let uses: usize = cut.iter().map(|edge| edge.uses()).sum();
    let (members, edges) = (circle.members.len(), circle.edges.len());
    let mut text = format!(
        "{}\n  {members} modules, {edges} edges; without {} of them ({items} items, {uses} uses) it is none\n",
        known(circle),
        cut.len(),
    );
    for (what, edges) in [("cut ", cut), ("keep", kept)] {
        for edge in edges.into_iter().filter(|edge| edge.is_cut || detail >= Detail::Edges) {
            write_edge(&mut text, what, edge, detail);
        }
    }
    text
}

fn write_edge(text: &mut String, what: &str, edge: &Edge, detail: Detail) {
    let at = |place: &UsePlace| format!("{}:{}", place.file.display(), place.line);
    let item = |(name, places): (&String, &Vec<UsePlace>)| match places.first() {
        Some(first) => format!("{name} ({})", at(first)),
        None => name.clone(),
    };
    let items: Vec<_> = match detail {
        Detail::Places => edge.items.keys().cloned().collect(),
        _ => edge.items.iter().map(item).collect(),
    };
    let _ = writeln!(text, "  {what} {} -> {}: {} uses of {}", edge.from, edge.to, edge.uses(), items.join(", "));
    for (name, places) in edge.items.iter().filter(|_| detail == Detail::Places) {
        for place in places {
            let _ = writeln!(text, "         {name} {}", at(place));
        }
    }
}
