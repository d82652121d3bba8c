//! Checks the lengths of files. A source file with more than 500 lines causes a warning; more than 800 lines are an
//! error. ARCHITECTURE.md may have at most 300 lines.
//!
//! Generated files, whose first lines contain `@generated`, are exempt.

use super::repository::Repository;
use super::{ARCHITECTURE, Findings};

const LINES_WARNED: usize = 500;
const LINES_MAX: usize = 800;
const ARCHITECTURE_LINES_MAX: usize = 300;
const SOURCE: [&str; 8] = [".rs", ".py", ".ts", ".tsx", ".js", ".go", ".c", ".sh"];

/// Counts the lines of each file, and compares the counts with the limits.
pub fn check(repository: &Repository, findings: &mut Findings) {
    for (path, text) in repository.texts() {
        let lines = text.lines().count();
        if path == ARCHITECTURE && lines > ARCHITECTURE_LINES_MAX {
            let advice = "move the detail to its subsystem's page in docs/";
            findings.fail(path, lines, format!("is longer than {ARCHITECTURE_LINES_MAX} lines: {advice}"));
        }
        if !SOURCE.iter().any(|ending| path.ends_with(ending)) || is_generated(text) {
            continue;
        }
        let advice = "cut it along what it is about";
        if lines > LINES_MAX {
            findings.fail(path, lines, format!("is longer than {LINES_MAX} lines: {advice}"));
        } else if lines > LINES_WARNED {
            findings.warn(path, lines, format!("is longer than {LINES_WARNED} lines: {advice}"));
        }
    }
}

fn is_generated(text: &str) -> bool {
    text.lines().take(5).any(|line| line.contains("@generated"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(path: &str, lines: usize) -> Findings {
        let text = "x\n".repeat(lines);
        let mut findings = Findings::default();
        check(&Repository::of([(path, &text)]), &mut findings);
        findings
    }

    #[test]
    fn source_over_500_lines_warns_and_over_800_lines_fails() {
        assert!(findings("a.rs", 500).warnings().is_empty());
        assert_eq!(findings("a.rs", 501).warnings().len(), 1);
        assert!(findings("a.rs", 800).failures().is_empty());
        assert_eq!(findings("a.rs", 801).failures().len(), 1);
        assert!(findings("a.hex", 801).failures().is_empty());
    }

    #[test]
    fn generated_source_file_may_have_any_length() {
        let text = "// @generated\n".repeat(900);
        let mut findings = Findings::default();
        check(&Repository::of([("a.rs", &text)]), &mut findings);
        assert!(findings.failures().is_empty());
    }

    #[test]
    fn architecture_page_ends_by_line_300() {
        assert!(findings(ARCHITECTURE, 300).failures().is_empty());
        assert_eq!(findings(ARCHITECTURE, 301).failures().len(), 1);
    }
}
