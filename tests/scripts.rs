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
    for known in [".ci/run", "tests/run", "benches/check", "benches/overhead.py", "tests/gpu/compile.py"] {
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

/// What `conclusion` of tests/report.sh says last after these commands, and whether it says that all is well.
fn concluded(ci: &str, commands: &str) -> (bool, String) {
    let text = format!(". tests/report.sh; report_begins; {commands}\nrm \"$TESTS_REPORT\"; exit \"$code\"");
    let mut bash = Command::new("bash");
    bash.args(["-c", &text]).current_dir(env!("CARGO_MANIFEST_DIR")).env("CI", ci).env_remove("TESTS_REPORT");
    let said = bash.output().unwrap();
    let last = String::from_utf8(said.stdout).unwrap().lines().last().unwrap_or_default().to_owned();
    (said.status.success(), last)
}

#[test]
fn a_run_says_that_all_passed_only_if_all_ran() {
    let end = "conclusion tests/run \"${failed[@]}\"; code=$?";
    let lacking = format!("failed=(); lacks 'cargo deny' 'it is not installed' || failed+=('cargo deny'); {end}");
    let not_run = "tests/run: what ran passed; NOT RUN: cargo deny: it is not installed";
    assert_eq!(concluded("", &format!("failed=(); {end}")), (true, "tests/run: everything ran, and passed".to_owned()));
    for elsewhere in ["", "false", "0"] {
        assert_eq!(concluded(elsewhere, &lacking), (true, not_run.to_owned()));
    }
    for ci in ["true", "1"] {
        assert_eq!(concluded(ci, &lacking), (false, "tests/run: FAILED: cargo deny".to_owned()));
    }
    let again = format!("failed=(); passed_again a::b c; {end}");
    assert_eq!(concluded("true", &again), (true, "tests/run: everything ran, and passed; 2 only when run once more".to_owned()));
    let all = format!("failed=('cargo test'); passed_again a; lacks x y; {end}");
    let wanted = "tests/run: FAILED: cargo test; 1 only when run once more; NOT RUN: x: y";
    assert_eq!(concluded("", &all), (false, wanted.to_owned()));
}

/// The end of a process and a search without a result may be ignored, and nothing else: least of all an installation.
#[test]
fn no_script_ignores_that_a_command_failed() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut ignored = 0;
    for script in ["tests/run", ".ci/run", "tests/report.sh", "tests/real/otelcol.sh", "tests/real/apiserver.sh", "benches/check"]
    {
        for line in std::fs::read_to_string(root.join(script)).unwrap().lines().filter(|line| line.contains("|| true")) {
            ignored += 1;
            let command = line.trim();
            assert!(command.starts_with("kill ") || command.starts_with("grep "), "{script}: {command}");
        }
    }
    assert!(ignored > 0, "tests/run has lines that this test looks at");
}
