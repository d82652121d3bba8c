//! `report`: kept benchmark runs as a page.

use std::io::Write;
use std::path::PathBuf;

use anyhow::Result;

use crate::console::Console;
use crate::outcome::Refusal;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  dunlin bench peers spot && dunlin report
  dunlin report --out report.html          one file, with plots
  dunlin report --runs elsewhere/bench-runs --out page.md

Quick runs, debug builds and files that are no kept run are left out, and named.")]
pub struct Arguments {
    /// Directory of kept runs
    #[arg(long, value_name = "DIRECTORY", default_value = "bench-runs")]
    runs: PathBuf,
    /// The page to write: HTML with plots where the name ends in .html, else Markdown
    #[arg(long, value_name = "FILE", default_value = "docs/benchmarks.md")]
    out: PathBuf,
}

pub fn run(arguments: &Arguments, console: &Console) -> Result<()> {
    let runs = arguments.runs.display();
    if !arguments.runs.is_dir() {
        let said = format!(
            "there is no directory {runs}: `dunlin bench` keeps runs there, and --runs names another"
        );
        return Err(Refusal(said).into());
    }
    let made = dunlin_bench::report::write(&arguments.runs, &arguments.out)?;
    for refused in made.refused {
        writeln!(std::io::stderr(), "{} {refused}", console.errors.warning("left out:"))?;
    }
    writeln!(std::io::stdout(), "{}", arguments.out.display())?;
    Ok(())
}
