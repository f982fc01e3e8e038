//! Circles of modules: which modules of a crate use each other, found in its sources.
//!
//! - A **module** is a file; an inline `mod x { … }` belongs to the file that it stands in. What exists in tests only (`#[cfg(test)]`,
//!   files of tests) is left out. Code behind any other `cfg` counts, whatever its features.
//! - A **use** is a path that leads to an item of another file: in `use` (grouped, renamed, `*`), types, expressions, patterns,
//!   bounds, attributes (`#[serde(with = "…")]`), and in the tokens of macros. `crate::`, `self::`, `super::`, names of modules, and
//!   imported and re-exported names are followed to the file that defines the item. Methods and fields are not seen: they have no path.
//! - **No use** are `mod child;`, the import of a module (what is named through it counts), and a re-export by a parent of what is
//!   below it (`pub use child::X`, with any visibility but private). A re-export from beside or above is a use.
//! - A **level** is a module with the modules right below it. Each of these stands for everything below it; `self` stands for the
//!   items of the level's own file. A use counts at one level: that of the nearest module which is above both files, or is one of them.
//! - A **circle** is a set of two or more modules of one level of which each uses each other, directly or through others of the level
//!   (a strongly connected component). So `mod.rs` that uses its child and has an item that the child uses is one.
//!
//! Every source file must be reached from a crate's root; one that is not, and so could hide a circle, is an error.

mod cfg;
mod circle;
mod collect;
mod cut;
mod levels;
mod load;
mod report;
mod resolve;
#[cfg(test)]
mod tests;
mod tokens;
mod tree;
mod workspace;

use std::path::Path;

pub use circle::{Circle, Edge, UsePlace};
pub use report::{Detail, KnownCircle, describe, differences, known, parse_known};
pub use workspace::{Crate, Package, packages};

/// The circles of all crates of the workspace at `root`.
///
/// # Errors
/// What cannot be read or parsed, and files that no crate reaches.
pub fn of_workspace(root: &Path) -> Result<Vec<Circle>, String> {
    let mut circles = Vec::new();
    for package in packages(root)? {
        circles.extend(of_package(&package, root)?);
    }
    Ok(circles)
}

/// The circles of one package's library and binaries. Places are relative to `root`.
///
/// # Errors
/// What cannot be read or parsed, and files that no crate reaches.
pub fn of_package(package: &Package, root: &Path) -> Result<Vec<Circle>, String> {
    let mut circles = Vec::new();
    let mut seen = load::Seen::default();
    for one in &package.crates {
        let tree = load::load(&one.root, &mut seen)?;
        circles.extend(levels::circles(&one.name, &resolve::edges(&tree), &tree, root));
    }
    seen.all_of(package)?;
    Ok(circles)
}
