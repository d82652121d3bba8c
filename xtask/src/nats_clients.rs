//! `cargo xtask nats-clients`: tests the NATS listener with NATS client libraries, and runs nats.go's own tests with a
//! Dunlin node in place of nats-server.
//!
//! The libraries are installed into `target/nats-clients`, in the versions that `tests/clients` pins. If a library
//! cannot be installed, the command fails.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::process;
use crate::test::nextest::{self, TestSelection};
use crate::workspace;

const NATS_PY: &str = "nats-py==2.16.0";

type Install = fn(&Path, &Path) -> Result<()>;

/// The libraries. Each entry contains the name of the library, the function that installs the library, and the programs
/// that this function needs.
const LIBRARIES: &[(&str, Install, &str)] = &[
    ("nats_py", nats_py, "python3 with venv, and PyPI"),
    ("nats_js", nats_js, "node and npm, and its registry"),
    ("nats_go", nats_go, "go, and its module proxy"),
];

/// Tests every library with all cases, runs the README's programs that use NATS, and runs all of nats.go's own tests.
pub fn run() -> Result<()> {
    run_with(LIBRARIES, "test(nats_clients::) | test(readme::)")?;
    suite(&["-nodes", "1"])
}

/// The step of `cargo xtask test`: tests only the library nats-py, and runs some of nats.go's own tests.
pub fn run_one() -> Result<()> {
    run_with(&LIBRARIES[..1], "test(nats_py_)")?;
    suite(&["-nodes", "1", "-smoke"])
}

/// Runs nats.go's own tests with the test program in `tests/clients/nats_suites`.
fn suite(arguments: &[&str]) -> Result<()> {
    let clients = workspace::target_directory()?.join("nats-clients");
    let sources = workspace::root().join("tests/clients/nats_suites");
    let dunlin = workspace::build_dunlin()?;
    std::fs::create_dir_all(&clients).with_context(|| format!("cannot create {}", clients.display()))?;
    let program = clients.join("nats_suites");
    let mut build = Command::new("go");
    process::run(build.args(["build", "-o"]).arg(&program).arg(".").current_dir(&sources))
        .context("cannot build tests/clients/nats_suites; it needs go, and its module proxy")?;
    let mut suite = Command::new(program);
    suite.arg("-dir").arg(clients.join("nats.go")).args(arguments).current_dir(&sources);
    process::run(suite.env("DUNLIN", dunlin.get_program()))
}

fn run_with(libraries: &[(&str, Install, &str)], filter: &str) -> Result<()> {
    let clients = workspace::target_directory()?.join("nats-clients");
    let sources = workspace::root().join("tests/clients");
    std::fs::create_dir_all(&clients).with_context(|| format!("cannot create {}", clients.display()))?;
    for (name, install, needs) in libraries {
        install(&clients, &sources).with_context(|| format!("cannot install {name}; it needs {needs}"))?;
    }
    nextest::run(&TestSelection {
        profile: "all",
        filter: Some(format!("binary(it) & package(dunlin-system-tests) & ({filter})")),
        ignored: true,
        environment: vec![("DUNLIN_NATS_CLIENTS".to_owned(), clients.display().to_string())],
        ..TestSelection::default()
    })
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
