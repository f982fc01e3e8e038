//! What the loader asks of a whole configuration.

use lapwing_settings::{Checks, Section};

/// The settings that a command reads: all, or only those that it uses.
pub trait Root: Section {
    /// Fills in settings that follow from others, and returns the required keys that are missing, each with what to do.
    /// `is_given` tells whether a source gave a value for a key.
    fn complete(&mut self, is_given: &dyn Fn(&str) -> bool) -> Vec<(&'static str, &'static str)>;

    /// Reports settings of different sections that contradict each other. Of two, the one that was given is at fault.
    fn check_together(&self, _checks: &mut Checks, _is_given: &dyn Fn(&str) -> bool) {}

    /// Warnings to log: settings that are allowed but probably a mistake.
    fn warnings(&self) -> Vec<String> {
        Vec::new()
    }

    /// Whether a section has any effect, so that a variable which is not meant for Lapwing is worth a warning.
    fn uses(&self, _section: &str) -> bool {
        true
    }
}
