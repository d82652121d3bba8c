//! `cargo xtask nats-clients`: NATS client libraries as their users get them, against the NATS door.
//!
//! They are installed into `target/nats-clients`, versions pinned beside the programs in `tests/clients`; what is there is
//! kept. Where a registry cannot be reached this fails: a library that was not tried has not passed.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::process::{self, cargo};
use crate::workspace;

const NATS_PY: &str = "nats-py==2.16.0";

/// Installs the libraries and runs every case with each.
pub fn run() -> Result<()> {
    let clients = workspace::target_directory()?.join("nats-clients");
    let sources = workspace::root().join("tests/clients");
    std::fs::create_dir_all(&clients).with_context(|| format!("cannot make {}", clients.display()))?;
    nats_py(&clients).context("cannot install nats.py: it needs python3 with venv, and pypi.org")?;
    nats_js(&clients, &sources).context("cannot install nats.js: it needs node and npm, and its registry")?;
    nats_go(&clients, &sources).context("cannot build with nats.go: it needs go, and its module proxy")?;
    let mut tests =
        cargo(&["test", "-p", "dunlin-system-tests", "--test", "it", "--", "--ignored", "nats_clients"]);
    process::run(tests.env("DUNLIN_NATS_CLIENTS", &clients))
}

fn nats_py(clients: &Path) -> Result<()> {
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
