//! Where the library is looked for, in order: the setting or, without one, `ORT_DYLIB_PATH`, the loader's path, and the current Python
//! environment. It looks at folders and never runs Python.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The names of the library, the preferred one first; a wheel has a longer one, with the whole version.
const NAMES: [&str; 2] = ["libonnxruntime.so", "libonnxruntime.so.1"];
/// The library's folder in an environment's `site-packages`.
const IN_PACKAGES: &str = "onnxruntime/capi";

/// A library that may be there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Candidate {
    /// A path, or a name for the loader.
    pub(crate) path: PathBuf,
    /// Who named it.
    pub(crate) origin: &'static str,
}

/// The process's environment variables, by name.
pub(crate) type Variables<'a> = &'a dyn Fn(&str) -> Option<OsString>;

/// The candidates, in the order in which they are tried. `given` alone counts where it is given: a file, or a folder with the library.
pub(crate) fn candidates(given: Option<&Path>, variable: Variables<'_>) -> Vec<Candidate> {
    if let Some(given) = given {
        return in_setting(given, "engine.ort_lib");
    }
    let mut found = Vec::new();
    if let Some(path) = variable("ORT_DYLIB_PATH").filter(|path| !path.is_empty()) {
        found.extend(in_setting(Path::new(&path), "ORT_DYLIB_PATH"));
    }
    found.extend(NAMES.map(|name| Candidate { path: name.into(), origin: "the loader's path" }));
    let of_python = environments(variable).into_iter().flat_map(|folder| packages(&folder)).flat_map(|folder| {
        in_folder(&folder.join(IN_PACKAGES)).into_iter().map(|path| Candidate { path, origin: "the Python environment" })
    });
    for candidate in of_python {
        if !found.contains(&candidate) {
            found.push(candidate);
        }
    }
    found
}

/// A file, or the libraries of a folder; a folder without one is named itself, so that it is reported.
fn in_setting(given: &Path, origin: &'static str) -> Vec<Candidate> {
    let found = if given.is_dir() { in_folder(given) } else { Vec::new() };
    let paths = if found.is_empty() { vec![given.to_owned()] } else { found };
    paths.into_iter().map(|path| Candidate { path, origin }).collect()
}

/// The libraries of a folder: by the preferred names, then those with a whole version, the highest first.
fn in_folder(folder: &Path) -> Vec<PathBuf> {
    let named = NAMES.iter().map(|name| folder.join(name)).filter(|path| path.is_file());
    let mut versions: Vec<(Vec<u64>, PathBuf)> = entries(folder)
        .filter_map(|path| {
            let version = path.file_name()?.to_str()?.strip_prefix("libonnxruntime.so.1.")?;
            Some((version.split('.').map(str::parse).collect::<Result<_, _>>().ok()?, path))
        })
        .collect();
    versions.sort_unstable_by(|one, other| other.cmp(one));
    named.chain(versions.into_iter().map(|(_, path)| path)).collect()
}

/// The folders of the current Python environment: `VIRTUAL_ENV`, else that of the `python3` on the path, as it is called and as it is linked.
fn environments(variable: Variables<'_>) -> Vec<PathBuf> {
    if let Some(folder) = variable("VIRTUAL_ENV").filter(|folder| !folder.is_empty()) {
        return vec![folder.into()];
    }
    let path = variable("PATH").unwrap_or_default();
    let Some(python) = std::env::split_paths(&path).map(|folder| folder.join("python3")).find(|python| python.is_file()) else {
        return Vec::new();
    };
    let root = |python: &Path| python.parent().and_then(Path::parent).map(Path::to_owned);
    let mut roots: Vec<PathBuf> = root(&python).into_iter().collect();
    // what a virtual environment lacks is not looked for in the Python that it was made of
    if !roots.iter().any(|root| root.join("pyvenv.cfg").is_file()) {
        roots.extend(python.canonicalize().ok().as_deref().and_then(root));
        roots.extend(variable("HOME").map(|home| Path::new(&home).join(".local")));
        if roots.iter().any(|root| root == Path::new("/usr")) {
            roots.push("/usr/local".into());
        }
    }
    roots
}

/// The folders in which an environment has its packages, those of the newest Python first.
fn packages(environment: &Path) -> Vec<PathBuf> {
    let libraries = ["lib", "lib64"].map(|name| environment.join(name));
    let mut pythons: Vec<PathBuf> = libraries
        .iter()
        .flat_map(|folder| entries(folder))
        .filter(|path| path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with("python3")))
        .collect();
    pythons.sort_by_key(|path| {
        let minor = path.extension().and_then(|minor| minor.to_str()).and_then(|minor| minor.parse::<u64>().ok());
        std::cmp::Reverse(minor)
    });
    pythons.iter().flat_map(|python| ["site-packages", "dist-packages"].map(|name| python.join(name))).collect()
}

/// The paths of a folder's entries; none where it cannot be read.
fn entries(folder: &Path) -> impl Iterator<Item = PathBuf> {
    std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn touch(path: &Path) -> PathBuf {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, "").unwrap();
        path.to_owned()
    }

    fn paths(given: Option<&Path>, variables: &[(&str, &Path)]) -> Vec<PathBuf> {
        let variable = |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, path)| OsString::from(path));
        candidates(given, &variable).into_iter().map(|candidate| candidate.path).collect()
    }

    #[test]
    fn a_setting_counts_alone_and_a_folder_stands_for_its_libraries() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        assert_eq!(paths(Some(folder), &[]), [folder]);
        let old = touch(&folder.join("libonnxruntime.so.1.9.0"));
        let new = touch(&folder.join("libonnxruntime.so.1.31.1"));
        touch(&folder.join("libonnxruntime.so.1.old"));
        touch(&folder.join("libonnxruntime_providers_shared.so"));
        assert_eq!(paths(Some(folder), &[("ORT_DYLIB_PATH", Path::new("/x"))]), [&*new, &*old]);
        let plain = touch(&folder.join("libonnxruntime.so"));
        assert_eq!(paths(Some(folder), &[]), [&*plain, &*new, &*old]);
        assert_eq!(paths(Some(&old), &[]), [&*old]);
        assert_eq!(paths(Some(Path::new("/none")), &[]), [Path::new("/none")]);
    }

    #[test]
    fn without_a_setting_the_variable_the_loader_and_python_are_asked() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let loader = NAMES.map(PathBuf::from).to_vec();
        assert_eq!(paths(None, &[]), loader);
        let library = |root: &str| touch(&folder.join(root).join(IN_PACKAGES).join("libonnxruntime.so.1.20.0"));
        let (venv, older) = (library("venv/lib/python3.12/site-packages"), library("venv/lib/python3.9/site-packages"));
        let named: Vec<PathBuf> =
            ["/o.so".into()].into_iter().chain(loader.clone()).chain([venv.clone(), older.clone()]).collect();
        let variables = [("ORT_DYLIB_PATH", Path::new("/o.so")), ("VIRTUAL_ENV", &folder.join("venv"))];
        assert_eq!(paths(None, &variables), named);
        // a python3 on the path stands for its environment
        touch(&folder.join("venv/bin/python3"));
        touch(&folder.join("venv/pyvenv.cfg"));
        let home = library("home/.local/lib/python3.11/site-packages");
        let (path, home_folder) = (folder.join("venv/bin"), folder.join("home"));
        let variables = [("PATH", &*path), ("HOME", &*home_folder)];
        assert_eq!(paths(None, &variables)[2..], [venv.clone(), older.clone()]);
        // one that is no virtual environment has the user's packages too
        std::fs::remove_file(folder.join("venv/pyvenv.cfg")).unwrap();
        assert_eq!(paths(None, &variables)[2..], [venv, older, home]);
    }
}
