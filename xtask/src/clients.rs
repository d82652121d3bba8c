//! `cargo xtask clients`: runs gRPC clients of other projects with a node.
//!
//! Their packages are installed once into `target/clients/`, from PyPI, npm and the Go module proxy. If a
//! client cannot be installed, the command fails.

mod grpc;
mod node;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::process;
use crate::workspace;
use node::Node;

/// The clients to test.
#[derive(clap::Args)]
pub struct Options {
    /// Client to test: grpcio, grpc-go, grpc-js or grpcurl [default: all]
    name: Option<String>,
}

/// A client: its name, the function that prepares it, and the function that tests it.
struct Client {
    name: &'static str,
    /// The programs that must be in PATH.
    needs: &'static [&'static str],
    install: fn(&ClientPaths) -> Result<()>,
    run: fn(&ClientPaths, &str) -> Result<()>,
}

/// The directories of the clients' sources, of their installations, and of the node's proto files.
struct ClientPaths {
    sources: PathBuf,
    installed: PathBuf,
    protos: PathBuf,
}

impl ClientPaths {
    fn ready() -> Result<ClientPaths> {
        let root = workspace::root();
        let place = ClientPaths {
            sources: root.join("tests/clients"),
            installed: workspace::target_directory()?.join("clients"),
            protos: root.join("crates/server/proto"),
        };
        std::fs::create_dir_all(&place.installed)
            .with_context(|| format!("cannot create {}", place.installed.display()))?;
        Ok(place)
    }
}

/// Tests the named client, or all clients.
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
    let place = ClientPaths::ready()?;
    for client in &clients {
        prepare(client, &place).with_context(|| format!("cannot install {}", client.name))?;
    }
    let node = Node::start()?;
    for client in &clients {
        println!("-- {}", client.name);
        (client.run)(&place, node.grpc()).with_context(|| client.name.to_owned())?;
    }
    println!("{} clients passed", clients.len());
    Ok(())
}

/// Returns the directory of the program `grpcurl`. Builds the program if it is missing.
pub fn grpcurl() -> Result<PathBuf> {
    let place = ClientPaths::ready()?;
    let client = grpc::CLIENTS
        .iter()
        .find(|client| client.name == "grpcurl")
        .context("the list of clients has no grpcurl")?;
    prepare(client, &place)?;
    Ok(place.installed.join("go/bin"))
}

/// Tests all clients.
pub fn all() -> Result<()> {
    run(&Options { name: None })
}

/// Tests the client that belongs to the steps of CI. It needs no compiler.
pub fn one() -> Result<()> {
    run(&Options { name: Some("grpcio".to_owned()) })
}

fn prepare(client: &Client, place: &ClientPaths) -> Result<()> {
    for program in client.needs {
        let found = std::env::var_os("PATH")
            .is_some_and(|paths| std::env::split_paths(&paths).any(|folder| folder.join(program).is_file()));
        if !found {
            bail!("`{program}` is not in a directory of PATH");
        }
    }
    (client.install)(place)
}

/// Whether the outputs made from these files are up to date, according to the time of the file `stamp`, which [`made`]
/// writes.
fn is_made(stamp: &Path, of: &[PathBuf]) -> bool {
    std::fs::read(stamp).is_ok_and(|known| contents(of).is_ok_and(|now| now == known))
}

fn made(stamp: &Path, of: &[PathBuf]) -> Result<()> {
    std::fs::write(stamp, contents(of)?).with_context(|| format!("cannot write {}", stamp.display()))
}

fn contents(files: &[PathBuf]) -> Result<Vec<u8>> {
    let mut all = Vec::new();
    for file in files {
        all.extend(std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))?);
    }
    Ok(all)
}

/// Runs a command, and prints its output only if it fails.
fn quietly(command: &mut Command) -> Result<()> {
    process::text(command).map(drop)
}
