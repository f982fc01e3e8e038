//! The library: found, asked for its version, and initialised once for the process.

#![allow(unsafe_code, reason = "a library is loaded, and asked for its version and its providers")]

use std::ffi::CStr;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ort::environment::Environment;
use parking_lot::Mutex;

use super::elf::complete;
use super::search::{Candidate, candidates};

/// The oldest release that is used: its minor number, that of the interface of which all calls here are.
const OLDEST_MINOR: u32 = ort::MINOR_VERSION;

/// The library that this process has initialised: there is one at most, for good.
static LOADED: Mutex<Option<Runtime>> = Mutex::new(None);

/// ONNX Runtime's library, initialised.
#[derive(Clone)]
pub struct Runtime {
    path: PathBuf,
    version: String,
    origin: &'static str,
    passed_over: Vec<String>,
    providers: Vec<String>,
    environment: Environment,
}

/// Why there is no library to use.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LibraryError {
    /// None was found that is usable.
    #[error("libonnxruntime.so was not found on the loader's path or in the Python environment{}", also(.0))]
    NotFound(Vec<String>),
    /// The one that was named cannot be used.
    #[error("{0}")]
    Unusable(String),
}

impl LibraryError {
    /// The error that another process told of.
    #[must_use]
    pub const fn told(reason: String) -> Self {
        Self::Unusable(reason)
    }
}

fn also(passed_over: &[String]) -> String {
    passed_over.iter().map(|reason| format!("; {reason}")).collect()
}

impl Runtime {
    /// Finds the library and initialises it. `given` is a file or a folder, and nothing else is looked at then; without it
    /// `ORT_DYLIB_PATH`, the loader's path and the current Python environment are, in this order.
    ///
    /// # Errors
    ///
    /// [`LibraryError`] says which library is missing or unusable, and why.
    pub fn find(given: Option<&Path>) -> Result<Self, LibraryError> {
        let candidates = candidates(given, &|name| std::env::var_os(name));
        let mut loaded = LOADED.lock();
        if let Some(runtime) = &*loaded {
            return runtime.again(given, &candidates);
        }
        let mut passed_over = Vec::new();
        for Candidate { path, origin } in candidates {
            // names are for the loader, which need not know them
            let is_named = path.is_absolute() || path.components().count() > 1;
            match probe(&path) {
                Ok(found) => {
                    let runtime = Self::initialised(found, origin, passed_over).map_err(LibraryError::Unusable)?;
                    *loaded = Some(runtime.clone());
                    return Ok(runtime);
                }
                Err(Refusal { reason, is_found }) => {
                    if given.is_some() {
                        return Err(LibraryError::Unusable(format!("{}: {reason}", path.display())));
                    }
                    if is_named || is_found {
                        passed_over.push(format!("{} ({origin}): {reason}", path.display()));
                    }
                }
            }
        }
        Err(LibraryError::NotFound(passed_over))
    }

    fn again(&self, given: Option<&Path>, candidates: &[Candidate]) -> Result<Self, LibraryError> {
        let same = |candidate: &Candidate| {
            candidate.path == self.path || candidate.path.canonicalize().ok() == self.path.canonicalize().ok()
        };
        match given {
            Some(given) if !candidates.iter().any(same) => Err(LibraryError::Unusable(format!(
                "{}: this process has loaded {} already, and can load no second one",
                given.display(),
                self.path.display()
            ))),
            _ => Ok(self.clone()),
        }
    }

    /// Initialises the library: creates its environment, without telemetry.
    fn initialised(found: Probed, origin: &'static str, passed_over: Vec<String>) -> Result<Self, String> {
        let Probed { path, loads_as, version } = found;
        let fails = |e: &dyn fmt::Display| format!("{}: cannot be initialised: {e}", path.display());
        let builder = ort::init_from(&loads_as).map_err(|e| fails(&e))?;
        let logger = |_: ort::logging::LogLevel, category: &str, _: &str, place: &str, message: &str| {
            // errors of calls come back as errors of calls; whatever a model's file says is escaped
            tracing::debug!(target: "onnxruntime", category, place, "{message:?}");
        };
        let environment =
            builder.with_name("lapwing").with_telemetry(false).with_logger(Arc::new(logger)).build().map_err(|e| fails(&e))?;
        Ok(Self { path, version, origin, passed_over, providers: providers(), environment })
    }

    /// The library's file; its name where the system does not say which file that is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its version, such as `1.31.1`.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Where it was found: `engine.ort_lib`, `ORT_DYLIB_PATH`, `the loader's path` or `the Python environment`.
    #[must_use]
    pub const fn origin(&self) -> &'static str {
        self.origin
    }

    /// Libraries that come before it and cannot be used, each with the reason.
    #[must_use]
    pub fn passed_over(&self) -> &[String] {
        &self.passed_over
    }

    /// The execution providers that it was built with, such as `CUDAExecutionProvider`.
    #[must_use]
    pub fn providers(&self) -> &[String] {
        &self.providers
    }

    pub(crate) const fn environment(&self) -> &Environment {
        &self.environment
    }
}

impl fmt::Debug for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runtime").field("path", &self.path).field("version", &self.version).finish_non_exhaustive()
    }
}

/// A library that can be used.
struct Probed {
    path: PathBuf,
    /// What the loader is to be asked for.
    loads_as: PathBuf,
    version: String,
}

/// Why a library cannot be used.
struct Refusal {
    reason: String,
    /// Whether the loader found it.
    is_found: bool,
}

/// Loads a library and asks for its version; nothing else of it is called.
fn probe(path: &Path) -> Result<Probed, Refusal> {
    let refuse = |reason: String| Refusal { reason, is_found: true };
    if path.is_dir() {
        return Err(refuse("is a folder without libonnxruntime.so".to_owned()));
    }
    complete(path).map_err(refuse)?;
    // SAFETY: the library's initialisers run. It is one that the user named, or that is installed where ONNX Runtime is.
    let library = unsafe { libloading::Library::new(path) }.map_err(|error| {
        let reason = cause(&error, path);
        Refusal { is_found: !reason.contains("No such file"), reason }
    })?;
    let no_api = || refuse("does not export OrtGetApiBase, so that it is not ONNX Runtime".to_owned());
    // SAFETY: the symbol of this name has this type in every release (onnxruntime_c_api.h).
    let base = unsafe { library.get::<unsafe extern "C" fn() -> *const ort::sys::OrtApiBase>(b"OrtGetApiBase\0") };
    let base = base.map_err(|_| no_api())?;
    // SAFETY: it takes nothing, and returns a static table or null.
    let base = unsafe { base().as_ref() }.ok_or_else(no_api)?;
    // SAFETY: a function of the table, as the header has it; it returns a static text or null.
    let version = unsafe { (base.GetVersionString)() };
    if version.is_null() {
        return Err(refuse("does not say its version".to_owned()));
    }
    // SAFETY: the text is static and ends with a zero byte.
    let version = unsafe { CStr::from_ptr(version) }.to_string_lossy().into_owned();
    let mut numbers = version.split('.').map(str::parse::<u32>);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(1)), Some(Ok(minor))) if minor >= OLDEST_MINOR => {}
        _ => return Err(refuse(format!("is ONNX Runtime {version:?}; a release from 1.{OLDEST_MINOR} on, before 2, is needed"))),
    }
    // SAFETY: as above; it returns a static table, or null for a version that the library does not have.
    if unsafe { (base.GetApi)(OLDEST_MINOR) }.is_null() {
        return Err(refuse(format!("is ONNX Runtime {version}, but has no interface of version {OLDEST_MINOR}")));
    }
    let file = if path.is_absolute() { path.to_owned() } else { mapped(path).unwrap_or_else(|| path.to_owned()) };
    // it stays loaded: its initialisers ran, and it is initialised next
    std::mem::forget(library);
    Ok(Probed { loads_as: file.clone(), path: file, version })
}

/// The loader's words, without the path, which is said before them.
fn cause(error: &libloading::Error, path: &Path) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(error) = source {
        text = error.to_string();
        source = error.source();
    }
    let path = path.display().to_string();
    text.strip_prefix(&path).map(|rest| rest.trim_start_matches(": ").to_owned()).unwrap_or(text)
}

/// The file that the loader found for a name: this process has mapped it.
fn mapped(name: &Path) -> Option<PathBuf> {
    let name = name.to_str()?;
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    let files = maps.lines().filter_map(|line| line.find('/').map(|at| &line[at..]));
    files
        .map(Path::new)
        .find(|file| file.file_name().and_then(|file| file.to_str()).is_some_and(|file| file.starts_with(name)))
        .map(Path::to_owned)
}

/// The execution providers of the library.
fn providers() -> Vec<String> {
    let api = ort::api();
    let (mut names, mut count) = (std::ptr::null_mut(), 0);
    // SAFETY: both are places for what it writes.
    let status = unsafe { (api.GetAvailableProviders)(&raw mut names, &raw mut count) };
    // SAFETY: the status is that of the call, and is freed by this.
    if unsafe { ort::Error::result_from_status(status) }.is_err() || names.is_null() {
        return Vec::new();
    }
    let each = (0..usize::try_from(count).unwrap_or(0)).map(|at| {
        // SAFETY: it wrote `count` texts that end with a zero byte.
        unsafe { CStr::from_ptr(*names.add(at)) }.to_string_lossy().into_owned()
    });
    let found = each.collect();
    // SAFETY: the list is the one that it wrote, and nothing of it is used any more.
    let status = unsafe { (api.ReleaseAvailableProviders)(names, count) };
    // SAFETY: as above. A list that is not freed is a few bytes.
    drop(unsafe { ort::Error::result_from_status(status) });
    found
}
