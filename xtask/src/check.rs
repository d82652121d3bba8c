//! `check`: format, lints, tidiness, licences, and the unit tests of what changed. `fix` rewrites what a machine can put right.

use std::process::Command;

use anyhow::Result;

use crate::process::{self, cargo};
use crate::test::nextest::{self, Selection};
use crate::tools::{DENY, SHEAR};
use crate::{changed, tidy, workspace};

/// What to look at.
#[derive(clap::Args)]
pub struct Options {
    /// Revision since which changed crates are tested [default: the origin's main branch, or else HEAD]
    #[arg(long, value_name = "REVISION")]
    since: Option<String>,
}

/// Tidiness, format, dependencies, lints; unit tests of changed crates and of those that depend on them.
pub fn run(options: &Options) -> Result<()> {
    tidy::run()?;
    format()?;
    dependencies()?;
    lints()?;
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
    nextest::run(&Selection { profile: "default", filter: Some(filter), ..Selection::default() })
}

/// The source is formatted.
pub fn format() -> Result<()> {
    process::run(&mut cargo(&["fmt", "--all", "--check"]))
}

/// No compiler or clippy warning anywhere, tests and examples included.
pub fn lints() -> Result<()> {
    process::run(&mut cargo(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]))
}

/// Every dependency is used, and its licence and source are as deny.toml says.
pub fn dependencies() -> Result<()> {
    process::run(Command::new(SHEAR.path()?).current_dir(workspace::root()))?;
    let mut deny = Command::new(DENY.path()?);
    deny.args(["--log-level", "error", "check", "bans", "licenses", "sources"]);
    process::run(deny.current_dir(workspace::root()))
}

/// Lints first: what clippy rewrites may need formatting.
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
