//! Describes the workspace with data from cargo: its directories, packages and dependencies.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::process;

/// The folders that contain the product's crates. Each crate has its own subfolder.
pub const PRODUCT_FOLDERS: [&str; 2] = ["crates", "clients"];

/// Returns the repository's root directory.
pub fn root() -> PathBuf {
    let manifest_directory =
        std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    let mut root = PathBuf::from(manifest_directory);
    root.pop();
    root
}

/// Builds all programs, libraries and examples of the workspace in the test configuration. Everything is built in one
/// call of cargo. Each dependency is therefore built only once, with all features that any of the packages needs.
pub fn build() -> Result<()> {
    process::run(&mut process::cargo(&["build", "--workspace", "--lib", "--bins", "--examples"]))
}

/// The programs of the product: `dunlin`, and `dunlin-bench`, which contains the commands `bench`, `report`, `demo` and
/// `scale`.
pub const PROGRAMS: [&str; 2] = ["dunlin", "dunlin-bench"];

/// Builds the program `dunlin` in the test configuration, with `dunlin-bench` beside it. Returns a command that runs
/// `dunlin`.
pub fn build_dunlin() -> Result<Command> {
    build()?;
    Ok(Command::new(target_directory()?.join("debug/dunlin")))
}

/// Builds the programs for measurements, in the release configuration. Returns a command that runs `dunlin`.
pub fn build_release() -> Result<Command> {
    let packages = ["-p", "dunlin-cli", "-p", "dunlin-bench-cli"];
    process::run(process::cargo(&["build", "--release"]).args(packages))?;
    Ok(Command::new(target_directory()?.join("release").join(PROGRAMS[0])))
}

/// Returns cargo's target directory, which the environment or a configuration file may have set.
pub fn target_directory() -> Result<PathBuf> {
    let metadata = metadata()?;
    let directory =
        metadata["target_directory"].as_str().context("cargo metadata has no target directory")?;
    Ok(directory.into())
}

/// A package of the workspace.
pub struct Package {
    pub name: String,
    /// The path of the package's folder, relative to the repository's root. It uses `/`.
    pub folder: String,
    pub description: String,
    /// The names of the packages on which this package depends, except those that only its tests need.
    pub dependencies: Vec<String>,
}

impl Package {
    /// Returns the name of the package's folder in `crates/` or `clients/`. Returns `None` if the package is not part
    /// of the product, and so in neither of these folders.
    pub fn product_crate(&self) -> Option<&str> {
        PRODUCT_FOLDERS.iter().find_map(|root| self.folder.strip_prefix(root)?.strip_prefix('/'))
    }
}

pub fn packages() -> Result<Vec<Package>> {
    let metadata = metadata()?;
    let packages = metadata["packages"].as_array().context("cargo metadata has no packages")?;
    packages.iter().map(package).collect()
}

fn package(json: &Value) -> Result<Package> {
    let manifest = Path::new(
        json["manifest_path"].as_str().context("a package in cargo metadata has no manifest path")?,
    );
    let folder = manifest.parent().and_then(|folder| folder.strip_prefix(root()).ok());
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let dependencies = json["dependencies"].as_array().into_iter().flatten();
    Ok(Package {
        name: text(&json["name"]),
        folder: folder
            .with_context(|| format!("{} lies outside the repository", manifest.display()))?
            .to_string_lossy()
            .replace('\\', "/"),
        description: text(&json["description"]),
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
