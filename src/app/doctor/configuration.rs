//! Whether the configuration is sound: every fault and every warning is a line.

use std::sync::Arc;

use super::check::DoctorReport;
use crate::app::identities::Identities;
use crate::config::{Loaded, Sources, load};
use lapwing_console::admin_token;

const NAME: &str = "configuration";

/// The configuration, if it has no fault.
pub(crate) fn check(sources: &Sources, report: &mut DoctorReport) -> Option<Loaded> {
    let from = sources.file.as_ref().map_or_else(|| "no file".to_owned(), |file| file.display().to_string());
    let loaded = match load(sources) {
        Ok(loaded) => loaded,
        Err(faults) => {
            for fault in faults {
                report.wrong(
                    NAME,
                    fault,
                    "correct it (docs/CONFIGURATION.md has every setting); what depends on it is not looked at",
                );
            }
            return None;
        }
    };
    let files = Identities::load(&loaded.config, Arc::default()).err().unwrap_or_default();
    for fault in &files {
        report.wrong(NAME, fault, "put a readable PEM file there, or name another");
    }
    let token = admin_token::of(&loaded.config.admin_token, &loaded.config.admin_token_file).err();
    if let Some(reason) = &token {
        report.wrong(NAME, reason, "put a token of at least 16 characters there, readable for the user that runs Lapwing");
    }
    for warning in &loaded.warnings {
        report.note(NAME, warning, "change it, unless it is meant so");
    }
    if files.is_empty() && token.is_none() && loaded.warnings.is_empty() {
        report.ok(NAME, format!("{from}: no fault"));
    }
    Some(loaded)
}
