//! The arguments of `dunlin report`, a command that the program `dunlin-bench` runs.

use std::path::PathBuf;

/// Arguments of `dunlin report`, which writes a report page from benchmark runs.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  dunlin bench peers spot && dunlin report
  dunlin report --out report.html          one HTML file with plots
  dunlin report --runs elsewhere/bench-runs --out page.md

The page leaves out quick runs, debug builds and files that are not benchmark runs; warnings name them.")]
pub struct Arguments {
    /// Directory with the stored results of `dunlin bench`
    #[arg(long, value_name = "DIRECTORY", default_value = "bench-runs")]
    pub runs: PathBuf,
    /// Page to write: HTML with plots if the name ends in .html, otherwise Markdown
    #[arg(long, value_name = "FILE", default_value = "docs/benchmarks.md")]
    pub out: PathBuf,
}
