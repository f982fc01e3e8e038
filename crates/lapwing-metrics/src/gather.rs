//! Reads the registry one series at a time and releases the lock in between, so that the aggregator never waits long.

use parking_lot::{Mutex, MutexGuard};

use crate::{Registry, SeriesSnapshot, Window};

/// Calls `make` for each series with traffic in `window`, and returns the results in the order of route, model and upstream. The
/// figures of one series are of one moment; two series may be some milliseconds apart.
#[must_use]
pub fn series<T>(registry: &Mutex<Registry>, window: Window, mut make: impl FnMut(&SeriesSnapshot) -> T) -> Vec<T> {
    let mut made = Vec::new();
    let mut place = 0;
    loop {
        let guard = registry.lock();
        if place >= guard.places() {
            break;
        }
        let copied = guard.series(window, place..place + 1);
        MutexGuard::unlock_fair(guard); // the longest waiter is next
        place += 1;
        made.extend(copied.iter().map(|s| ((s.route.clone(), s.model.clone(), s.upstream.clone()), make(s))));
    }
    made.sort_by(|a, b| a.0.cmp(&b.0));
    made.into_iter().map(|(_, made)| made).collect()
}
