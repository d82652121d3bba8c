//! `cargo xtask clients`: programs of clients that nobody here wrote, against a node that is started for them.
//!
//! What they need is installed once, into `target/clients/`, from where its users get it: PyPI, npm, the Go module proxy. A
//! client that cannot be installed fails the command.

mod grpc;
mod node;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::process;
use crate::workspace;
use node::Node;

/// What to run.
#[derive(clap::Args)]
pub struct Options {
    /// Client to test: grpcio, grpc-go, grpc-js or grpcurl [default: all]
    name: Option<String>,
}

/// A client: what it is called, what makes it ready, and what runs it.
struct Client {
    name: &'static str,
    /// Programs that must be on the path.
    needs: &'static [&'static str],
    install: fn(&Place) -> Result<()>,
    run: fn(&Place, &str) -> Result<()>,
}

/// Where clients are, and where they are installed to.
struct Place {
    sources: PathBuf,
    installed: PathBuf,
    protos: PathBuf,
}

impl Place {
    fn ready() -> Result<Place> {
        let root = workspace::root();
        let place = Place {
            sources: root.join("tests/clients"),
            installed: workspace::target_directory()?.join("clients"),
            protos: root.join("crates/server/proto"),
        };
        std::fs::create_dir_all(&place.installed)
            .with_context(|| format!("cannot create {}", place.installed.display()))?;
        Ok(place)
    }
}

/// Runs the named client, or all.
pub fn run(options: &Options) -> Result<()> {
    let chosen = |client: &&Client| options.name.as_deref().is_none_or(|name| client.name == name);
    let clients: Vec<_> = grpc::CLIENTS.iter().filter(chosen).collect();
    if clients.is_empty() {
        let names: Vec<_> = grpc::CLIENTS.iter().map(|client| client.name).collect();
        bail!("there is no such client; there are {}", names.join(", "));
    }
    let place = Place::ready()?;
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

/// The folder of the program `grpcurl`, built where it is not there.
pub fn grpcurl() -> Result<PathBuf> {
    let place = Place::ready()?;
    let client = grpc::CLIENTS.iter().find(|client| client.name == "grpcurl").context("no such client")?;
    prepare(client, &place)?;
    Ok(place.installed.join("go/bin"))
}

/// Every client.
pub fn all() -> Result<()> {
    run(&Options { name: None })
}

/// The one of the default tier: it needs no compiler.
pub fn one() -> Result<()> {
    run(&Options { name: Some("grpcio".to_owned()) })
}

fn prepare(client: &Client, place: &Place) -> Result<()> {
    for program in client.needs {
        let found = std::env::var_os("PATH")
            .is_some_and(|paths| std::env::split_paths(&paths).any(|folder| folder.join(program).is_file()));
        if !found {
            bail!("`{program}` is not on the path");
        }
    }
    (client.install)(place)
}

/// Whether something was made of just these files; [`made`] notes it.
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

/// Runs a command whose output is shown only if it fails.
fn quietly(command: &mut Command) -> Result<()> {
    process::text(command).map(drop)
}
