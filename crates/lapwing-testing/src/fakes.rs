//! Fake drivers for tests: built when they are first needed, by make and the C compilers. `LAPWING_FAKES` names a
//! folder with prebuilt ones.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::is_alone;

/// Their sources, relative to the crate's folder.
const SOURCES: &str = "../../tests/gpu";
/// What is built: the driver that runs kernels (of these files only), an old version of it, and the stubs that fail to
/// start.
const TARGETS: [&str; 4] = ["ONLY=moves", "fake", "fake-old", "stubs"];

/// A persistent folder for these tests.
#[must_use]
pub fn scratch(name: &str) -> PathBuf {
    let binary = std::env::current_exe().unwrap();
    // beside `deps`
    let folder = binary.parent().and_then(Path::parent).unwrap().join("gpu-fakes").join(name);
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// The folder of a fake driver: ".", "old", "stub-…".
#[must_use]
pub fn driver(kind: &str) -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    let folder = BUILT.get_or_init(|| match std::env::var_os("LAPWING_FAKES") {
        Some(folder) => folder.into(),
        None => build(),
    });
    let one = folder.join(kind);
    assert!(one.join("libcuda.so.1").exists(), "{} was not built", one.display());
    one
}

fn build() -> PathBuf {
    let folder = scratch("built");
    let lock = File::create(folder.join("lock")).unwrap();
    // each test case is a process; the first one builds for all
    lock.lock().unwrap();
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join(SOURCES);
    run(Command::new("make").arg("-s").arg("-C").arg(&sources).arg(format!("BUILD={}", folder.display())).args(TARGETS));
    let products = sources.join("fake-cublaslt");
    run(Command::new("make").arg("-s").arg("-C").arg(products).arg(format!("BUILD={}", folder.display())));
    folder
}

/// The folder of a fake driver with the kernels of an MLP and those that measure peaks.
#[must_use]
pub fn kernels() -> PathBuf {
    if let Some(folder) = std::env::var_os("LAPWING_FAKES") {
        return folder.into();
    }
    let folder = scratch("kernels");
    let lock = File::create(folder.join("lock")).unwrap();
    lock.lock().unwrap();
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join(SOURCES);
    let build = format!("BUILD={}", folder.display());
    run(Command::new("make").arg("-s").arg("-C").arg(&sources).args([&build, "ONLY=gemv,gemm_mma,peaks", "fake"]));
    folder
}

/// Compiles a fake driver from C: each of these functions returns 0, unless `bodies` has another definition of it (its
/// parameters and body).
#[must_use]
pub fn made(name: &str, functions: &[&str], bodies: &[(&str, &str)]) -> PathBuf {
    let folder = scratch(name);
    if !is_alone() {
        return folder;
    }
    let mut text = "#include <string.h>\n".to_owned();
    for function in functions {
        let body = bodies.iter().find(|(of, _)| of == function).map_or("(void) { return 0; }", |(_, body)| body);
        writeln!(text, "int {function}{body}").unwrap();
    }
    fs::write(folder.join("driver.c"), text).unwrap();
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o"]).arg(folder.join("libcuda.so.1"));
    run(compiler.arg(folder.join("driver.c")));
    folder
}

/// Runs a command that must succeed.
pub fn run(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}:\n{}", String::from_utf8_lossy(&output.stderr));
}
