//! `lapwing stats`: prints what a running Lapwing's `/stats` says, as a table or as JSON, and ends.

mod answer;
mod line;
mod table;

use std::io::{self, Write};

use bytes::Bytes;
use clap::Args;
use clap::builder::PossibleValuesParser;
use form_urlencoded::Serializer;

pub use self::answer::Figures;
pub use self::answer::Series;
pub use self::answer::Stats;
#[cfg(feature = "top")]
pub(crate) use self::answer::WaitingRequests;
pub use self::line::figures_line;
pub use self::line::{errors, stages_by_share};
use super::admin_client::{AdminArgs, UNAVAILABLE, block_on};
use lapwing_metrics::Window;

/// Which figures to print, and where they are asked for.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub struct StatsArgs {
    #[command(flatten)]
    admin: AdminArgs,
    /// The window of the figures
    #[arg(long, value_name = "WINDOW", default_value = Window::default().name())]
    #[arg(value_parser = PossibleValuesParser::new(Window::ALL.map(Window::name)))]
    window: String,
    #[command(flatten)]
    names: NameFilter,
    /// Print the answer of /stats as it is, with every figure, in nanoseconds
    #[arg(long)]
    json: bool,
}

/// Which traffic a command shows.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NameFilter {
    /// Only this route, as the table names it
    #[arg(long, value_name = "ROUTE")]
    route: Option<String>,
    /// Only this model; '' is traffic without a model
    #[arg(long, value_name = "MODEL")]
    model: Option<String>,
}

impl NameFilter {
    /// Of one series.
    #[cfg(feature = "top")]
    pub(crate) fn of(series: &Series) -> Self {
        Self { route: series.route.clone(), model: Some(series.model.clone().unwrap_or_default()) }
    }

    /// `path` with these names and `others` in its query.
    pub(crate) fn query(&self, path: &str, others: &[(&str, &str)]) -> String {
        let names = [("route", &self.route), ("model", &self.model)];
        let names = names.into_iter().filter_map(|(field, name)| Some((field, name.as_deref()?)));
        let query = Serializer::new(String::new()).extend_pairs(others.iter().copied().chain(names)).finish();
        format!("{path}?{query}")
    }
}

/// Reads an answer of `/stats`.
///
/// # Errors
///
/// If it is none.
pub(crate) fn read(answer: &[u8]) -> Result<Stats, String> {
    serde_json::from_slice(answer).map_err(|error| format!("the answer is not that of /stats: {error}"))
}

/// Runs the command. Returns the exit code.
pub fn run(args: &StatsArgs) -> u8 {
    match block_on(printed(args)) {
        Ok(text) => {
            // a closed pipe is not an error
            drop(io::stdout().lock().write_all(&text));
            0
        }
        Err(reason) => {
            eprintln!("lapwing stats: {reason}");
            UNAVAILABLE
        }
    }
}

async fn printed(args: &StatsArgs) -> Result<Bytes, String> {
    let path = args.names.query("/stats", &[("window", &args.window)]);
    let answer = args.admin.client().get(&path, "application/json").await?;
    let stats = read(&answer).map_err(|reason| format!("{}: {reason}", args.admin.address()))?;
    if args.json {
        return Ok([&answer[..], b"\n"].concat().into());
    }
    Ok(table::table(&stats).into_bytes().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_encoded() {
        let names = NameFilter { route: Some("POST /v2/é&model=x".to_owned()), model: Some(String::new()) };
        assert_eq!(names.query("/stats", &[("window", "1m")]), "/stats?window=1m&route=POST+%2Fv2%2F%C3%A9%26model%3Dx&model=");
        assert_eq!(NameFilter::default().query("/stats", &[("window", "all")]), "/stats?window=all");
    }

    #[test]
    fn another_servers_answer_is_named() {
        assert!(read(b"<html>").unwrap_err().starts_with("the answer is not that of /stats: "));
        assert!(read(b"{\"series\": 1}").is_err());
    }
}
