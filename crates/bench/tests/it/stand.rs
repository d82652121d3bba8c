//! Runs benches for tests, with `bench-alone` as the program and a separate folder for runs.

use std::path::PathBuf;
use std::process::{Command, Output};

use dunlin_bench::child::ChildProgram;
use dunlin_chaos::process::bind_to_this_thread;

/// The bench without the `dunlin` binary.
pub fn alone() -> PathBuf {
    PathBuf::from(env!("CARGO_BIN_EXE_bench-alone"))
}

pub fn child_program() -> ChildProgram {
    ChildProgram::at(alone())
}

/// Runs `alone` to its end; runs are stored in `folder`.
pub fn run(folder: &std::path::Path, args: &[&str]) -> Output {
    let mut command = Command::new(alone());
    bind_to_this_thread(&mut command).args(args).env("BENCH_RUNS", folder).env_remove("CI").output().unwrap()
}
