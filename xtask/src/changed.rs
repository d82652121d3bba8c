//! Finds the packages of the workspace that differ from a given revision.

use std::process::Command;

use anyhow::Result;

use crate::{process, workspace};

/// Returns the packages with files that were changed, added or removed since the revision `since`. Uncommitted changes
/// count too. If `since` is `None`, compares with the last revision that `HEAD` and `origin/main` have in common, or
/// with `HEAD` if there is none.
pub fn packages(since: Option<&str>) -> Result<Vec<String>> {
    let base = match since {
        Some(revision) => revision.to_owned(),
        None => git(&["merge-base", "HEAD", "origin/main"]).unwrap_or_else(|_| "HEAD".to_owned()),
    };
    let changed = git(&["diff", "--name-only", base.trim()])?;
    let added = git(&["ls-files", "--others", "--exclude-standard"])?;
    let paths: Vec<&str> = changed.lines().chain(added.lines()).collect();
    let packages = workspace::packages()?.into_iter();
    Ok(packages.filter(|package| holds_any(&package.folder, &paths)).map(|package| package.name).collect())
}

fn holds_any(folder: &str, paths: &[&str]) -> bool {
    paths.iter().any(|path| path.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/')))
}

fn git(arguments: &[&str]) -> Result<String> {
    process::text(Command::new("git").args(arguments).current_dir(workspace::root()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_file_marks_only_its_own_folder_as_changed() {
        assert!(holds_any("crates/topic", &["README.md", "crates/topic/src/log.rs"]));
        assert!(!holds_any("crates/topic", &["crates/topics/src/log.rs", "crates/topic"]));
    }
}
