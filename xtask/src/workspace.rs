//! What cargo knows of the workspace: where it lies, where it builds, its packages and their edges.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::process;

/// Folders with a folder for each crate of the product.
pub const PRODUCT_FOLDERS: [&str; 2] = ["crates", "clients"];

/// The repository's root: the folder above this crate's.
pub fn root() -> PathBuf {
    let ours = std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    let mut root = PathBuf::from(ours);
    root.pop();
    root
}

/// Builds every program and library of the workspace in the configuration of the tests.
///
/// All of them together, with the examples: cargo then gives each dependency the features that everything, tests included, asks for,
/// and builds it once.
pub fn build() -> Result<()> {
    process::run(&mut process::cargo(&["build", "--workspace", "--lib", "--bins", "--examples"]))
}

/// The product's programs: the node with its commands, and what those of `bench`, `report` and `demo` start.
pub const PROGRAMS: [&str; 2] = ["dunlin", "dunlin-bench"];

/// The product's binary, freshly built to be tried, with `dunlin-bench` beside it.
pub fn dunlin() -> Result<Command> {
    build()?;
    Ok(Command::new(target_directory()?.join("debug/dunlin")))
}

/// The same, freshly built for release: for what is measured.
pub fn released() -> Result<Command> {
    let packages = ["-p", "dunlin-cli", "-p", "dunlin-bench-cli"];
    process::run(process::cargo(&["build", "--release"]).args(packages))?;
    Ok(Command::new(target_directory()?.join("release").join(PROGRAMS[0])))
}

/// Where cargo puts what it builds, whatever says so: the environment, a configuration file or the default.
pub fn target_directory() -> Result<PathBuf> {
    let metadata = metadata()?;
    let directory =
        metadata["target_directory"].as_str().context("cargo metadata names no target directory")?;
    Ok(directory.into())
}

/// One package of the workspace.
pub struct Package {
    pub name: String,
    /// From the repository's root, with `/`.
    pub folder: String,
    pub description: String,
    /// Names of the packages it is built from: normal and build dependencies, not those of its tests.
    pub dependencies: Vec<String>,
}

impl Package {
    /// The name of its folder in `crates/` or `clients/`, if it is part of the product.
    pub fn product_crate(&self) -> Option<&str> {
        PRODUCT_FOLDERS.iter().find_map(|root| self.folder.strip_prefix(root)?.strip_prefix('/'))
    }
}

/// Every package of the workspace.
pub fn packages() -> Result<Vec<Package>> {
    let metadata = metadata()?;
    let packages = metadata["packages"].as_array().context("cargo metadata names no packages")?;
    packages.iter().map(package).collect()
}

fn package(described: &Value) -> Result<Package> {
    let manifest = Path::new(described["manifest_path"].as_str().context("a package without a manifest")?);
    let folder = manifest.parent().and_then(|folder| folder.strip_prefix(root()).ok());
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let dependencies = described["dependencies"].as_array().into_iter().flatten();
    Ok(Package {
        name: text(&described["name"]),
        folder: folder
            .with_context(|| format!("{} lies outside the repository", manifest.display()))?
            .to_string_lossy()
            .replace('\\', "/"),
        description: text(&described["description"]),
        dependencies: dependencies
            .filter(|edge| edge["kind"] != "dev")
            .map(|edge| text(&edge["name"]))
            .collect(),
    })
}

fn metadata() -> Result<Value> {
    let text = process::text(&mut process::cargo(&["metadata", "--no-deps", "--format-version", "1"]))?;
    serde_json::from_str(&text).context("cannot read the output of cargo metadata")
}
