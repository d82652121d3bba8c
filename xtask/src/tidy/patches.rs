//! Checks that every mutant patch (which adds a bug for the chaos tests to find) can be applied to the tree.

use std::io::Write;
use std::process::{Command, Stdio};

use super::Findings;
use super::repository::Repository;
use crate::workspace;

/// Checks each patch with git. Changes no files.
pub fn check(repository: &Repository, findings: &mut Findings) {
    for (path, text) in repository.texts().filter(|(path, _)| path.ends_with(".patch")) {
        if let Err(reason) = check_patch(text) {
            findings.fail(path, 1, format!("does not apply, make the patch again: {reason}"));
        }
    }
}

fn check_patch(patch: &str) -> Result<(), String> {
    let mut git = Command::new("git");
    git.args(["apply", "--check", "-"]).current_dir(workspace::root());
    git.stdin(Stdio::piped()).stderr(Stdio::piped());
    let output = git.spawn().and_then(|mut git| {
        // Ignores the error. If git stops reading, git's output contains the reason.
        let _ = git.stdin.take().map(|mut stdin| stdin.write_all(patch.as_bytes()));
        git.wait_with_output()
    });
    match output {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; ")),
        Err(error) => Err(format!("cannot run git: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a patch that deletes the second line of this source file. The patch can be applied only if the first
    /// line of the file is `line`.
    fn patch(line: &str) -> String {
        let path = "xtask/src/tidy/patches.rs";
        format!("A bug.\n\n--- a/{path}\n+++ b/{path}\n@@ -1,3 +1,2 @@\n {line}\n-\n use std::io::Write;\n")
    }

    #[test]
    fn tidy_reports_a_patch_that_does_not_apply() {
        let mut findings = Findings::default();
        let good = patch(include_str!("patches.rs").lines().next().unwrap());
        let stale = patch("//! Every patch is fresh.");
        check(&Repository::of([("a.patch", good.as_str()), ("b.patch", stale.as_str())]), &mut findings);
        let failures = findings.failures();
        assert_eq!(failures.len(), 1, "{failures:?}");
        assert!(failures[0].starts_with("b.patch:1: does not apply"), "{failures:?}");
    }
}
