//! Reads the configuration again: at `SIGHUP`, and when the file has another content.

use super::file_watch::FileWatch;
use super::identities::IdentityWatch;
use super::log::LogFilter;
use super::running::Running;
use super::service_manager;
use super::signals::Watched;
use crate::config::Sources;

/// A running Lapwing whose configuration follows its sources.
pub(crate) struct Reloading<'r> {
    pub(crate) running: &'r Running,
    pub(crate) sources: Sources,
    pub(crate) watch: FileWatch,
    pub(crate) identities: Vec<IdentityWatch>,
    pub(crate) filter: LogFilter,
}

impl Watched for Reloading<'_> {
    fn poll(&mut self) -> bool {
        let interval = self.running.config().config.config.watch.on().map(|period| period.get());
        if let Some(interval) = interval {
            if self.watch.has_changed(interval) {
                // the log has why not
                let _ = self.reload("the file has changed");
            }
            self.identities.iter_mut().for_each(|identity| identity.look(interval));
        }
        self.running.has_failed()
    }

    fn hang_up(&mut self) {
        service_manager::reloading();
        let failure = self.reload("SIGHUP").err();
        self.identities.iter_mut().for_each(|identity| identity.reload("SIGHUP"));
        let failure = failure.map(|failure| format!("; {failure}")).unwrap_or_default();
        service_manager::ready(&format!("{}{failure}", self.running.summary()));
    }
}

impl Reloading<'_> {
    /// Loads the configuration again; without success, says so in a line.
    fn reload(&mut self, why: &str) -> Result<(), String> {
        self.watch.begin();
        match self.running.reload(&self.sources) {
            Ok(reloaded) => {
                let changed = if reloaded.changed.is_empty() { "nothing".to_owned() } else { reloaded.changed.join(", ") };
                tracing::info!(changed, "{why}: the configuration is loaded again");
                for path in &reloaded.needs_restart {
                    tracing::warn!("{path}: is fixed at the start; the new value needs a restart");
                }
                reloaded.loaded.warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
                self.filter.set(&reloaded.loaded.config.log);
                Ok(())
            }
            Err(faults) => {
                let failure = format!("{} in the configuration, so nothing of it is in force", super::check::count(&faults));
                tracing::error!("{why}: {failure}");
                faults.iter().for_each(|fault| tracing::error!("{fault}"));
                Err(failure)
            }
        }
    }
}
