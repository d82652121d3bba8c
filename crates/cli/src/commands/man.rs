//! The command `dunlin man`, which prints the manual or writes one page for each command.

use std::io::Write;
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap_mangen::Man;

/// Arguments of `dunlin man`, which prints manual pages.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  dunlin man | man -l -                          read the main page
  dunlin man --dir ~/.local/share/man/man1       install a page for each command")]
pub struct Arguments {
    /// Directory to write a page for each command to [default: the main page on standard output]
    #[arg(long, value_name = "DIRECTORY")]
    dir: Option<PathBuf>,
}

pub fn run(arguments: &Arguments) -> Result<()> {
    let command = crate::help::command::<crate::arguments::Arguments>();
    match &arguments.dir {
        Some(dir) => {
            std::fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
            clap_mangen::generate_to(command, dir)
                .with_context(|| format!("cannot write manual pages into {}", dir.display()))
        }
        None => {
            let mut page = Vec::new();
            Man::new(command).render(&mut page)?;
            Ok(std::io::stdout().write_all(&page)?)
        }
    }
}
