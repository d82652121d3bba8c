//! Where the tests run benches: the `alone` example as the program, a folder of their own for runs.

use std::path::PathBuf;
use std::process::{Command, Output};

use dunlin_bench::child::ChildProgram;

/// The `alone` example, which cargo builds beside this test.
pub fn alone() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let target = test.parent().and_then(|deps| deps.parent()).unwrap();
    target.join("examples").join("alone")
}

pub fn child_program() -> ChildProgram {
    ChildProgram::at(alone())
}

/// Runs `alone` to its end, its runs kept in `folder`.
pub fn run(folder: &std::path::Path, args: &[&str]) -> Output {
    Command::new(alone()).args(args).env("BENCH_RUNS", folder).env_remove("CI").output().unwrap()
}
