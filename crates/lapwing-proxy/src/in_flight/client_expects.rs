//! What a client waits for in the middle of its request, what it is told, and what it asks of the response.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering::Relaxed};

use super::load_report::LoadReportFormat;

/// What a client waits for, and is told, in the middle of its request; and what it asks of the response.
#[derive(Debug, Default)]
pub(crate) struct ClientExpects {
    /// It sends its body when it is asked for it (`Expect: 100-continue`), which it was not yet.
    awaits_continue: AtomicBool,
    /// The answer says that its connection ends after it.
    closes: AtomicBool,
    /// The load report that it asks for and was not given yet; zero if there is none.
    load_report: AtomicU8,
}

impl ClientExpects {
    /// It waits until its body is asked for (`Expect: 100-continue`).
    pub(crate) fn await_continue(&self) {
        self.awaits_continue.store(true, Relaxed);
    }

    /// Returns whether it waits until its body is asked for.
    pub(crate) fn awaits_continue(&self) -> bool {
        self.awaits_continue.load(Relaxed)
    }

    /// Its body is asked for: hyper tells it.
    pub(crate) fn on_body_asked(&self) {
        if self.awaits_continue() {
            self.awaits_continue.store(false, Relaxed);
        }
    }

    /// It asks for a load report.
    pub(crate) fn ask_load_report(&self, format: LoadReportFormat) {
        self.load_report.store(format.code(), Relaxed);
    }

    /// The load report that it asks for, if any, and was not given yet. It is given now.
    pub(crate) fn take_load_report(&self) -> Option<LoadReportFormat> {
        // most ask for none, and nothing is written then
        let code = self.load_report.load(Relaxed);
        (code > 0).then(|| self.load_report.store(0, Relaxed)).and_then(|()| LoadReportFormat::of_code(code))
    }

    /// It is told that its connection ends.
    pub(crate) fn close(&self) {
        self.closes.store(true, Relaxed);
    }

    /// Returns whether it is told that its connection ends.
    pub(crate) fn is_closed(&self) -> bool {
        self.closes.load(Relaxed)
    }
}
