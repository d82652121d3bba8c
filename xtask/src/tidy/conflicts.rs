//! Checks that no file contains conflict markers, which git writes when a merge fails.

use super::Findings;
use super::repository::Repository;

const MARKERS: [&str; 2] = ["<<<<<<< ", ">>>>>>> "];

/// Checks every text file for conflict markers.
pub fn check(repository: &Repository, findings: &mut Findings) {
    for (path, text) in repository.texts() {
        for (index, line) in text.lines().enumerate() {
            if MARKERS.iter().any(|marker| line.starts_with(marker)) {
                findings.fail(path, index + 1, "has a conflict marker of git: resolve the conflict".into());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_with_conflict_markers_fails() {
        let mut findings = Findings::default();
        let page = "# Dunlin\n<<<<<<< HEAD\none\n=======\nother\n>>>>>>> 8d82277 (more)\n";
        check(&Repository::of([("README.md", page), ("b.md", "a << b\n=======\n")]), &mut findings);
        let failures = findings.failures();
        assert_eq!(failures.len(), 2, "{failures:?}");
        assert!(failures[0].starts_with("README.md:2:"), "{failures:?}");
    }
}
