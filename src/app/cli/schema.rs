//! `lapwing schema`: the JSON Schema of the configuration file, and tables of the settings for documents.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;

use clap::Args;

use crate::config::{Config, SettingTables, json_schema_of_file};

/// The exit code of a file that cannot be read (`EX_NOINPUT`).
const NO_INPUT: i32 = 66;

/// What is printed.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub struct SchemaArgs {
    /// Print tables of the settings instead; with PAGE, the page with its tables brought up to date
    #[arg(long, value_name = "PAGE", num_args = 0..=1)]
    markdown: Option<Option<PathBuf>>,
}

/// Prints it. `flags` are the settings that have a flag. Returns the exit code.
pub(crate) fn print(args: &SchemaArgs, flags: &BTreeSet<String>) -> i32 {
    let text = match &args.markdown {
        None => format!("{:#}\n", json_schema_of_file()),
        Some(None) => SettingTables::of::<Config>(flags).markdown(),
        Some(Some(page)) => {
            let read = fs::read_to_string(page).map_err(|error| error.to_string());
            match read.and_then(|text| SettingTables::of::<Config>(flags).fill(&text)) {
                Ok(filled) => filled,
                Err(reason) => {
                    eprintln!("lapwing schema: {}: {reason}", page.display());
                    return NO_INPUT;
                }
            }
        }
    };
    // a closed pipe is not an error
    drop(io::stdout().lock().write_all(text.as_bytes()));
    0
}
