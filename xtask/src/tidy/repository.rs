//! The data that the tidiness rules check: all text files of the repository, and cargo's packages.
//!
//! Files that git ignores are not included. The tests of the rules create small repositories in memory.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

use anyhow::{Context, Result};

use crate::process;
use crate::workspace::{self, Package};

/// The data that the tidiness rules check. Paths use `/`, and start at the repository's root.
#[derive(Default)]
pub struct Repository {
    files: BTreeMap<String, File>,
    pub packages: Vec<Package>,
    /// The files and folders in the root that git ignores. Pages may name these files and folders even if they do not
    /// exist.
    pub ignored: Vec<String>,
}

/// A file's text; `None` if it is not UTF-8.
type File = Option<String>;

impl Repository {
    /// Reads the working tree, including files that are not committed yet.
    pub fn read() -> Result<Repository> {
        let root = workspace::root();
        let mut git = Command::new("git");
        git.args(["ls-files", "--cached", "--others", "--exclude-standard", "-z"]).current_dir(&root);
        let listing = process::text(&mut git).context("cannot list the repository's files with git")?;
        let mut files = BTreeMap::new();
        for path in listing.split_terminator('\0') {
            // A file that cannot be read is skipped: git lists a deleted file until the deletion is committed. For a
            // symbolic link, the file to which the link points is read.
            let Ok(bytes) = fs::read(root.join(path)) else { continue };
            files.insert(path.to_owned(), String::from_utf8(bytes).ok());
        }
        let ignored =
            files.get(".gitignore").and_then(Option::as_deref).map(ignored_at_root).unwrap_or_default();
        Ok(Repository { files, packages: workspace::packages()?, ignored })
    }

    /// Iterates over all text files. Each item is the path and the text of a file.
    pub fn texts(&self) -> impl Iterator<Item = (&str, &str)> {
        self.files.iter().filter_map(|(path, text)| Some((path.as_str(), text.as_deref()?)))
    }

    pub fn text(&self, path: &str) -> Option<&str> {
        self.files.get(path)?.as_deref()
    }

    /// Iterates over the paths of all files, including those that are not text.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.files.keys().map(String::as_str)
    }

    /// Whether this path is a file, or a folder that contains files.
    pub fn has(&self, path: &str) -> bool {
        let folder = format!("{path}/");
        self.files.contains_key(path)
            || self.files.range(folder.clone()..).next().is_some_and(|(file, _)| file.starts_with(&folder))
    }

    #[cfg(test)]
    pub fn of<const N: usize>(files: [(&str, &str); N]) -> Repository {
        let files = files.map(|(path, text)| (path.to_owned(), Some(text.to_owned())));
        Repository { files: files.into(), ..Repository::default() }
    }
}

fn ignored_at_root(gitignore: &str) -> Vec<String> {
    let anchored = gitignore.lines().filter_map(|line| line.trim().strip_prefix('/'));
    anchored.map(|path| path.trim_end_matches('/').to_owned()).collect()
}
