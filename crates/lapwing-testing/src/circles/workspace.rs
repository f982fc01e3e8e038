//! The packages of a workspace, as cargo sees them.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// A package with what is built of its sources.
#[derive(Debug)]
pub struct Package {
    /// Its name.
    pub name: String,
    /// Its library and binaries.
    pub crates: Vec<Crate>,
}

/// A crate.
#[derive(Debug)]
pub struct Crate {
    /// The package's name for its library, or its only binary; `package/bin/name` for others.
    pub name: String,
    /// The file of its root module.
    pub root: PathBuf,
}

/// The packages of the workspace whose `Cargo.toml` is in `root`.
///
/// # Errors
/// What cargo says, and a workspace without crates.
pub fn packages(root: &Path) -> Result<Vec<Package>, String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["metadata", "--no-deps", "--offline", "--format-version", "1", "--manifest-path"]).arg(root.join("Cargo.toml"));
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    if !output.status.success() {
        return Err(format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr)));
    }
    let metadata: Value = serde_json::from_slice(&output.stdout).map_err(|error| format!("{command:?}: {error}"))?;
    let mut packages: Vec<_> = list(&metadata["packages"]).iter().map(package).filter(|p| !p.crates.is_empty()).collect();
    packages.sort_by(|a, b| a.name.cmp(&b.name));
    if packages.is_empty() {
        return Err(format!("{} has no crates", root.display()));
    }
    Ok(packages)
}

fn package(value: &Value) -> Package {
    let name = value["name"].as_str().unwrap_or_default().to_owned();
    let has_kind =
        |target: &Value, kinds: &[&str]| list(&target["kind"]).iter().any(|k| k.as_str().is_some_and(|k| kinds.contains(&k)));
    let targets = list(&value["targets"]);
    let (libraries, others): (Vec<_>, Vec<_>) =
        targets.iter().partition(|target| has_kind(target, &["lib", "rlib", "dylib", "cdylib", "staticlib", "proc-macro"]));
    let binaries: Vec<_> = others.into_iter().filter(|target| has_kind(target, &["bin"])).collect();
    let is_only = libraries.is_empty() && binaries.len() == 1;
    let root = |target: &Value| PathBuf::from(target["src_path"].as_str().unwrap_or_default());
    let mut crates: Vec<_> = libraries.into_iter().map(|t| Crate { name: name.clone(), root: root(t) }).collect();
    for binary in binaries {
        let its = if is_only { name.clone() } else { format!("{name}/bin/{}", binary["name"].as_str().unwrap_or_default()) };
        crates.push(Crate { name: its, root: root(binary) });
    }
    Package { name, crates }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}
