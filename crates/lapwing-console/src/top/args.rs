//! The command line of `lapwing top`.

use clap::Args;
use clap::builder::PossibleValuesParser;

use crate::admin_client::AdminArgs;
use crate::stats::NameFilter;
use lapwing_metrics::Window;

/// What to show, and of which Lapwing.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub struct TopArgs {
    #[command(flatten)]
    pub(crate) admin: AdminArgs,
    /// The window of the figures
    #[arg(long, value_name = "WINDOW", default_value = Window::TenSeconds.name())]
    #[arg(value_parser = PossibleValuesParser::new(Window::ALL.map(Window::name)))]
    pub(crate) window: String,
    #[command(flatten)]
    pub(crate) names: NameFilter,
}

impl TopArgs {
    /// The path of the stream.
    pub(crate) fn path(&self) -> String {
        self.names.query("/stats/stream", &[("window", &self.window)])
    }
}
