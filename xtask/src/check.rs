//! `check`: checks the format, lints, tidiness, dependencies and licences, and runs the unit tests of changed crates.
//! `fix`: makes automatic corrections.

use std::process::Command;

use anyhow::Result;

use crate::process::{self, cargo};
use crate::test::nextest::{self, TestSelection};
use crate::tools::{DENY, SHEAR, TYPOS};
use crate::{changed, tidy, workspace};

/// Options of the checks.
#[derive(clap::Args)]
pub struct Options {
    /// Test the crates that changed since this revision [default: the origin's main branch, or else HEAD]
    #[arg(long, value_name = "REVISION")]
    since: Option<String>,
}

/// Checks tidiness, spelling, format, dependencies, lints and the documentation. Then runs the unit tests of changed crates, and of the crates that
/// depend on them.
pub fn run(options: &Options) -> Result<()> {
    tidy::run()?;
    spelling()?;
    format()?;
    dependencies()?;
    lints()?;
    rustdoc()?;
    unit_tests(options.since.as_deref())
}

fn unit_tests(since: Option<&str>) -> Result<()> {
    let packages = changed::packages(since)?;
    if packages.is_empty() {
        println!("unit tests: no crate has changed");
        return Ok(());
    }
    let packages: Vec<_> = packages.iter().map(|package| format!("rdeps(={package})")).collect();
    let filter = format!("(kind(lib) | kind(bin)) & ({})", packages.join(" | "));
    nextest::run(&TestSelection { profile: "default", filter: Some(filter), ..TestSelection::default() })
}

/// Checks the spelling of all text in the repository. `.config/typos.toml` lists the exceptions.
pub fn spelling() -> Result<()> {
    let mut typos = Command::new(TYPOS.path()?);
    typos.args(["--config", ".config/typos.toml", "--format", "brief"]);
    process::run(typos.current_dir(workspace::root()))
}

pub fn format() -> Result<()> {
    process::run(&mut cargo(&["fmt", "--all", "--check"]))
}

/// Checks that the compiler and clippy have no warnings, including for tests and examples.
pub fn lints() -> Result<()> {
    process::run(&mut cargo(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]))
}

/// Checks that `cargo doc` has no warnings, such as a public item without documentation or a broken link.
pub fn rustdoc() -> Result<()> {
    let mut doc = cargo(&["doc", "--workspace", "--no-deps", "--quiet"]);
    process::run(doc.env("RUSTDOCFLAGS", "-D warnings"))
}

/// Checks that every dependency is used, and that deny.toml allows the licence and the source of each dependency.
pub fn dependencies() -> Result<()> {
    process::run(Command::new(SHEAR.path()?).current_dir(workspace::root()))?;
    let mut deny = Command::new(DENY.path()?);
    deny.args(["--log-level", "error", "check", "bans", "licenses", "sources"]);
    process::run(deny.current_dir(workspace::root()))
}

/// Makes all automatic corrections: writes generated files again, corrects lints, and formats the source. The format
/// comes last, because corrected lints may change it.
pub fn fix() -> Result<()> {
    let generated = ["test", "-p", "xtask", "--test", "generated"];
    process::run(cargo(&generated).env("DUNLIN_UPDATE_GENERATED", "1"))?;
    process::run(&mut cargo(&[
        "clippy",
        "--fix",
        "--allow-dirty",
        "--allow-staged",
        "--workspace",
        "--all-targets",
    ]))?;
    process::run(&mut cargo(&["fmt", "--all"]))
}
