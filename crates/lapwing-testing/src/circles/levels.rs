//! Sorts uses by level and finds the circles of each.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::circle::{Circle, Edge, UsePlace};
use super::cut;
use super::resolve::Edges;
use super::tree::{ModuleId, Tree};

/// The name of a level's own file among its members.
const OWN: &str = "self";

/// The uses at one level, by members: user, used, and the places by items.
type Level = BTreeMap<(String, String), BTreeMap<String, Vec<UsePlace>>>;

/// The circles of a crate, in the order of their levels.
pub(crate) fn circles(of: &str, edges: &Edges, tree: &Tree, relative_to: &Path) -> Vec<Circle> {
    let mut levels: BTreeMap<Vec<String>, Level> = BTreeMap::new();
    for ((from, to), items) in edges {
        let (level, user, used) = place(tree, *from, *to);
        let file = &tree.modules[*from].path;
        let file = file.strip_prefix(relative_to).unwrap_or(file);
        let all = levels.entry(level).or_default().entry((user, used)).or_default();
        for (item, lines) in items {
            let places = lines.iter().map(|line| UsePlace { file: file.to_owned(), line: *line });
            all.entry(item.clone()).or_default().extend(places);
        }
    }
    let mut circles = Vec::new();
    for (level, uses) in levels {
        for members in components(&uses) {
            circles.push(circle(of, &level, members, &uses));
        }
    }
    circles
}

/// The level of a use, and the members that use and are used.
fn place(tree: &Tree, from: ModuleId, to: ModuleId) -> (Vec<String>, String, String) {
    let (from, to) = (&tree.modules[from].name, &tree.modules[to].name);
    let shared = from.iter().zip(to).take_while(|(a, b)| a == b).count();
    let member = |path: &Vec<String>| path.get(shared).map_or_else(|| OWN.to_owned(), Clone::clone);
    (from[..shared].to_vec(), member(from), member(to))
}

fn circle(of: &str, level: &[String], members: BTreeSet<String>, uses: &Level) -> Circle {
    let members: Vec<_> = members.into_iter().collect();
    let within = |(from, to): &(String, String)| Some((members.binary_search(from).ok()?, members.binary_search(to).ok()?));
    let mut edges = Vec::new();
    let mut weights = vec![vec![0; members.len()]; members.len()];
    for (key, items) in uses {
        let Some((from, to)) = within(key) else { continue };
        let mut items = items.clone();
        for places in items.values_mut() {
            places.sort();
        }
        let edge = Edge { from: key.0.clone(), to: key.1.clone(), items, is_cut: false };
        // first by how many things must move, then by how many lines change
        weights[from][to] = (edge.items.len() as u64) << 32 | edge.uses() as u64;
        edges.push(edge);
    }
    let order = cut::order(&weights);
    for edge in &mut edges {
        let rank = |name: &String| members.binary_search(name).ok().and_then(|member| order.iter().position(|o| *o == member));
        // a module comes before those that it uses
        edge.is_cut = rank(&edge.from) > rank(&edge.to);
    }
    let level = if level.is_empty() { "crate".to_owned() } else { level.join("::") };
    Circle { of: of.to_owned(), level, members, edges }
}

/// The sets of two or more members that reach each other, in the order of their names.
fn components(uses: &Level) -> Vec<BTreeSet<String>> {
    let mut next: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (from, to) in uses.keys() {
        next.entry(from).or_default().insert(to);
    }
    let reached: BTreeMap<&str, BTreeSet<&str>> = next.keys().map(|from| (*from, reached(from, &next))).collect();
    let mut found: Vec<BTreeSet<String>> = Vec::new();
    for (from, there) in &reached {
        let is_mutual = |to: &&&str| reached.get(**to).is_some_and(|back| back.contains(from));
        let members: BTreeSet<String> = there.iter().filter(is_mutual).map(|to| (*to).to_owned()).collect();
        if members.len() > 1 && !found.contains(&members) {
            found.push(members);
        }
    }
    found
}

fn reached<'a>(from: &str, next: &BTreeMap<&'a str, BTreeSet<&'a str>>) -> BTreeSet<&'a str> {
    let mut reached = BTreeSet::new();
    let mut waiting: Vec<&str> = vec![from];
    while let Some(at) = waiting.pop() {
        for to in next.get(at).into_iter().flatten() {
            if reached.insert(*to) {
                waiting.push(to);
            }
        }
    }
    reached
}
