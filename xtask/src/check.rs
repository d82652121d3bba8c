//! `check`: format, lints, tidiness, licences, and the unit tests of what changed. `fix` rewrites what a machine can put right.

use anyhow::Result;

use crate::process::{self, cargo};
use crate::test::nextest::{self, Selection};
use crate::{changed, tidy};

/// What to look at.
#[derive(clap::Args)]
pub struct Options {
    /// Unit tests of crates that changed since this revision [default: where main of the origin is, else HEAD]
    #[arg(long, value_name = "REVISION")]
    since: Option<String>,
}

/// Tidiness, format, lints, dependencies; unit tests of changed crates and of those that depend on them.
pub fn run(options: &Options) -> Result<()> {
    tidy::run()?;
    format()?;
    lints()?;
    dependencies()?;
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

/// Licences, sources and bans as deny.toml says, where cargo-deny is installed.
fn dependencies() -> Result<()> {
    let installed = process::output(&mut cargo(&["deny", "--version"]))?.status.success();
    if !installed {
        println!("dependencies: NOT checked: `cargo install cargo-deny --locked` first");
        return Ok(());
    }
    process::run(&mut cargo(&["deny", "--log-level", "error", "check", "bans", "licenses", "sources"]))
}

/// Lints first: what clippy rewrites may need formatting.
pub fn fix() -> Result<()> {
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
