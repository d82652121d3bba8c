//! Checks that `CHANGELOG.md` has the format of keepachangelog.com.
//!
//! A line has at most 120 characters. The first release heading is `## [Unreleased]`; all other release headings are
//! like `## [1.2.3] - 2026-11-27`. The headings below a release heading are `### Added`, `### Changed`, `### Fixed`,
//! `### Removed` or `### Security`.

use super::Findings;
use super::repository::Repository;

const CHANGELOG: &str = "CHANGELOG.md";
const CHARACTERS_MAX: usize = 120;
const TITLE: &str = "# Changelog";
const UNRELEASED: &str = "[Unreleased]";
const KINDS: [&str; 5] = ["Added", "Changed", "Fixed", "Removed", "Security"];

/// Checks every line of `CHANGELOG.md`.
pub fn check(repository: &Repository, findings: &mut Findings) {
    let Some(text) = repository.text(CHANGELOG) else {
        findings.fail(CHANGELOG, 1, "is missing: list the changes for users, by release".to_owned());
        return;
    };
    let mut releases = 0;
    for (index, line) in text.lines().enumerate() {
        let number = index + 1;
        let characters = line.chars().count();
        if characters > CHARACTERS_MAX {
            findings.fail(
                CHANGELOG,
                number,
                format!("has {characters} characters, over the limit of {CHARACTERS_MAX}: describe only the effect for users"),
            );
        }
        if !line.starts_with('#') {
            continue;
        }
        let release = line.strip_prefix("## ");
        releases += usize::from(release.is_some());
        match release {
            Some(UNRELEASED) => {}
            Some(_) if releases == 1 => {
                findings.fail(
                    CHANGELOG,
                    number,
                    format!("comes before `## {UNRELEASED}`, which is the first release"),
                );
            }
            Some(name) if is_release(name) => {}
            None if line == TITLE || line.strip_prefix("### ").is_some_and(|kind| KINDS.contains(&kind)) => {}
            _ => findings.fail(CHANGELOG, number, unknown_heading(line)),
        }
    }
}

fn unknown_heading(line: &str) -> String {
    let kinds = KINDS.join(", ");
    format!("`{line}` is no heading of a changelog: use `## [1.2.3] - 2026-11-27`, or `### ` with {kinds}")
}

/// Whether the text of a heading names a release, such as `[1.2.3] - 2026-11-27`.
fn is_release(name: &str) -> bool {
    let Some((version, date)) = name.strip_prefix('[').and_then(|rest| rest.split_once("] - ")) else {
        return false;
    };
    let date_lengths: Vec<usize> = date.split('-').map(str::len).collect();
    all_numbers(version, '.')
        && version.split('.').count() == 3
        && all_numbers(date, '-')
        && date_lengths == [4, 2, 2]
}

fn all_numbers(text: &str, separator: char) -> bool {
    text.split(separator).all(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(text: &str) -> Vec<String> {
        let mut findings = Findings::default();
        check(&Repository::of([(CHANGELOG, text)]), &mut findings);
        findings.failures()
    }

    #[test]
    fn changelog_in_the_required_format_passes() {
        let text = "# Changelog\n\nText.\n\n## [Unreleased]\n\n### Fixed\n\n- x\n\n## [0.12.3] - 2026-11-27\n\n\
                    ### Added\n### Changed\n### Removed\n### Security\n\n- `#x`\n  #y\n";
        assert_eq!(findings(text), [""; 0]);
    }

    #[test]
    fn changelog_line_over_120_characters_fails() {
        let line = |characters: usize| format!("## [Unreleased]\n{}\n", "é".repeat(characters));
        assert_eq!(findings(&line(120)), [""; 0]);
        let found = findings(&line(121));
        assert_eq!(found.len(), 1);
        assert!(
            found[0].starts_with("CHANGELOG.md:2: has 121 characters, over the limit of 120"),
            "{found:?}"
        );
    }

    #[test]
    fn changelog_heading_outside_the_format_fails() {
        let others = [
            "# Changes",
            "### Deprecated",
            "### added",
            "#### Topics",
            "###Added",
            "## Unreleased",
            "## 0.1.0 - 2026-11-27",
            "## [0.1.0]",
            "## [0.1] - 2026-11-27",
            "## [0.1.x] - 2026-11-27",
            "## [0.1.0] - 27-11-2026",
            "## [0.1.0] - 2026-11-27 (beta)",
        ];
        for heading in others {
            let found = findings(&format!("# Changelog\n## [Unreleased]\n{heading}\n"));
            assert_eq!(found.len(), 1, "{heading}: {found:?}");
            assert!(found[0].contains("is no heading of a changelog"), "{found:?}");
        }
    }

    #[test]
    fn changelog_with_a_release_above_the_unreleased_section_fails() {
        let found = findings("# Changelog\n## [0.1.0] - 2026-11-27\n## [Unreleased]\n");
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with("CHANGELOG.md:2: comes before"), "{found:?}");
    }

    #[test]
    fn missing_changelog_fails() {
        let mut findings = Findings::default();
        check(&Repository::default(), &mut findings);
        assert_eq!(findings.failures().len(), 1);
    }
}
