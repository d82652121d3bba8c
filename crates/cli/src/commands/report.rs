//! `report`: kept benchmark runs as a page.

use std::path::PathBuf;

#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Directory of kept runs
    #[arg(long, value_name = "DIRECTORY", default_value = "bench-runs")]
    runs: PathBuf,
    /// Write here instead of standard output
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}
