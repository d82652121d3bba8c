//! `cargo xtask dashboard`: builds the dashboard and compares it with the committed files in `web/dashboard/dist`. With
//! `--write`, replaces the committed files. These files are committed, because `cargo build` embeds them into the
//! node's program. Node.js builds the files, and `cargo build` must not need Node.js.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::{page, process, workspace};

/// The option of the dashboard's build: whether the result replaces the committed dashboard.
#[derive(Default, clap::Args)]
pub struct Options {
    /// Replace the committed dashboard with the built one
    #[arg(long)]
    write: bool,
}

pub fn run(options: &Options) -> Result<()> {
    page::install()?;
    if options.write { build(&committed()) } else { compare() }
}

/// Compares the built dashboard with the committed one. Fails if they differ.
fn compare() -> Result<()> {
    let built = workspace::target_directory()?.join("dashboard");
    build(&built)?;
    let (built, committed) = (files(&built)?, files(&committed())?);
    let names = || built.keys().chain(committed.keys()).map(|name| name.display().to_string());
    let differing: Vec<_> =
        names().filter(|name| built.get(Path::new(name)) != committed.get(Path::new(name))).collect();
    ensure!(
        differing.is_empty(),
        "web/dashboard/dist differs from a build of its source, see {}: run `cargo xtask dashboard --write` and commit the result",
        differing.join(", ")
    );
    println!("web/dashboard/dist matches its source: {} files", committed.len());
    Ok(())
}

fn committed() -> PathBuf {
    page::folder().join("dist")
}

fn build(into: &Path) -> Result<()> {
    let mut npm = Command::new("npm");
    npm.args(["run", "--silent", "build", "--", "--emptyOutDir", "--outDir"]).arg(into);
    process::run(npm.current_dir(page::folder()))
}

/// Returns the contents of all files in a directory and its subdirectories. The keys are the files' paths, relative to
/// `directory`.
fn files(directory: &Path) -> Result<BTreeMap<PathBuf, Vec<u8>>> {
    let mut found = BTreeMap::new();
    let mut unread = vec![directory.to_owned()];
    while let Some(next) = unread.pop() {
        for entry in fs::read_dir(&next).with_context(|| format!("cannot read {}", next.display()))? {
            let path = entry?.path();
            if path.is_dir() {
                unread.push(path);
            } else {
                let bytes = fs::read(&path)?;
                found.insert(path.strip_prefix(directory)?.to_owned(), bytes);
            }
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dashboard_files_are_listed_with_path_and_content() {
        let directory = std::env::temp_dir().join(format!("dunlin-xtask-dashboard-{}", std::process::id()));
        fs::create_dir_all(directory.join("assets")).unwrap();
        fs::write(directory.join("index.html"), "a").unwrap();
        fs::write(directory.join("assets/x.js"), "b").unwrap();
        let found = files(&directory).unwrap();
        fs::remove_dir_all(&directory).unwrap();
        assert_eq!(found.keys().collect::<Vec<_>>(), [Path::new("assets/x.js"), Path::new("index.html")]);
        assert_eq!(found[Path::new("assets/x.js")], b"b");
    }
}
