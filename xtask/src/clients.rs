//! `cargo xtask clients`: programs of clients that nobody here wrote, against a node that is started for them.
//!
//! What they need is installed once, into `target/clients/`, from where its users get it: PyPI, npm, the Go module proxy. A
//! language that is not on this machine, or whose registry cannot be reached, is passed over and said so: what was not
//! run is not called passed. With `--all` that is a failure.

mod grpc;
mod node;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::process;
use crate::workspace;
use node::Node;

/// What to run.
#[derive(clap::Args, Default)]
pub struct Options {
    /// Fail where a client cannot be had, instead of passing it over
    #[arg(long)]
    all: bool,
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

/// Runs all clients that can be had.
pub fn run(options: &Options) -> Result<()> {
    let root = workspace::root();
    let place = Place {
        sources: root.join("tests/clients"),
        installed: workspace::target_directory()?.join("clients"),
        protos: root.join("crates/server/proto"),
    };
    std::fs::create_dir_all(&place.installed)
        .with_context(|| format!("cannot make {}", place.installed.display()))?;
    let mut passed_over = Vec::new();
    let mut ready = Vec::new();
    for client in grpc::CLIENTS {
        match prepare(client, &place) {
            Ok(()) => ready.push(client),
            Err(error) => {
                eprintln!("{} is passed over: {error:#}", client.name);
                passed_over.push(client.name);
            }
        }
    }
    let node = Node::start()?;
    for client in &ready {
        println!("-- {}", client.name);
        (client.run)(&place, node.grpc()).with_context(|| client.name.to_owned())?;
    }
    drop(node);
    println!("{} clients passed; passed over: {}", ready.len(), list(&passed_over));
    if options.all && !passed_over.is_empty() {
        bail!("not all clients could be had: {}", list(&passed_over));
    }
    Ok(())
}

/// What `cargo xtask test` runs.
pub fn all_there_are() -> Result<()> {
    run(&Options::default())
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

fn list(names: &[&str]) -> String {
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
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
