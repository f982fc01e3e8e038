//! Helpers that the tests of several crates share. Only dev-dependencies name this crate.
//!
//! A library that a process has opened stays open, so a test of one driver needs a process of its own: [`alone`] starts the test
//! binary again for one test. [`fakes`] builds the drivers of the emulated GPU. [`circles`] finds modules that use each other.
//! [`onnx`] makes small files. [`RedisServer`] is a real one. [`not_run`] is the only way for a test to end before it has tested anything.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, clippy::panic, clippy::missing_panics_doc, reason = "only tests use it, and a panic fails them")]

pub mod circles;
pub mod fakes;
pub mod onnx;
mod redis;
mod repository;

use std::process::Command;

pub use redis::{RedisServer, free_port};
pub use repository::{not_run, onnxruntime, tracked};

/// Set in the process that runs one test: the test's name.
const ALONE: &str = "LAPWING_TEST_ALONE";

/// Runs `body` in a process of its own: at once if this is that process, else by starting this binary again for the test `name`
/// ([`test_name!`]).
pub fn alone(name: &str, body: impl FnOnce()) {
    alone_with(name, &[], body);
}

/// Does what [`alone`] does, with more variables in the environment of the new process.
pub fn alone_with(name: &str, environment: &[(&str, &str)], body: impl FnOnce()) {
    // the binary's names of tests do not begin with the crate's
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

/// Whether this process was started by [`alone`].
#[must_use]
pub fn is_alone() -> bool {
    std::env::var_os(ALONE).is_some()
}

/// The name of the test that calls it, with the crate's in front.
#[macro_export]
macro_rules! test_name {
    () => {{
        fn here() {}
        let name = std::any::type_name_of_val(&here);
        name.strip_suffix("::here").unwrap_or(name)
    }};
}
