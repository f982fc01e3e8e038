//! `lapwing completions`: what a shell sources to complete this command line, made from its definition.

use clap::{Command, ValueEnum};
use clap_complete::{Shell, generate};

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
    /// The text to source, for `command`.
    pub(crate) fn script(self, mut command: Command) -> Vec<u8> {
        let shell = match self {
            Self::Bash => Shell::Bash,
            Self::Zsh => Shell::Zsh,
            Self::Fish => Shell::Fish,
        };
        let mut script = Vec::new();
        generate(shell, &mut command, "lapwing", &mut script);
        script
    }
}
