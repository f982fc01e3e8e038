//! Loads libraries from a directory that the user names. cudarc opens its libraries by name, and the loader returns a
//! library that is already open under that name. So the file is opened first, by its path, and kept open until the
//! process ends. The loader's environment is never changed, because it is read only once, at process start.

use std::path::Path;

use libloading::Library;

use super::error::{DeviceError, Result};

/// Opens `directory/name` and keeps it open; false if there is no such file.
///
/// # Errors
/// The file exists and cannot be loaded.
pub(crate) fn keep_open(directory: &Path, name: &str) -> Result<bool> {
    match open(directory, name)? {
        Some(library) => {
            // never closed: driver threads may run in it until the process ends
            std::mem::forget(library);
            Ok(true)
        }
        None => Ok(false),
    }
}

/// Checks that the library used by cudarc is `directory/name`, by comparing the address of one of its functions.
///
/// # Errors
/// It is another file.
pub(crate) fn same(directory: &Path, name: &'static str, symbol: &str, used: &Library) -> Result<()> {
    let path = directory.join(name);
    let Some(library) = open(directory, name)? else {
        return Err(DeviceError::Unloadable { path, reason: "it is gone".to_owned() });
    };
    // SAFETY: the addresses are only compared, never called.
    let (ours, theirs) = unsafe { (address(&library, symbol), address(used, symbol)) };
    if ours.is_some() && ours == theirs { Ok(()) } else { Err(DeviceError::DuplicateLibrary { path, library: name }) }
}

fn open(directory: &Path, name: &str) -> Result<Option<Library>> {
    let path = std::path::absolute(directory.join(name)).unwrap_or_else(|_| directory.join(name));
    if !path.exists() {
        return Ok(None);
    }
    // SAFETY: loading runs the library's initialisers. The user names the directory, and CUDA libraries have sound
    // initialisers.
    match unsafe { Library::new(&path) } {
        Ok(library) => Ok(Some(library)),
        Err(error) => Err(DeviceError::Unloadable { path, reason: words(&error) }),
    }
}

/// The address of a function.
///
/// # Safety
/// The address may only be compared.
unsafe fn address(library: &Library, symbol: &str) -> Option<usize> {
    // SAFETY: the caller does not call it.
    let found = unsafe { library.get::<unsafe extern "C" fn()>(symbol.as_bytes()) };
    found.ok().map(|function| *function as usize)
}

/// The loader's message: libloading exposes it only as the error's source.
fn words(error: &libloading::Error) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string)
}
