//! How the process's file descriptors are divided. A part that took more than its share would leave none for requests: neither for
//! their connections nor for those to the upstream.
//!
//! Of each 16 descriptors, clients of the data plane have 10, the control plane's listeners one each, the engine's listener two.
//! The rest is for connections to the upstream and for files. The process may have as many as the system allows it: the soft limit, which
//! is 1024 because of programs that use `select`, is raised to the hard one at the start.

use std::io;
use std::sync::LazyLock;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

const PARTS: usize = 16;
/// Of these, those of clients.
const OF_CLIENTS: usize = 10;
/// The most connections of clients: idle ones take 120 MiB then. Where the system allows a million descriptors, something else bounds them.
const MAX_CLIENTS: usize = 40_960;

static LIMIT: LazyLock<usize> = LazyLock::new(soft_limit);

/// Raises the soft limit of this process's descriptors to the hard one. Call it before any share is asked for.
///
/// # Errors
///
/// The system's error; the limit is as it was.
pub fn raise_descriptor_limit() -> io::Result<()> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current != maximum {
        setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })?;
    }
    Ok(())
}

/// How many descriptors this process may have.
#[must_use]
pub fn descriptors() -> usize {
    *LIMIT
}

/// The connections that clients of the data plane may have, over all workers.
#[must_use]
pub fn client_connections() -> usize {
    clients_within(*LIMIT)
}

/// The same of a process that may have `limit` descriptors.
#[must_use]
pub fn clients_within(limit: usize) -> usize {
    share(limit, OF_CLIENTS).min(MAX_CLIENTS)
}

/// How many descriptors a process needs for so many connections of clients.
#[must_use]
pub const fn descriptors_for(clients: usize) -> usize {
    clients.div_ceil(OF_CLIENTS).saturating_mul(PARTS)
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

/// The connections that each listener for the model server's own calls may have, each with one to the store; at most 4,096.
#[must_use]
pub fn outbound_connections() -> usize {
    (share(*LIMIT, 1) / 2).clamp(4, 4096)
}

fn share(limit: usize, parts: usize) -> usize {
    // with fewer descriptors than this, nothing would be served at all
    (limit / PARTS).saturating_mul(parts).max(4)
}

/// The soft limit; `None` of the system's is no limit.
fn soft_limit() -> usize {
    getrlimit(Resource::Nofile).current.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_raised_and_divided() {
        raise_descriptor_limit().unwrap();
        let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
        assert_eq!(current, maximum);
        assert_eq!([10, 1, 2].map(|parts| share(1024, parts)), [640, 64, 128]);
        assert_eq!([16, 6544, 6560, 1 << 20, usize::MAX].map(clients_within), [10, 4090, 4100, MAX_CLIENTS, MAX_CLIENTS]);
        assert_eq!((descriptors_for(4096), descriptors_for(MAX_CLIENTS)), (6560, 65_536));
        assert_eq!((share(20, 1), share(usize::MAX, 10) > 1 << 40), (4, true));
        assert!(descriptors() > 0 && control_connections() <= 64 && client_connections() <= MAX_CLIENTS);
    }
}
