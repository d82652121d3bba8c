//! Runs benchmarks for the tests, with the program `alone`. Each test has a folder of its own for stored runs.

use std::path::PathBuf;
use std::process::{Command, Output};

use dunlin_bench::child::ChildProgram;
use dunlin_chaos::process::bind_to_this_thread;

/// Returns the path of the program `alone`.
pub fn alone() -> PathBuf {
    PathBuf::from(env!("CARGO_BIN_EXE_bench-alone"))
}

pub fn child_program() -> ChildProgram {
    ChildProgram::at(alone())
}

/// Runs the program `alone`, and waits for its end. The program stores its runs in `folder`.
pub fn run(folder: &std::path::Path, args: &[&str]) -> Output {
    let mut command = Command::new(alone());
    bind_to_this_thread(&mut command).args(args).env("BENCH_RUNS", folder).env_remove("CI").output().unwrap()
}
