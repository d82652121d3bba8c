//! `cargo xtask nats-clients`: NATS client libraries as their users get them, against the NATS door.
//!
//! They are installed into `target/nats-clients`, versions pinned beside the programs in `tests/clients`; what is there is
//! kept. Where a registry cannot be reached the command fails: a library that was not tried has not passed. As a step of
//! `cargo xtask test` it passes that library over and says so, so that an outage elsewhere does not hide what can be tried.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::process::{self, cargo};
use crate::workspace;

const NATS_PY: &str = "nats-py==2.16.0";

type Install = fn(&Path, &Path) -> Result<()>;

/// Each library, how it is installed, and what that needs.
const LIBRARIES: &[(&str, Install, &str)] = &[
    ("nats_py", nats_py, "python3 with venv, and pypi.org"),
    ("nats_js", nats_js, "node and npm, and its registry"),
    ("nats_go", nats_go, "go, and its module proxy"),
];

/// Installs the libraries, runs every case with each, and the README's programs that use them.
pub fn run() -> Result<()> {
    let passed_over = try_all()?;
    ensure!(passed_over.is_empty(), "not all libraries could be had: {}", passed_over.join(", "));
    Ok(())
}

/// What `cargo xtask test` runs.
pub fn all_there_are() -> Result<()> {
    try_all().map(drop)
}

/// Runs every case with each library that can be had; the names of the others.
fn try_all() -> Result<Vec<&'static str>> {
    let clients = workspace::target_directory()?.join("nats-clients");
    let sources = workspace::root().join("tests/clients");
    std::fs::create_dir_all(&clients).with_context(|| format!("cannot make {}", clients.display()))?;
    let mut passed_over = Vec::new();
    for &(name, install, needs) in LIBRARIES {
        if let Err(error) = install(&clients, &sources) {
            eprintln!("{name} is passed over, it needs {needs}: {error:#}");
            passed_over.push(name);
        }
    }
    let mut tests = cargo(&[
        "test",
        "-p",
        "dunlin-system-tests",
        "--test",
        "it",
        "--",
        "--ignored",
        "nats_clients",
        "readme",
    ]);
    for name in &passed_over {
        tests.args(["--skip", name]);
    }
    process::run(tests.env("DUNLIN_NATS_CLIENTS", &clients))?;
    println!(
        "{} NATS libraries passed; {} passed over",
        LIBRARIES.len() - passed_over.len(),
        passed_over.len()
    );
    Ok(passed_over)
}

fn nats_py(clients: &Path, _sources: &Path) -> Result<()> {
    let python = clients.join("py/bin/python3");
    if !python.exists() {
        process::run(Command::new("python3").args(["-m", "venv"]).arg(clients.join("py")))?;
    }
    process::run(Command::new(python).args(["-m", "pip", "install", "--quiet", NATS_PY]))
}

fn nats_js(clients: &Path, sources: &Path) -> Result<()> {
    let js = clients.join("js");
    std::fs::create_dir_all(&js)?;
    for file in ["package.json", "client.mjs"] {
        std::fs::copy(sources.join("nats_js").join(file), js.join(file))?;
    }
    process::run(
        Command::new("npm").args(["install", "--silent", "--no-audit", "--no-fund"]).current_dir(&js),
    )
}

fn nats_go(clients: &Path, sources: &Path) -> Result<()> {
    let program = clients.join("go/client");
    let mut build = Command::new("go");
    build.args(["build", "-o"]).arg(program).arg(".").current_dir(sources.join("nats_go"));
    process::run(&mut build)
}
