//! Reads a crate: its root and every file that a `mod` declares, except those of tests.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::collect::Collector;
use super::tree::Tree;
use super::workspace::Package;

/// The source files that were read, and those that were left out.
#[derive(Default)]
pub(crate) struct Seen {
    read: HashSet<PathBuf>,
    /// Files and folders of tests.
    left_out: HashSet<PathBuf>,
}

/// Reads the crate whose root module is in `root`.
pub(crate) fn load(root: &Path, seen: &mut Seen) -> Result<Tree, String> {
    let mut tree = Tree::default();
    let first = tree.add_module(None, "", Some(root.to_owned()));
    let mut waiting = vec![(first, parent_of(root))];
    while let Some((module, folder)) = waiting.pop() {
        let path = tree.modules[module].path.clone();
        let text = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let file = syn::parse_file(&text).map_err(|error| {
            let at = error.span().start();
            format!("{}:{}: {error}", path.display(), at.line)
        })?;
        let found = Collector::read(&mut tree, module, folder, &file).map_err(|error| format!("{}:{error}", path.display()))?;
        seen.read.insert(path);
        seen.left_out.extend(found.left_out);
        waiting.extend(found.declared);
    }
    Ok(tree)
}

impl Seen {
    /// Fails if a source file of the package was neither read nor left out: no module declares it, or one that a macro makes.
    pub(crate) fn all_of(&self, package: &Package) -> Result<(), String> {
        let mut files = Vec::new();
        let folders: HashSet<_> = package.crates.iter().map(|one| parent_of(&one.root)).collect();
        for folder in folders.iter().filter(|folder| folder.ends_with("src")) {
            list(folder, &mut files)?;
        }
        let is_seen = |file: &PathBuf| self.read.contains(file) || file.ancestors().any(|above| self.left_out.contains(above));
        let unseen: Vec<_> = files.iter().filter(|file| !is_seen(file)).map(|file| file.display().to_string()).collect();
        match unseen.is_empty() {
            true => Ok(()),
            false => Err(format!("no `mod` that can be read declares {}", unseen.join(", "))),
        }
    }
}

fn list(folder: &Path, files: &mut Vec<PathBuf>) -> Result<(), String> {
    let failed = |error| format!("{}: {error}", folder.display());
    for entry in fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.is_dir() {
            list(&path, files)?;
        } else if path.extension().is_some_and(|e| e == "rs") {
            files.push(path);
        }
    }
    Ok(())
}

fn parent_of(file: &Path) -> PathBuf {
    file.parent().map_or_else(PathBuf::new, Path::to_owned)
}
