//! `fuzz`: runs each fuzz target in `fuzz/` for some time.
//!
//! The directory `fuzz/` has the layout of cargo-fuzz, so the commands of cargo-fuzz work there too. The command `fuzz`
//! needs the nightly toolchain and a C++ compiler, but not cargo-fuzz.
//!
//! Inputs that cover new code are stored in `fuzz/corpus/TARGET` for the next run. Inputs that fail are stored in
//! `fuzz/artifacts/TARGET`. `cargo test` tests the code of the fuzz targets too, with the stable toolchain and random
//! inputs.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::{process, workspace};

const TARGETS: [&str; 8] = ["feed", "frame", "http", "journal", "nats", "recording", "topic", "wire"];
const TRIPLE: &str = "x86_64-unknown-linux-gnu";
const INPUT_BYTES_MAX: u32 = 4_096;
/// Compiler flags that make the code report two things to the fuzzer: the parts of the code that run, and the values
/// that the code compares.
const FLAGS: &str = "-Zsanitizer=address --cfg fuzzing -Ccodegen-units=1 -Cpasses=sancov-module \
    -Cllvm-args=-sanitizer-coverage-level=4 -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares";

/// The options of the command: the target to fuzz, and the duration.
#[derive(clap::Args)]
pub struct Options {
    /// Target to fuzz [default: all]
    #[arg(value_parser = TARGETS)]
    target: Option<String>,
    /// Duration for each target, in seconds
    #[arg(long, default_value_t = 60)]
    seconds: u32,
}

/// Builds the selected targets, and then runs one target after another. Stops at the first input that fails.
pub fn run(options: &Options) -> Result<()> {
    let fuzz = workspace::root().join("fuzz");
    let programs = workspace::target_directory()?.join("fuzz");
    build(&fuzz, &programs)?;
    for target in TARGETS.into_iter().filter(|target| options.target.as_deref().is_none_or(|t| t == *target))
    {
        run_target(target, &fuzz, &programs, options.seconds)?;
    }
    Ok(())
}

fn build(fuzz: &Path, programs: &Path) -> Result<()> {
    let installed = process::output(Command::new("rustup").args(["run", "nightly", "rustc", "--version"]));
    ensure!(
        installed.is_ok_and(|output| output.status.success()),
        "fuzzing needs a nightly toolchain: run `rustup toolchain install nightly`"
    );
    let mut command = Command::new("rustup");
    command.args(["run", "nightly", "cargo", "build", "--release", "--bins", "--target", TRIPLE]);
    command.current_dir(fuzz).env("CARGO_TARGET_DIR", programs).env("RUSTFLAGS", FLAGS);
    for inherited in ["CARGO", "RUSTC", "RUSTDOC", "RUSTUP_TOOLCHAIN"] {
        command.env_remove(inherited);
    }
    process::remove_package_variables(&mut command);
    process::run(&mut command)
}

fn run_target(target: &str, fuzz: &Path, programs: &Path, seconds: u32) -> Result<()> {
    let [corpus, artifacts] = ["corpus", "artifacts"].map(|folder| fuzz.join(folder).join(target));
    for folder in [&corpus, &artifacts] {
        std::fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    }
    let mut command = Command::new(programs.join(TRIPLE).join("release").join(target));
    command.arg(format!("-max_total_time={seconds}")).arg(format!("-max_len={INPUT_BYTES_MAX}"));
    command.arg("-print_final_stats=1").arg(format!("-artifact_prefix={}/", artifacts.display()));
    process::run(command.arg(corpus))
}
