//! Tests of the device layer: without a driver, with unusable drivers, and with one that runs kernels on the host.
//!
//! An opened library stays open, so each test case runs in a process of its own: this test binary, started again for
//! one test.

mod absent;
mod emulated;
pub(crate) mod fakes;
mod listed;
mod products;

use std::process::Command;

/// Set in the process of a test case, to the test's name.
const ALONE: &str = "LAPWING_TEST_ALONE";

/// Runs `body` in a process of its own: here if this is that process, else by starting this binary again for the test
/// `name`.
pub(crate) fn alone(name: &str, body: impl FnOnce()) {
    alone_with(name, &[], body);
}

/// Like `alone`, with additional environment variables.
fn alone_with(name: &str, environment: &[(&str, &str)], body: impl FnOnce()) {
    // the binary's test names do not begin with the crate's
    let name = name.split_once("::").map_or(name, |(_, rest)| rest);
    if std::env::var(ALONE).is_ok_and(|this| this == name) {
        return body();
    }
    let binary = std::env::current_exe().unwrap();
    let mut command = Command::new(binary);
    command.args(["--exact", name, "--nocapture"]).env(ALONE, name).envs(environment.iter().copied());
    let output = command.output().unwrap();
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{name}:\n{said}");
    assert!(said.contains("1 passed"), "{name} was not run:\n{said}");
}

/// Whether this is the process of a test case.
fn is_alone() -> bool {
    std::env::var_os(ALONE).is_some()
}

/// The name of the calling test.
macro_rules! test_name {
    () => {{
        fn here() {}
        let name = std::any::type_name_of_val(&here);
        name.strip_suffix("::here").unwrap_or(name)
    }};
}
pub(crate) use test_name;
