//! `cases`: runs the programs in `tests/cases`. Each program tries to reproduce one fault that was reported, and ends
//! with code 0 if the fault is fixed.

use std::process::Command;

use anyhow::Result;

use crate::{clients, process, python, workspace};

/// The option of the command: which programs to run.
#[derive(clap::Args, Default)]
pub struct Options {
    /// Directories of tests/cases to run [default: all]
    names: Vec<String>,
}

/// Runs the selected programs one after another. A program that cannot be run counts as failed.
pub fn run(options: &Options) -> Result<()> {
    let dunlin = workspace::build_dunlin()?;
    let python = python::prepare()?;
    let mut path = vec![clients::grpcurl()?];
    path.extend(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()));
    let mut cases = Command::new(&python);
    cases.arg("tests/cases/run").args(&options.names).current_dir(workspace::root());
    cases.env("DUNLIN", dunlin.get_program()).env("PYTHON", &python).env("PATH", std::env::join_paths(path)?);
    process::run(&mut cases)
}

/// Runs all programs in `tests/cases`.
pub fn run_all() -> Result<()> {
    run(&Options::default())
}
