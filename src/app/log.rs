//! Where log lines go: standard error, as text or JSON.

use std::io::IsTerminal;

use tracing_subscriber::{EnvFilter, reload};

use crate::config::LogFormat;

/// The filter in force.
pub(crate) struct LogFilter(Box<dyn Fn(EnvFilter) -> Result<(), reload::Error>>);

impl LogFilter {
    /// Puts another filter in force. It was checked when the configuration was loaded.
    pub(crate) fn set(&self, filter: &str) {
        // the other subscriber that was set before stays as it is
        drop((self.0)(parsed(filter)));
    }
}

/// Starts logging. The filter was checked when the configuration was loaded.
pub(crate) fn init(filter: &str, format: LogFormat) -> LogFilter {
    let builder = tracing_subscriber::fmt().with_env_filter(parsed(filter)).with_writer(std::io::stderr);
    // a subscriber that was set before stays
    match format {
        LogFormat::Json => {
            let builder = builder.json().with_filter_reloading();
            let handle = builder.reload_handle();
            drop(builder.try_init());
            LogFilter(Box::new(move |filter| handle.reload(filter)))
        }
        LogFormat::Text => {
            let builder = builder.with_ansi(std::io::stderr().is_terminal()).with_filter_reloading();
            let handle = builder.reload_handle();
            drop(builder.try_init());
            LogFilter(Box::new(move |filter| handle.reload(filter)))
        }
    }
}

fn parsed(filter: &str) -> EnvFilter {
    EnvFilter::try_new(filter).unwrap_or_else(|_| EnvFilter::new("info"))
}
