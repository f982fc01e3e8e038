//! `lapwing man`: manual pages in the format of man(7), made from the definition of the command line.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::{Args, Command};
use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};

/// The exit code for a file that cannot be written (`EX_CANTCREAT`).
const CREATE: i32 = 73;

/// Where the manual goes.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub struct ManArgs {
    /// Write a page for each command to this folder, which must exist, instead of printing the page of lapwing
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
}

/// Prints or writes the manual of `command`. Returns the exit code.
pub(crate) fn print(args: &ManArgs, command: Command) -> i32 {
    let root = with_names(command);
    let Some(folder) = &args.out else {
        // a closed pipe is not an error
        drop(io::stdout().lock().write_all(&page(&root).unwrap_or_default()));
        return 0;
    };
    match write(&root, folder) {
        Ok(()) => 0,
        Err(reason) => {
            eprintln!("lapwing man: {reason}");
            CREATE
        }
    }
}

/// The whole command line, whose parts know their full names.
fn with_names(command: Command) -> Command {
    let mut root = command.styles(clap::builder::Styles::plain());
    root.build();
    root
}

/// Writes the page of `command` and of those below it.
fn write(command: &Command, folder: &Path) -> Result<(), String> {
    let path = folder.join(Man::new(command.clone()).get_filename());
    let named = |error: io::Error| format!("{}: {error}", path.display());
    fs::write(&path, page(command).map_err(named)?).map_err(named)?;
    command.get_subcommands().try_for_each(|command| write(command, folder))
}

/// One page. The notes and examples below a command's help keep their lines, in a section of their own.
fn page(command: &Command) -> io::Result<Vec<u8>> {
    // a name has one line, the rest is the description
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    let first = about.lines().next().unwrap_or_default().trim_end_matches('.').to_owned();
    let (man, mut page) = (Man::new(command.clone().about(first).long_about(about)).manual("Lapwing"), Vec::new());
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if command.get_subcommands().next().is_some() {
        man.render_subcommands_section(&mut page)?;
    }
    if let Some(notes) = command.get_after_help() {
        let mut section = Roff::new();
        section.control("SH", ["NOTES"]).control("nf", []);
        for line in notes.to_string().lines() {
            section.text([roman(line)]);
        }
        section.control("fi", []);
        section.to_writer(&mut page)?;
    }
    if command.get_version().is_some() {
        man.render_version_section(&mut page)?;
    }
    Ok(page)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::app::cli::Cli;

    fn root() -> Command {
        with_names(Cli::command())
    }

    #[test]
    fn a_page_has_its_sections() {
        let page = String::from_utf8(page(&root()).unwrap()).unwrap();
        let sections: Vec<&str> = page.lines().filter_map(|line| line.strip_prefix(".SH ")).collect();
        let wanted = [
            "NAME",
            "SYNOPSIS",
            "DESCRIPTION",
            "OPTIONS",
            "ADDRESSES",
            "SPANS",
            "SHADOW",
            "BEHAVIOUR",
            "SUBCOMMANDS",
            "NOTES",
            "VERSION",
        ];
        assert_eq!(sections, wanted);
        for text in ["lapwing\\-stats(1)", "\\-\\-otlp\\-forward", "Lapwing is a proxy for a model server"] {
            assert!(page.contains(text), "{text}: {page}");
        }
    }

    #[test]
    fn every_command_has_a_page_and_a_folder_that_is_not_there_is_named() {
        let folder = tempfile::tempdir().unwrap();
        write(&root(), folder.path()).unwrap();
        let mut names: Vec<_> =
            fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        for name in ["lapwing.1", "lapwing-stats.1", "lapwing-shadow-report.1"] {
            assert!(names.iter().any(|own| own == name), "{name}: {names:?}");
        }
        let error = write(&root(), &folder.path().join("none")).unwrap_err();
        assert!(error.contains("none/lapwing.1: "), "{error}");
    }
}
