//! The memory of this process, as the operating system reports it.

use std::fs;

/// Resident memory in bytes; `None` when /proc cannot be read.
pub(crate) fn resident_bytes() -> Option<u64> {
    resident_in(&fs::read_to_string("/proc/self/status").ok()?)
}

fn resident_in(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_is_found_and_read() {
        assert_eq!(resident_in("VmSize:\t  9 kB\nVmRSS:\t   14336 kB\nThreads:\t2\n"), Some(14_336 * 1024));
        assert_eq!(resident_in("VmSize:\t  9 kB\n"), None);
        assert_eq!(resident_in("VmRSS:\tmuch kB\n"), None);
        assert_ne!(resident_bytes(), Some(0));
    }
}
