//! `/diagnosis`: which stage is to blame for a route's latency, as JSON or in words.
//!
//! A diagnosis of all series takes tens of milliseconds. It is made at most once a second for each window; requests within that
//! second get the same one.

use std::fmt;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};

use super::inferred::{Inference, LatestInferred};
use lapwing_diagnosis::{BoundTotals, ConnectionStates, Diagnosis, DiagnosisWindow, Diagnostician, InferredFigures, LeverAdvice};
use lapwing_ledger::{SeriesKey, Stamp};
use lapwing_metrics::views::Names;

/// For how long a diagnosis is handed out again.
const KEPT_NS: u64 = 1_000_000_000;
/// For how long the state of connections is.
const CONNECTIONS_KEPT_NS: u64 = 60_000_000_000;

/// Makes a diagnosis of a window.
type Diagnose = Arc<dyn Fn(DiagnosisWindow) -> Diagnosis + Send + Sync>;
/// Reads the time above the budgets since the start.
type Totals = Arc<dyn Fn() -> Vec<BoundTotals> + Send + Sync>;
/// Asks the kernel for the state of connections.
type LookAtConnections = Arc<dyn Fn() -> ConnectionStates + Send + Sync>;
/// The latest diagnosis of each window, and when it was made.
type Latest = [Option<(Stamp, Arc<Diagnosis>)>; DiagnosisWindow::ALL.len()];

/// What `/diagnosis` reads.
#[derive(Clone)]
pub struct DiagnosisSurface {
    /// Makes a diagnosis.
    pub diagnose: Diagnose,
    /// Time above the budgets since the start, for `/metrics`.
    pub totals: Totals,
    /// A diagnosis in words; no name in it moves the cursor of a terminal.
    pub words: fn(&Diagnosis) -> String,
    /// The window of a query that names none.
    pub window: DiagnosisWindow,
    latest: Arc<Mutex<Latest>>,
    connections: Option<LookAtConnections>,
    latest_connections: Arc<Mutex<Option<(Stamp, ConnectionStates)>>>,
    inference: Option<Inference>,
    latest_inferred: Arc<Mutex<LatestInferred>>,
}

impl fmt::Debug for DiagnosisSurface {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DiagnosisSurface").field("window", &self.window).finish_non_exhaustive()
    }
}

impl DiagnosisSurface {
    /// A surface with a diagnosis, its totals and its words from there.
    #[must_use]
    pub fn new(diagnose: Diagnose, totals: Totals, words: fn(&Diagnosis) -> String, window: DiagnosisWindow) -> Self {
        let (latest, latest_connections, latest_inferred) = (Arc::default(), Arc::default(), Arc::default());
        Self { diagnose, totals, words, window, latest, connections: None, latest_connections, inference: None, latest_inferred }
    }

    /// The same, which shows the state of connections too.
    #[must_use]
    pub fn with_connections(self, look: LookAtConnections) -> Self {
        Self { connections: Some(look), ..self }
    }

    /// The same, which shows on other surfaces too what is inferred.
    #[must_use]
    pub fn with_inference(self, inference: Inference) -> Self {
        Self { inference: Some(inference), ..self }
    }

    /// What is inferred of series whose upstream reports nothing or that have a budget. Each is inferred anew if it is ten seconds old, but only a few for each
    /// call, the oldest first: a scrape does not wait for all of them.
    pub(crate) fn inferred(&self, now: Stamp) -> Vec<(SeriesKey, InferredFigures)> {
        let Some(inference) = &self.inference else { return Vec::new() };
        self.latest_inferred.lock().refreshed(inference, now)
    }

    /// The state of connections, at most a minute old. A caller waits while another one reads it.
    fn connections(&self, now: Stamp) -> Option<ConnectionStates> {
        let look = self.connections.as_ref()?;
        let mut latest = self.latest_connections.lock();
        let (_, states) = match *latest {
            Some((at, states)) if now.since(at) < CONNECTIONS_KEPT_NS => (at, states),
            _ => *latest.insert((now, look())),
        };
        Some(states)
    }

    /// What `diagnostician` says. It is locked while it diagnoses; the aggregator, if it waits, is next.
    #[must_use]
    pub fn of(diagnostician: &Arc<Mutex<Diagnostician>>, words: fn(&Diagnosis) -> String, window: DiagnosisWindow) -> Self {
        let [diagnosing, totalling, listing, inferring] = [(); 4].map(|()| diagnostician.clone());
        let diagnose = move |window: DiagnosisWindow| {
            let guard = diagnosing.lock();
            let pending = guard.examine(window.length_ns(), Stamp::now());
            MutexGuard::unlock_fair(guard);
            pending.infer()
        };
        let surface = Self::new(Arc::new(diagnose), Arc::new(move || totalling.lock().totals()), words, window);
        surface.with_inference(Inference {
            inferable: Arc::new(move || listing.lock().inferable()),
            infer: Arc::new(move |key| {
                let windows = inferring.lock().windows_of(key);
                windows.map(|(windows, budget)| windows.infer_figures(&budget))
            }),
        })
    }

    /// The diagnosis of a window, at most a second old.
    pub(crate) fn latest(&self, window: DiagnosisWindow, now: Stamp) -> Arc<Diagnosis> {
        let place = window as usize;
        let kept = self.latest.lock()[place].clone();
        if let Some((made, diagnosis)) = kept
            && now.since(made) < KEPT_NS
        {
            return diagnosis;
        }
        let diagnosis = Arc::new(Diagnosis { connections: self.connections(now), ..(self.diagnose)(window) });
        self.latest.lock()[place] = Some((now, diagnosis.clone()));
        diagnosis
    }
}

/// The routes and models of `diagnosis` that are asked for, with what is advised now.
pub(crate) fn chosen(diagnosis: &Diagnosis, names: &Names, levers: Vec<LeverAdvice>) -> Diagnosis {
    let routes = diagnosis.routes.iter().filter(|one| names.take(&one.route, &one.model));
    Diagnosis {
        window_seconds: diagnosis.window_seconds,
        missing: diagnosis.missing.clone(),
        levers,
        routes: routes.cloned().collect(),
        host: diagnosis.host,
        connections: diagnosis.connections,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    use super::*;

    #[test]
    fn a_window_is_diagnosed_once_a_second() {
        let made = Arc::new(AtomicUsize::new(0));
        let counting = made.clone();
        let diagnose = move |window: DiagnosisWindow| {
            counting.fetch_add(1, Relaxed);
            Diagnosis { window_seconds: if window == DiagnosisWindow::OneMinute { 60.0 } else { 10.0 }, ..Diagnosis::default() }
        };
        let surface =
            DiagnosisSurface::new(Arc::new(diagnose), Arc::new(Vec::new), |_| String::new(), DiagnosisWindow::default());
        let start = Stamp::now();
        let seconds_at = |window, ms: u64| surface.latest(window, start.plus(ms * 1_000_000)).window_seconds;
        assert!((seconds_at(DiagnosisWindow::OneMinute, 0) - 60.0).abs() < 1e-9);
        assert!((seconds_at(DiagnosisWindow::TenSeconds, 10) - 10.0).abs() < 1e-9);
        for ms in [1, 500, 999] {
            seconds_at(DiagnosisWindow::OneMinute, ms);
        }
        assert_eq!(made.load(Relaxed), 2, "one of each window");
        seconds_at(DiagnosisWindow::OneMinute, 1000);
        assert_eq!(made.load(Relaxed), 3);
    }

    #[test]
    fn the_diagnosticians_own_window_is_asked_for() {
        let labels = Arc::new(lapwing_metrics::Labels::new(4, 4, 4));
        let diagnostician = Arc::new(Mutex::new(Diagnostician::new(std::collections::BTreeMap::new(), labels)));
        let surface = DiagnosisSurface::of(&diagnostician, |_| String::new(), DiagnosisWindow::default());
        for window in DiagnosisWindow::ALL {
            let diagnosis = surface.latest(window, Stamp::now());
            assert_eq!(diagnosis.routes, []);
        }
        assert_eq!((surface.totals)(), []);
        assert_eq!(surface.inferred(Stamp::now()), []);
        assert!(diagnostician.try_lock().is_some(), "nothing is held");
    }
}
