//! Values that are replaced whole while the process runs: one side replaces, any number of readers load.
//!
//! A reader never sees half of an old and half of a new value: it loads an `Arc` and keeps it as long as it needs it.
//! Loading takes no lock. A projection of a value ([`ConfigHandle::map`]) is computed again after the value is replaced.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Release};

use arc_swap::ArcSwap;

/// Holds the value in force, and replaces it.
pub struct ConfigCell<T> {
    value: Arc<ArcSwap<T>>,
    version: Arc<AtomicU64>,
}

impl<T: Send + Sync + 'static> ConfigCell<T> {
    /// Holds `value`.
    #[must_use]
    pub fn new(value: T) -> Self {
        Self { value: Arc::new(ArcSwap::from_pointee(value)), version: Arc::default() }
    }

    /// Puts `value` in force. Readers get it from their next load on; what they hold stays as it is.
    pub fn replace(&self, value: T) {
        self.value.store(Arc::new(value));
        // whoever sees the new version loads the new value
        self.version.fetch_add(1, Release);
    }

    /// The value in force.
    #[must_use]
    pub fn load(&self) -> Arc<T> {
        self.value.load_full()
    }

    /// A handle that reads the value in force at each load.
    #[must_use]
    pub fn handle(&self) -> ConfigHandle<T> {
        let cell = self.value.clone();
        ConfigHandle { load: Arc::new(move || cell.load_full()), version: self.version.clone() }
    }
}

impl<T> fmt::Debug for ConfigCell<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConfigCell").finish_non_exhaustive()
    }
}

/// Reads the value in force. Clones read the same value.
pub struct ConfigHandle<T> {
    load: Arc<dyn Fn() -> Arc<T> + Send + Sync>,
    version: Arc<AtomicU64>,
}

impl<T: Send + Sync + 'static> ConfigHandle<T> {
    /// A handle to a value that is never replaced.
    #[must_use]
    pub fn fixed(value: T) -> Self {
        Arc::new(value).into()
    }

    /// The value in force. A caller that needs several parts of it loads once, so that they belong together.
    #[must_use]
    pub fn load(&self) -> Arc<T> {
        (self.load)()
    }

    /// How often the value was replaced: to see cheaply whether it was, a moment late at most. Read before the value that it is to
    /// stand for.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version.load(Acquire)
    }

    /// A handle to `project` of the value in force. `project` runs once for each value, at the first load after a replacement (more than
    /// once if several threads are the first); all further loads return the same `Arc`.
    #[must_use]
    pub fn map<U: Send + Sync + 'static>(&self, project: impl Fn(&T) -> U + Send + Sync + 'static) -> ConfigHandle<U> {
        let source = self.clone();
        let first = source.load();
        let projected = Arc::new(project(&first));
        // the source is kept with its projection: while it is alive, no other value can have its address
        let cached = ArcSwap::from_pointee((first, projected));
        let load = move || {
            let current = source.load();
            let known = cached.load();
            if Arc::ptr_eq(&known.0, &current) {
                return known.1.clone();
            }
            let projected = Arc::new(project(&current));
            cached.store(Arc::new((current, projected.clone())));
            projected
        };
        ConfigHandle { load: Arc::new(load), version: self.version.clone() }
    }
}

/// A handle to a value that is never replaced.
impl<T: Send + Sync + 'static> From<Arc<T>> for ConfigHandle<T> {
    fn from(value: Arc<T>) -> Self {
        Self { load: Arc::new(move || value.clone()), version: Arc::default() }
    }
}

impl<T> Clone for ConfigHandle<T> {
    fn clone(&self) -> Self {
        Self { load: self.load.clone(), version: self.version.clone() }
    }
}

impl<T> fmt::Debug for ConfigHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConfigHandle").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    use super::*;

    #[test]
    fn what_was_loaded_stays_and_the_next_load_sees_the_replacement() {
        let cell = ConfigCell::new((1, "a"));
        let handle = cell.handle();
        let old = handle.load();
        cell.replace((2, "b"));
        assert_eq!((*old, *handle.load(), *cell.load()), ((1, "a"), (2, "b"), (2, "b")));
    }

    #[test]
    fn a_projection_is_made_once_for_each_value() {
        static MADE: AtomicUsize = AtomicUsize::new(0);
        let cell = ConfigCell::new(1);
        let tenfold = cell.handle().map(|n| {
            MADE.fetch_add(1, Relaxed);
            n * 10
        });
        let text = tenfold.map(ToString::to_string);
        assert!(Arc::ptr_eq(&tenfold.load(), &tenfold.clone().load()));
        assert_eq!((*tenfold.load(), text.load().as_str(), MADE.load(Relaxed)), (10, "10", 1));
        assert_eq!((text.version(), ConfigHandle::fixed(7).version()), (0, 0));
        cell.replace(2);
        assert_eq!(text.version(), 1, "a projection is replaced with what it is of");
        assert_eq!((text.load().as_str(), *tenfold.load(), MADE.load(Relaxed)), ("20", 20, 2));
        assert_eq!(*ConfigHandle::fixed(7).load(), 7);
    }
}
