//! Checks that every script of the repository answers `--help` and does nothing else then: it writes no file, and needs nothing
//! beyond Python's standard library.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::path::Path;
use std::process::Command;

/// The tracked files that can be run: those with a shebang, and Python files with a main part.
fn scripts(root: &Path) -> Option<Vec<String>> {
    let is_script = |name: &str| {
        let Ok(text) = std::fs::read_to_string(root.join(name)) else { return false };
        text.starts_with("#!") && !text.starts_with("#![") || name.ends_with(".py") && text.contains("\nif __name__ == ")
    };
    let found: Vec<String> = lapwing_testing::tracked(root)?.into_iter().filter(|name| is_script(name)).collect();
    for known in [".ci/run", "tests/run", "benches/check", "bench/overhead.py", "tests/gpu/compile.py"] {
        assert!(found.iter().any(|name| name == known), "{known} is not among the scripts: {found:?}");
    }
    Some(found)
}

#[test]
fn every_script_answers_help_and_does_nothing_else() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    if Command::new("python3").arg("--version").output().is_err() {
        return lapwing_testing::not_run("python3 is not installed");
    }
    let Some(scripts) = scripts(root) else { return };
    let mut faults = Vec::new();
    for script in scripts {
        let folder = tempfile::tempdir().unwrap();
        let path = root.join(&script);
        let mut command = if script.ends_with(".py") { Command::new("python3") } else { Command::new("bash") };
        if script.ends_with(".py") {
            command.args(["-S", "-B"]); // without installed packages, and without writing bytecode
        }
        let asked = command.arg(&path).arg("--help").current_dir(folder.path()).env("TMPDIR", folder.path()).output().unwrap();
        let said = String::from_utf8_lossy(&asked.stdout);
        if !asked.status.success() || !said.to_lowercase().contains("usage: ") {
            let error = String::from_utf8_lossy(&asked.stderr);
            faults.push(format!("{script} --help: {}, says {said:?} {error:?}", asked.status));
        }
        for written in std::fs::read_dir(folder.path()).unwrap() {
            faults.push(format!("{script} --help wrote {}", written.unwrap().file_name().display()));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
