//! How the process's file descriptors are divided. Whoever takes more than its share would leave none for the requests: neither for
//! their connections nor for those to the upstream.
//!
//! Of each 16 descriptors, clients of the data plane have 10, the control plane's listeners one each, the engine's listener two.
//! The rest is for connections to the upstream and for files.

use std::fs;
use std::sync::LazyLock;

/// What is assumed where /proc cannot be read: the usual soft limit.
const ASSUMED: usize = 1024;
const PARTS: usize = 16;

static LIMIT: LazyLock<usize> = LazyLock::new(|| {
    let limits = fs::read_to_string("/proc/self/limits");
    limits.ok().and_then(|limits| soft_limit(&limits)).unwrap_or(ASSUMED)
});

/// The connections that clients of the data plane may have, over all workers.
#[must_use]
pub fn client_connections() -> usize {
    share(*LIMIT, 10)
}

/// The connections that one of the control plane's listeners may have; at most 64.
#[must_use]
pub fn control_connections() -> usize {
    share(*LIMIT, 1).min(64)
}

/// The connections that the engine's listener may have.
#[must_use]
pub fn engine_connections() -> usize {
    share(*LIMIT, 2)
}

fn share(limit: usize, parts: usize) -> usize {
    // with fewer descriptors than this, nothing would be served at all
    (limit / PARTS).saturating_mul(parts).max(4)
}

/// `RLIMIT_NOFILE` in the text of /proc/self/limits.
fn soft_limit(limits: &str) -> Option<usize> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    match line.split_whitespace().next()? {
        "unlimited" => Some(usize::MAX),
        number => number.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_read_and_divided() {
        let limits = "Limit  Soft Limit  Hard Limit  Units\nMax processes  9  9  processes\nMax open files            1024     524288     files\n";
        assert_eq!(soft_limit(limits), Some(1024));
        assert_eq!(soft_limit("Max open files   unlimited  unlimited  files"), Some(usize::MAX));
        assert_eq!((soft_limit(""), soft_limit("Max open files  many")), (None, None));
        assert_eq!([10, 1, 2].map(|parts| share(1024, parts)), [640, 64, 128]);
        assert_eq!((share(20, 1), share(usize::MAX, 10) > 1 << 40), (4, true));
        assert!(*LIMIT > 0 && control_connections() <= 64);
    }
}
