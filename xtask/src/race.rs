//! `race`: tests the lock-free code of `dunlin-topic`.
//!
//! 1. The models, which are small programs that use the crate's modules: loom runs them with every interleaving of
//!    threads, and with every stale value that a thread may read.
//! 2. With `--mutate`: each named memory ordering is weakened in turn, and the models run with the weakened ordering.
//!    Each of these runs must fail with a race. If a run does not fail, the ordering is not needed, or no model checks
//!    it.
//! 3. The tests of `dunlin-topic` under the address and thread sanitizers, with the nightly toolchain. Missing tools
//!    are reported, but are no failure. If no sanitizer is installed, the quick tests run under valgrind.
//!
//! Each part has its own target directory, because the compiler flags differ.

mod sanitizer;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::process::{self, cargo};
use crate::workspace;

const SYNC: &str = "crates/topic/src/sync.rs";
/// The text with which loom reports a race: two accesses to the same data that no synchronisation orders.
const RACE: &str = "Causality violation";

/// The option of the command: whether to check only that the models detect weaker memory orderings.
#[derive(clap::Args)]
pub struct Options {
    /// Only check that the models detect weaker memory orderings: weaken each in turn and expect a failure
    #[arg(long)]
    mutate: bool,
}

/// Runs the models, then the sanitizers. Stops at the first failure.
pub fn run(options: &Options) -> Result<()> {
    if options.mutate {
        return check_mutants();
    }
    check_models()?;
    sanitizer::run()
}

/// Runs the quick checks that belong to `cargo xtask test`.
pub fn quick() -> Result<()> {
    check_models()?;
    check_mutants()
}

fn check_models() -> Result<()> {
    let outcome = run_models(&build_models(None)?)?;
    ensure!(outcome.passed > 0, "loom ran no model");
    if !outcome.succeeded {
        bail!("a loom model fails:\n{}", outcome.output);
    }
    println!("loom: {} models passed", outcome.passed);
    Ok(())
}

fn check_mutants() -> Result<()> {
    let source = std::fs::read_to_string(workspace::root().join(SYNC))
        .with_context(|| format!("cannot read {SYNC}"))?;
    let labels = labels(&source);
    ensure!(!labels.is_empty(), "{SYNC} has no memory ordering");
    let mut survived = Vec::new();
    for label in labels {
        let outcome = run_models(&build_models(Some(label))?)?;
        if outcome.succeeded {
            survived.push(label);
        } else if !outcome.output.contains(RACE) {
            bail!(
                "with the memory ordering `{label}` weakened, the model fails, but not because of a race:\n{}",
                outcome.output
            );
        }
        println!("{label} weakened: {} models fail as expected, {} pass", outcome.failed, outcome.passed);
    }
    ensure!(
        survived.is_empty(),
        "no loom model fails when these orderings are weakened: {}",
        survived.join(", ")
    );
    Ok(())
}

/// Returns the names of all memory orderings in a source text: the arguments of the macro `ordering!`.
fn labels(source: &str) -> Vec<&str> {
    let constants = source.split("ordering! {").skip(1);
    constants.filter_map(|body| body.split_once('}')?.0.split('"').nth(1)).collect()
}

/// Builds the tests of `dunlin-topic` under loom. If `weakened` names a memory ordering, builds them with this ordering
/// made weaker. Returns the path of the test program.
fn build_models(weakened: Option<&str>) -> Result<PathBuf> {
    let mut command = cargo(&["rustc", "--quiet", "-p", "dunlin-topic", "--lib", "--profile", "test"]);
    command.args(["--message-format", "json-render-diagnostics"]);
    command.env("RUSTFLAGS", "--cfg loom").env("CARGO_TARGET_DIR", target_directory("loom")?);
    if let Some(label) = weakened {
        command.args(["--", "--cfg", &format!("mutate=\"{label}\"")]);
    }
    let messages = process::text(&mut command)?;
    let executable = messages.lines().find_map(|line| {
        let message: Value = serde_json::from_str(line).ok()?;
        message["executable"].as_str().map(PathBuf::from)
    });
    executable.context("cargo reported no test program")
}

struct Outcome {
    /// Whether all models ran and passed. The two counts do not show this, because the program may end early when a
    /// model fails.
    succeeded: bool,
    passed: usize,
    failed: usize,
    output: String,
}

fn run_models(program: &Path) -> Result<Outcome> {
    let mut command = Command::new(program);
    command.arg("::model::").env("RUST_BACKTRACE", "0").current_dir(workspace::root());
    let output = process::output(&mut command)?;
    let succeeded = output.status.success();
    let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    let output = text.concat();
    let count =
        |ending| output.lines().filter(|line| line.starts_with("test ") && line.ends_with(ending)).count();
    Ok(Outcome { succeeded, passed: count("... ok"), failed: count("... FAILED"), output })
}

fn target_directory(part: &str) -> Result<PathBuf> {
    Ok(workspace::target_directory()?.join("race").join(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn race_check_finds_labels_of_all_memory_orderings() {
        let source =
            "ordering! {\n/// Doc \u{2026}.\nA = Release, \"one\"\n}\nordering! {\nB = Acquire, \"two\"\n}";
        assert_eq!(labels(source), ["one", "two"]);
        assert!(labels("macro_rules! ordering { ($x:ident) => {} }").is_empty());
    }
}
