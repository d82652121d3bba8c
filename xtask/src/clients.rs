//! `cargo xtask clients`: tests the gRPC listener of a node with gRPC clients from other projects.
//!
//! The clients' packages are installed once into `target/clients/`, from PyPI, npm and the Go module proxy. If a client
//! cannot be installed, the command fails.

mod grpc;
mod node;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::process;
use crate::workspace;
use node::Node;

/// The option of the client tests: the client to test.
#[derive(clap::Args)]
pub struct Options {
    /// Client to test: grpcio, grpc-go, grpc-js or grpcurl [default: all]
    name: Option<String>,
}

/// A client to test. `install` installs the client, and `run` tests it.
struct Client {
    name: &'static str,
    /// The names of the programs that the client needs in a directory of PATH.
    needs: &'static [&'static str],
    install: fn(&ClientPaths) -> Result<()>,
    run: fn(&ClientPaths, &str) -> Result<()>,
}

/// The directories of the clients' sources, of the installed clients, and of the node's proto files.
struct ClientPaths {
    sources: PathBuf,
    installed: PathBuf,
    protos: PathBuf,
}

impl ClientPaths {
    fn prepare() -> Result<ClientPaths> {
        let root = workspace::root();
        let paths = ClientPaths {
            sources: root.join("tests/clients"),
            installed: workspace::target_directory()?.join("clients"),
            protos: root.join("crates/server/proto"),
        };
        std::fs::create_dir_all(&paths.installed)
            .with_context(|| format!("cannot create {}", paths.installed.display()))?;
        Ok(paths)
    }
}

/// Tests the client that the options name, or all clients.
pub fn run(options: &Options) -> Result<()> {
    let chosen = |client: &&Client| options.name.as_deref().is_none_or(|name| client.name == name);
    let clients: Vec<_> = grpc::CLIENTS.iter().filter(chosen).collect();
    if clients.is_empty() {
        let names: Vec<_> = grpc::CLIENTS.iter().map(|client| client.name).collect();
        bail!(
            "unknown client {}: use one of {}",
            options.name.as_deref().unwrap_or_default(),
            names.join(", ")
        );
    }
    let paths = ClientPaths::prepare()?;
    for client in &clients {
        prepare(client, &paths).with_context(|| format!("cannot install {}", client.name))?;
    }
    let node = Node::start()?;
    for client in &clients {
        println!("-- {}", client.name);
        (client.run)(&paths, node.grpc()).with_context(|| client.name.to_owned())?;
    }
    println!("{} clients passed", clients.len());
    Ok(())
}

/// Returns the directory that contains the program `grpcurl`. Builds the program first if it is missing.
pub fn grpcurl() -> Result<PathBuf> {
    let paths = ClientPaths::prepare()?;
    let client = grpc::CLIENTS
        .iter()
        .find(|client| client.name == "grpcurl")
        .context("the list of clients has no grpcurl")?;
    prepare(client, &paths)?;
    Ok(paths.installed.join("go/bin"))
}

pub fn run_all() -> Result<()> {
    run(&Options { name: None })
}

/// Tests the one client that is tested in the CI steps. This client needs no compiler, as the other clients do.
pub fn run_one() -> Result<()> {
    run(&Options { name: Some("grpcio".to_owned()) })
}

fn prepare(client: &Client, paths: &ClientPaths) -> Result<()> {
    for program in client.needs {
        let found = std::env::var_os("PATH")
            .is_some_and(|paths| std::env::split_paths(&paths).any(|folder| folder.join(program).is_file()));
        if !found {
            bail!("`{program}` is not in a directory of PATH");
        }
    }
    (client.install)(paths)
}

/// Whether the files `inputs` have the contents that [`write_stamp`] stored in `stamp`. If they have, everything that
/// was made from these files is up to date.
fn is_up_to_date(stamp: &Path, inputs: &[PathBuf]) -> bool {
    std::fs::read(stamp).is_ok_and(|known| read_all(inputs).is_ok_and(|now| now == known))
}

fn write_stamp(stamp: &Path, inputs: &[PathBuf]) -> Result<()> {
    std::fs::write(stamp, read_all(inputs)?).with_context(|| format!("cannot write {}", stamp.display()))
}

fn read_all(files: &[PathBuf]) -> Result<Vec<u8>> {
    let mut all = Vec::new();
    for file in files {
        all.extend(std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))?);
    }
    Ok(all)
}

/// Runs a command, and prints its output only if it fails.
fn run_quietly(command: &mut Command) -> Result<()> {
    process::text(command).map(drop)
}
