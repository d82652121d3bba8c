//! `cases`: the programs of `tests/cases`, each of which reproduces one fault that outsiders found. Exit code 0 of each: the fault is gone.

use std::process::Command;

use anyhow::Result;

use crate::{clients, process, python, workspace};

/// What to run.
#[derive(clap::Args, Default)]
pub struct Options {
    /// Directories of tests/cases to run [default: all]
    names: Vec<String>,
}

/// Runs them one after another; one that could not be tried has failed.
pub fn run(options: &Options) -> Result<()> {
    let dunlin = workspace::dunlin()?;
    let python = python::ready()?;
    let mut path = vec![clients::grpcurl()?];
    path.extend(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()));
    let mut cases = Command::new(&python);
    cases.arg("tests/cases/run").args(&options.names).current_dir(workspace::root());
    cases.env("DUNLIN", dunlin.get_program()).env("PYTHON", &python).env("PATH", std::env::join_paths(path)?);
    process::run(&mut cases)
}

/// All of them.
pub fn all() -> Result<()> {
    run(&Options::default())
}
