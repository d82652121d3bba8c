//! What cargo knows of the workspace: where it lies, where it builds, its packages and their edges.

use std::path::PathBuf;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::process;

/// The repository's root: the folder above this crate's.
pub fn root() -> PathBuf {
    let ours = std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    let mut root = PathBuf::from(ours);
    root.pop();
    root
}

/// Where cargo puts what it builds, whatever says so: the environment, a configuration file or the default.
pub fn target_directory() -> Result<PathBuf> {
    let metadata = metadata()?;
    let directory =
        metadata["target_directory"].as_str().context("cargo metadata names no target directory")?;
    Ok(directory.into())
}

fn metadata() -> Result<Value> {
    let text = process::text(&mut process::cargo(&["metadata", "--no-deps", "--format-version", "1"]))?;
    serde_json::from_str(&text).context("cannot read the output of cargo metadata")
}
