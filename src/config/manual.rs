//! What is made of the options beside the help: man pages, and completions for shells.

use std::io::{self, Write};
use std::path::PathBuf;

use clap::{Arg, ArgMatches};
use clap_complete::Shell;

use super::flags;

/// What is to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Manual {
    /// The man pages, one for each subcommand, into this directory.
    Pages(PathBuf),
    /// The completions for a shell, to stdout.
    Completions(Shell),
}

/// The subcommands that ask for it.
pub(super) fn commands() -> [clap::Command; 2] {
    let pages = clap::Command::new("man")
        .about("Write the man pages into a directory")
        .arg(Arg::new("DIR").value_parser(clap::value_parser!(PathBuf)).required(true));
    let completions = clap::Command::new("completions")
        .about("Print what completes the options in a shell")
        .arg(Arg::new("SHELL").value_parser(clap::value_parser!(Shell)).required(true))
        .after_help("For bash: gapless completions bash >/etc/bash_completion.d/gapless");
    [pages, completions]
}

impl Manual {
    /// What subcommand `name` asks for; none where it is another one.
    pub(super) fn read(name: &str, mut words: ArgMatches) -> Option<Self> {
        match name {
            "man" => words.remove_one("DIR").map(Self::Pages),
            "completions" => words.remove_one("SHELL").map(Self::Completions),
            _ => None,
        }
    }

    /// Makes it; completions go to `out`.
    ///
    /// # Errors
    /// Those of writing, with the directory that they are about.
    pub fn write(&self, mut out: impl Write) -> io::Result<()> {
        let program = flags::program().disable_help_subcommand(true);
        match self {
            Self::Pages(dir) => clap_mangen::generate_to(program, dir).map_err(|error| {
                io::Error::new(error.kind(), format!("{}: {error}", dir.display()))
            }),
            Self::Completions(shell) => {
                let (mut program, mut text) = (program, Vec::new());
                clap_complete::generate(*shell, &mut program, "gapless", &mut text);
                out.write_all(&text)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn completions_know_every_option() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let mut text = Vec::new();
            Manual::Completions(shell).write(&mut text).expect("a vector takes all");
            let text = String::from_utf8(text).expect("completions are text");
            assert!(text.contains("idle-timeout") && text.contains("new-epoch"), "{shell}");
        }
    }
}
