//! The repository whose tests run, and what of them could not be run: never a test that passes without having looked.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Names the file to which tests that were not run are added; `tests/report.sh` says in which form.
const REPORT: &str = "TESTS_REPORT";

/// Says that the test of this thread was not run, and why. In CI that is a failure, except for a reason that begins with
/// `this machine`: there is no package for another processor. Elsewhere the last line of `tests/run` has it.
pub fn not_run(why: &str) {
    let is_ci = std::env::var("CI").is_ok_and(|value| !["", "0", "false"].contains(&value.to_lowercase().as_str()));
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("a test");
    assert!(!is_ci || why.starts_with("this machine"), "{test}: in CI every test runs: {why}");
    eprintln!("{test} was not run: {why}");
    if let Some(report) = std::env::var_os(REPORT) {
        let mut report = OpenOptions::new().append(true).create(true).open(report).unwrap();
        report.write_all(format!("not run\t{test}: {why}\n").as_bytes()).unwrap();
    }
}

/// The folder of ONNX Runtime's library in the virtual environment of the repository; `None`, and [`not_run`], where it has none.
///
/// # Panics
/// If that folder cannot be read.
#[must_use]
pub fn onnxruntime() -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.venv/lib");
    let pythons = std::fs::read_dir(root).into_iter().flatten().flatten();
    let mut folders = pythons.map(|entry| entry.path().join("site-packages/onnxruntime/capi"));
    let Some(folder) = folders.find(|folder| folder.is_dir()) else {
        not_run("no onnxruntime in .venv: pip install -r tests/requirements.txt");
        return None;
    };
    Some(folder.canonicalize().unwrap())
}

/// The tracked files of the repository at `root`, relative to it; `None`, and [`not_run`], for a copy that is no repository.
///
/// # Panics
/// If it is a repository and git does not list it.
#[must_use]
pub fn tracked(root: &Path) -> Option<Vec<String>> {
    if !root.join(".git").exists() {
        not_run("these sources are no git repository");
        return None;
    }
    let listed = Command::new("git").arg("-C").arg(root).args(["ls-files", "-z"]).output().unwrap();
    assert!(listed.status.success(), "git ls-files: {}", String::from_utf8_lossy(&listed.stderr));
    let names = String::from_utf8(listed.stdout).unwrap();
    let names: Vec<String> = names.split('\0').filter(|name| !name.is_empty()).map(str::to_owned).collect();
    assert!(names.iter().any(|name| name == "Cargo.toml"), "git lists {} files, and no Cargo.toml", names.len());
    Some(names)
}
