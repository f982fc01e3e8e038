//! Checks that the paths and links in the documents exist.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::fs;
use std::path::{Path, PathBuf};

/// The documents, and the least number of paths in each: without it, a parser that finds no paths would pass.
const DOCUMENTS: [(&str, usize); 3] = [("ARCHITECTURE.md", 40), ("CONTRIBUTING.md", 30), ("README.md", 5)];
/// The beginnings of paths.
const FOLDERS: [&str; 11] =
    ["src/", "crates/", "tests/", "docs/", "benches/", "examples/", "dashboards/", "deploy/", "fuzz/", ".ci/", ".github/"];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The texts between single backticks outside of fenced blocks, and the targets of links to files.
fn named(document: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (at, prose) in document.split("```").enumerate() {
        if at % 2 == 0 {
            found.extend(prose.split('`').skip(1).step_by(2).map(str::to_owned));
            let links = prose.split("](").skip(1).filter_map(|rest| rest.split(')').next());
            found.extend(links.filter(|link| !link.contains("://") && !link.starts_with('#')).map(str::to_owned));
        } else {
            // diagrams and trees name paths too: words that are paths
            found.extend(prose.split_whitespace().map(str::to_owned));
        }
    }
    found
}

/// Returns the path in `text`, without its anchor; `None` if the text is not a path, or has an argument or a pattern.
fn path_of(text: &str) -> Option<PathBuf> {
    let text = text.split('#').next()?.trim_end_matches([',', '.', ':', ';']);
    let is_path = FOLDERS.iter().any(|folder| text.starts_with(folder)) || text.ends_with(".md");
    (is_path && !text.contains(['*', '<', '{', ' ', '…', '|'])).then(|| PathBuf::from(text))
}

#[test]
fn paths_that_documents_name_exist() {
    let mut missing = Vec::new();
    for (document, least) in DOCUMENTS {
        let text = fs::read_to_string(root().join(document)).unwrap();
        let paths: Vec<PathBuf> = named(&text).iter().filter_map(|text| path_of(text)).collect();
        assert!(paths.len() >= least, "{document} names {} paths, fewer than {least}", paths.len());
        missing.extend(
            paths.iter().filter(|path| !root().join(path).exists()).map(|path| format!("{document}: {}", path.display())),
        );
    }
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}

#[test]
fn a_path_that_does_not_exist_is_found() {
    let text = "See `src/nothing.rs`, [that](docs/NOTHING.md#part) and `src/lib.rs`.\n```\nsrc/none/  what it is\n```\n";
    let found: Vec<PathBuf> = named(text).iter().filter_map(|text| path_of(text)).collect();
    let found: Vec<&str> = found.iter().map(|path| path.to_str().unwrap()).collect();
    assert_eq!(found, ["src/nothing.rs", "src/lib.rs", "docs/NOTHING.md", "src/none/"]);
    assert_eq!(path_of("src/*.rs"), None);
    assert_eq!(path_of("proxy"), None);
}
