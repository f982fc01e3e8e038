//! Limits of this process, which the operating system enforces: for a process that tries to load a model and may be ended by it.

use std::io;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Limits the address space of this process to `bytes`, and its processor time to `seconds`; a lower limit that is
/// there stays. Beyond the first, allocations fail; beyond the second, the process is ended by SIGXCPU.
///
/// # Errors
///
/// The operating system's error.
pub fn limit(bytes: u64, seconds: u64) -> io::Result<()> {
    for (resource, most) in [(Resource::As, bytes), (Resource::Cpu, seconds)] {
        let Rlimit { current, maximum } = getrlimit(resource);
        let most = [current, maximum].into_iter().flatten().fold(most, u64::min);
        setrlimit(resource, Rlimit { current: Some(most), maximum })?;
    }
    Ok(())
}
