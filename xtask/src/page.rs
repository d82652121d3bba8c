//! `cargo xtask page`: tests every page of the dashboard in a browser, with real nodes
//! (`web/dashboard/tests`).
//!
//! The command needs Node.js with npm, and Debian's Chromium. If Chromium is missing and the user is root, the command
//! installs it. Without Chromium or npm's registry, the command fails.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::{dashboard, data, process, python, workspace};

const CHROMIUM: &str = "/usr/bin/chromium";

/// The options of the command, such as the case to run.
#[derive(Debug, Default, clap::Args)]
pub struct Options {
    /// Case to run, a file in web/dashboard/tests/cases [default: all]
    #[arg(long, value_name = "CASE")]
    only: Option<String>,
    /// Directory to save a picture of every page in
    #[arg(long, value_name = "DIR")]
    pictures: Option<PathBuf>,
    /// Measure the page's records per second, the map's frames per second and memory, and the node's load, instead of
    /// testing
    #[arg(long, conflicts_with_all = ["only", "pictures"])]
    measure: bool,
    /// Directory to save the README's pictures of the demo in, instead of testing
    #[arg(long, value_name = "DIR", conflicts_with_all = ["only", "pictures", "measure"])]
    readme: Option<PathBuf>,
    /// Binary to test [default: a freshly built one]
    #[arg(long, value_name = "FILE")]
    dunlin: Option<PathBuf>,
}

pub fn run(options: &Options) -> Result<()> {
    let browser = chromium()?;
    install()?;
    let dunlin = match &options.dunlin {
        Some(file) => file.clone(),
        None if options.measure => PathBuf::from(workspace::build_release()?.get_program()),
        None => PathBuf::from(workspace::build_dunlin()?.get_program()),
    };
    let program = match options {
        Options { measure: true, .. } => "tests/measure.mjs",
        Options { readme: Some(_), .. } => "tests/readme.mjs",
        _ => "tests/run.mjs",
    };
    let mut tests = Command::new("node");
    tests.arg(program).arg("--dunlin").arg(dunlin).arg("--chromium").arg(browser).current_dir(folder());
    if let Some(case) = &options.only {
        tests.args(["--only", case]);
    }
    if let Some(directory) = &options.pictures {
        std::fs::create_dir_all(directory)
            .with_context(|| format!("cannot create {}", directory.display()))?;
        tests.arg("--pictures").arg(std::path::absolute(directory)?);
    }
    if let Some(directory) = &options.readme {
        data::run()?;
        tests
            .arg("--out")
            .arg(std::path::absolute(directory)?)
            .arg("--")
            .arg("--data")
            .arg(data::directory());
        tests.arg("--python").arg(python::prepare()?).arg("--work").arg(python::examples());
    }
    process::run(&mut tests)
}

/// Runs the one case that belongs to the CI steps.
pub fn run_one() -> Result<()> {
    run(&Options { only: Some("overview".to_owned()), ..Options::default() })
}

/// Runs every case, and checks that the committed dashboard was built from the present source.
pub fn run_all() -> Result<()> {
    dashboard::run(&dashboard::Options::default())?;
    run(&Options::default())
}

pub fn folder() -> PathBuf {
    workspace::root().join("web/dashboard")
}

/// Installs the packages that package-lock.json lists, unless they are already installed.
pub fn install() -> Result<()> {
    let (lock, installed) =
        (folder().join("package-lock.json"), folder().join("node_modules/.package-lock.json"));
    let changed = |path: &Path| std::fs::metadata(path).and_then(|file| file.modified());
    if changed(&installed).ok() >= changed(&lock).ok() {
        return Ok(());
    }
    process::run(
        Command::new("npm").args(["ci", "--silent", "--no-audit", "--no-fund"]).current_dir(folder()),
    )
}

fn chromium() -> Result<PathBuf> {
    let named = std::env::var_os("DUNLIN_CHROMIUM").map(PathBuf::from);
    let browser = named.unwrap_or_else(|| CHROMIUM.into());
    if browser.exists() {
        return Ok(browser);
    }
    // The installation works only for root on Debian. If it fails, the error names the missing program.
    for words in [&["update", "-qq"][..], &["install", "-y", "-qq", "--no-install-recommends", "chromium"]] {
        let mut apt = Command::new("apt-get");
        process::run(apt.args(words).env("DEBIAN_FRONTEND", "noninteractive"))
            .context("cannot install Chromium: install it yourself, or set DUNLIN_CHROMIUM to its path")?;
    }
    if !browser.exists() {
        bail!("apt-get installed chromium, but {} does not exist", browser.display());
    }
    Ok(browser)
}
