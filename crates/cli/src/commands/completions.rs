//! The command `dunlin completions`, which prints a completion script for a shell.

use std::io::Write;

use anyhow::Result;
use clap::CommandFactory;
use clap_complete::Shell;

/// Arguments of `dunlin completions`, which prints a completion script for a shell.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  mkdir -p ~/.local/share/bash-completion/completions
  dunlin completions bash > ~/.local/share/bash-completion/completions/dunlin
  dunlin completions zsh > \"${fpath[1]}/_dunlin\"
  dunlin completions fish > ~/.config/fish/completions/dunlin.fish
  source <(dunlin completions bash)              only in this shell

Open a new shell after installing a script.")]
pub struct Arguments {
    /// Shell to print the script for
    #[arg(value_enum)]
    shell: Shell,
}

pub fn run(arguments: &Arguments) -> Result<()> {
    let mut command = crate::arguments::Arguments::command();
    // The script is first written into memory, because the generator panics on a closed pipe.
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut command, "dunlin", &mut script);
    Ok(std::io::stdout().write_all(&script)?)
}
