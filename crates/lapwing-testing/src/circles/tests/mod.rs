//! Planted crates with circles and without.

mod levels;
mod lists;
mod none;
mod uses;
mod whole;

use std::fs;
use std::path::Path;

use super::{Circle, Crate, Package, known, of_package};

/// Writes files of a crate: names relative to its `src`, and texts.
fn plant(folder: &Path, files: &[(&str, &str)]) -> Package {
    for (name, text) in files {
        let path = folder.join("src").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let root = folder.join("src").join(files[0].0);
    Package { name: "p".to_owned(), crates: vec![Crate { name: "p".to_owned(), root }] }
}

/// The circles of a crate whose first file is its root.
fn found(files: &[(&str, &str)]) -> Vec<Circle> {
    let folder = tempfile::tempdir().unwrap();
    of_package(&plant(folder.path(), files), folder.path()).unwrap()
}

/// Does as [`found`] does, but only says what they are.
fn circles(files: &[(&str, &str)]) -> Vec<String> {
    found(files).iter().map(|circle| known(circle).to_string()).collect()
}

/// Why a crate cannot be judged.
fn refused(files: &[(&str, &str)]) -> String {
    let folder = tempfile::tempdir().unwrap();
    of_package(&plant(folder.path(), files), folder.path()).unwrap_err()
}
