//! `report`: its arguments; `dunlin-bench` runs it.

use std::path::PathBuf;

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
    pub runs: PathBuf,
    /// The page to write: HTML with plots where the name ends in .html, else Markdown
    #[arg(long, value_name = "FILE", default_value = "docs/benchmarks.md")]
    pub out: PathBuf,
}
