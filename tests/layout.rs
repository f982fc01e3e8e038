//! Checks the layout of the repository: which crate depends on which, module heads and forms, file sizes, the names at the top, and
//! where `unsafe` is allowed.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The crates in the order in which data meets them: each depends on earlier ones only. Cargo refuses circles of crates; this list
/// says which way round.
const CRATES: &[&str] = &[
    "lapwing-ledger",
    "lapwing-settings",
    "lapwing-compression",
    "lapwing-metrics",
    "lapwing-tower",
    "lapwing-protocol",
    "lapwing-net",
    "lapwing-attribution",
    "lapwing-diagnosis",
    "lapwing-compare",
    "lapwing-telemetry",
    "lapwing-dispatch",
    "lapwing-redis",
    "lapwing-cache",
    "lapwing-outbound",
    "lapwing-proxy",
    "lapwing-shadow",
    "lapwing-admin",
    "lapwing-onnx",
    "lapwing-plan",
    "lapwing-tabular",
    "lapwing-engine",
    "lapwing-model",
    "lapwing-serving",
    "lapwing-inject",
    "lapwing-console",
    "lapwing-demo",
    "lapwing-testing",
];
/// Modules of the engine that may use `unsafe`; no other crate may.
const MAY_BE_UNSAFE: &[&str] = &["cpu", "gpu", "onnxruntime"];
const MAX_LINES: usize = 400;
/// Folders whose Rust files must have a head and a limited length.
const SOURCES: &[&str] = &["src", "crates", "tests", "benches", "fuzz"];
/// The names that are allowed at the top of the repository.
const TOP: &[&str] = &[
    ".cargo",
    ".ci",
    ".dockerignore",
    ".github",
    ".gitignore",
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "Cargo.lock",
    "Cargo.toml",
    "Dockerfile",
    "LICENSE",
    "README.md",
    "benches",
    "build.rs",
    "clippy.toml",
    "crates",
    "dashboards",
    "deny.toml",
    "deploy",
    "docs",
    "examples",
    "fuzz",
    "pyproject.toml",
    "rust-toolchain.toml",
    "rustfmt.toml",
    "src",
    "tests",
];
/// The largest size of a tracked file, in bytes, except for those in `LARGE`.
const MAX_BYTES: u64 = 512 << 10;
/// Tracked files that may be larger, each with its own limit.
const LARGE: &[(&str, u64)] = &[
    // unrolled matrix products for every tile and type
    ("crates/lapwing-engine/kernels/ptx/gemm_mma.ptx", 2 << 20),
    ("crates/lapwing-engine/kernels/ptx/gemv.ptx", 1 << 20),
];

/// Names that several public types may share. Every other name of a public type has one meaning in the whole workspace.
const SHARED_NAMES: &[&str] = &[
    // one per section of the configuration, and one per operation that can fail
    "Config", "Error", // the engine has its own clock
    "Stamp",
];

fn files(dir: &Path, out: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            // of a crate with a workspace of its own, what it built
            if !path.ends_with("target") {
                files(&path, out);
            }
        } else if path.extension().is_some_and(|e| e == "rs") {
            out.push(path);
        }
    }
}

fn sources(folder: &str) -> Vec<(PathBuf, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let mut paths = Vec::new();
    files(&root, &mut paths);
    assert!(!paths.is_empty(), "{folder} has no Rust files");
    paths.into_iter().map(|p| (p.clone(), fs::read_to_string(p).unwrap())).collect()
}

/// Whether a file contains only tests, which may use every module.
fn is_of_tests(path: &Path) -> bool {
    path.components().any(|part| part.as_os_str() == "tests" || part.as_os_str() == "tests.rs")
}

#[test]
fn every_file_says_what_lives_there_and_stays_short() {
    let mut faults = Vec::new();
    for folder in SOURCES {
        for (path, text) in sources(folder) {
            if !text.starts_with("//! ") {
                faults.push(format!("{} does not open with //!", path.display()));
            }
            let is_generated = text.lines().next().is_some_and(|head| head.contains(", generated from "));
            if text.lines().count() > MAX_LINES && !is_generated {
                faults.push(format!("{} has {} lines, more than {MAX_LINES}", path.display(), text.lines().count()));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn unsafe_is_where_it_may_be() {
    let engine = of_crate("lapwing-engine").join("src");
    let mut unsafe_files = 0;
    for (path, text) in sources("crates/lapwing-engine/src") {
        let module = path.strip_prefix(&engine).unwrap().components().next().unwrap().as_os_str().to_str().unwrap();
        let code = text.lines().filter(|l| !l.trim_start().starts_with("//"));
        let found = code.filter(|l| l.contains("unsafe ") || l.contains("unsafe{")).count();
        unsafe_files += usize::from(found > 0);
        assert!(MAY_BE_UNSAFE.contains(&module) || found == 0, "{} uses unsafe", path.display());
    }
    assert!(unsafe_files > 0, "no file uses unsafe: the sources are not read");
    for name in CRATES.iter().filter(|name| **name != "lapwing-engine") {
        let root = fs::read_to_string(of_crate(name).join("src/lib.rs")).unwrap();
        assert!(root.contains("\n#![forbid(unsafe_code)]\n"), "{name} does not forbid unsafe code");
    }
}

fn of_crate(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("crates").join(name)
}

/// The crates of this workspace that one of them depends on, but for those that only its tests need.
fn dependencies(name: &str) -> Vec<String> {
    let manifest = fs::read_to_string(of_crate(name).join("Cargo.toml")).unwrap();
    let normal = manifest.split_once("\n[dependencies]\n").map_or("", |(_, rest)| rest.split("\n[").next().unwrap());
    let names = normal.lines().filter_map(|line| line.split(['.', ' ', '=']).next());
    names.filter(|name| name.starts_with("lapwing-")).map(str::to_owned).collect()
}

#[test]
fn a_crate_depends_on_earlier_ones_only() {
    let mut faults = Vec::new();
    let mut uses = 0;
    for (at, name) in CRATES.iter().enumerate() {
        for used in dependencies(name) {
            uses += 1;
            if !CRATES[..at].contains(&used.as_str()) {
                faults.push(format!("{name} depends on {used}, which is not listed before it"));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert!(uses > CRATES.len(), "{uses} dependencies found: the manifests are not read");
}

/// The lines of a crate outside its tests.
fn lines_outside_tests(sources_of: &str) -> usize {
    let of = |(path, text): &(PathBuf, String)| {
        if is_of_tests(path) {
            return 0;
        }
        text.split("\n#[cfg(test)]\nmod tests {").next().unwrap_or("").lines().count()
    };
    sources(sources_of).iter().map(of).sum()
}

/// A crate that is too large hides what is in it, and one that is too small is a module.
#[test]
fn a_crate_has_a_size_that_a_reader_can_hold() {
    let mut faults = Vec::new();
    for name in CRATES.iter().filter(|name| **name != "lapwing-testing") {
        let lines = lines_outside_tests(&format!("crates/{name}/src"));
        if !(800..=16_000).contains(&lines) {
            faults.push(format!("{name} has {lines} lines outside its tests"));
        }
    }
    let lines = lines_outside_tests("src");
    if lines > 16_000 {
        faults.push(format!("src has {lines} lines outside its tests"));
    }
    assert!(faults.is_empty(), "{}: between 800 and 16,000 are allowed", faults.join("; "));
}

/// The border of a crate shuts a name, or a module does: nothing in between.
#[test]
fn names_are_public_private_or_the_crates() {
    let mut faults = Vec::new();
    for folder in ["src", "crates"] {
        for (path, text) in sources(folder) {
            for (i, _) in text.lines().enumerate().filter(|(_, line)| line.contains("pub(super)") || line.contains("pub(in ")) {
                faults.push(format!("{}:{}", path.display(), i + 1));
            }
        }
    }
    assert!(faults.is_empty(), "pub(super) or pub(in …), not pub(crate): {}", faults.join(", "));
}

#[test]
fn every_crate_has_its_place() {
    let mut found: Vec<String> = fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("crates"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.starts_with("lapwing-"))
        .collect();
    found.sort_unstable();
    let mut listed = CRATES.to_vec();
    listed.sort_unstable();
    assert_eq!(found, listed);
}

/// A module with parts is `name/mod.rs`, its tests are `name/tests.rs` or `name/tests/mod.rs`.
#[test]
fn modules_have_one_form() {
    let mut faults = Vec::new();
    for folder in ["src", "crates"] {
        for (path, text) in sources(folder) {
            let stem = path.file_stem().unwrap().to_str().unwrap();
            if path.with_extension("").is_dir() {
                faults.push(format!("{}: stands beside the folder of its name; it is {stem}/mod.rs", path.display()));
            }
            if stem.ends_with("_tests") {
                faults.push(format!("{}: tests of `x` are x/tests.rs", path.display()));
            }
            // what tests share with examples is no module of the crate
            let is_source = path.components().any(|part| part.as_os_str() == "src");
            for (i, _) in text.lines().enumerate().filter(|(_, line)| is_source && line.trim_start().starts_with("#[path")) {
                faults.push(format!("{}:{}: #[path]", path.display(), i + 1));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// The public types that a file defines, by name. Files that stand in for others in smaller builds repeat their names.
fn public_types(path: &Path, text: &str) -> Vec<String> {
    let is_stand_in = path.components().any(|part| part.as_os_str().to_string_lossy().starts_with("without_"));
    let is_generated = text.lines().next().is_some_and(|head| head.contains(", generated from "));
    if is_stand_in || is_generated || is_of_tests(path) || !path.components().any(|part| part.as_os_str() == "src") {
        return Vec::new();
    }
    let name = |line: &str| {
        let rest = line.trim_start().strip_prefix("pub ")?;
        let kinds = ["struct ", "enum ", "trait ", "type ", "union "];
        let rest = kinds.iter().find_map(|kind| rest.strip_prefix(kind))?;
        Some(rest.split(|c: char| !c.is_alphanumeric() && c != '_').next()?.to_owned())
    };
    text.lines().filter_map(name).collect()
}

#[test]
fn a_public_type_name_has_one_meaning() {
    let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for folder in ["src", "crates"] {
        for (path, text) in sources(folder) {
            for name in public_types(&path, &text) {
                places.entry(name).or_default().push(path.display().to_string());
            }
        }
    }
    let is_shared = |name: &String| SHARED_NAMES.contains(&name.as_str());
    let faults: Vec<_> = places.iter().filter(|(name, files)| files.len() > 1 && !is_shared(name)).collect();
    assert!(faults.is_empty(), "{faults:#?}");
}

#[test]
fn the_top_of_the_repository_holds_what_is_known_there() {
    let Some(files) = lapwing_testing::tracked(Path::new(env!("CARGO_MANIFEST_DIR"))) else { return };
    for file in &files {
        let first = file.split('/').next().unwrap();
        assert!(TOP.contains(&first), "{first:?} at the top of the repository (tests/layout.rs lists what may stand there)");
    }
}

#[test]
fn no_tracked_file_is_large() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let Some(files) = lapwing_testing::tracked(root) else { return };
    for file in &files {
        let limit = LARGE.iter().find(|(name, _)| name == file).map_or(MAX_BYTES, |(_, limit)| *limit);
        let bytes = fs::symlink_metadata(root.join(file)).map_or(0, |file| file.len());
        assert!(bytes <= limit, "{file} has {bytes} bytes, more than {limit} (tests/layout.rs has the exceptions)");
    }
}
