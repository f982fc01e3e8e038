//! `lapwing completions`: what a shell sources to complete this command line, made from its definition.

use std::io::{self, Write};

use clap::{CommandFactory, ValueEnum};
use clap_complete::{Shell, generate};

use super::Cli;

/// A shell whose completions are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CompletionShell {
    /// GNU bash, from 4.4 on.
    Bash,
    /// Z shell.
    Zsh,
    /// fish.
    Fish,
}

impl CompletionShell {
    /// The text to source.
    fn script(self) -> Vec<u8> {
        let shell = match self {
            Self::Bash => Shell::Bash,
            Self::Zsh => Shell::Zsh,
            Self::Fish => Shell::Fish,
        };
        let mut script = Vec::new();
        generate(shell, &mut Cli::command(), "lapwing", &mut script);
        script
    }
}

/// Prints the completions. Returns the exit code.
pub(crate) fn print_completions(shell: CompletionShell) -> i32 {
    // a closed pipe is not an error
    drop(io::stdout().lock().write_all(&shell.script()));
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shell_completes_every_command() {
        for shell in CompletionShell::value_variants() {
            let script = String::from_utf8(shell.script()).unwrap();
            for command in Cli::command().get_subcommands() {
                assert!(script.contains(command.get_name()), "{shell:?}: {}", command.get_name());
            }
            for flag in ["otlp-forward", "token-file", "window"] {
                assert!(script.contains(flag), "{shell:?}: --{flag}");
            }
        }
    }
}
