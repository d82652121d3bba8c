//! Checks for names of files, folders and modules that do not describe their contents.

use super::repository::Repository;
use super::{Findings, source};

/// Words that do not describe any contents.
const EMPTY_WORDS: [&str; 11] =
    ["common", "util", "utils", "helper", "helpers", "manager", "managers", "types", "misc", "impl", "impls"];

/// Checks the names of Rust files, their folders, and modules declared inside of files.
pub fn check(repository: &Repository, findings: &mut Findings) {
    for (path, text) in repository.texts().filter(|(path, _)| path.ends_with(".rs")) {
        for part in path.trim_end_matches(".rs").split('/') {
            if let Some(word) = empty_word(part) {
                findings.fail(path, 1, advice(part, word));
            }
        }
        // Another rule reports sources that cannot be parsed.
        for (line, module) in source::names(text).map(|names| names.modules).unwrap_or_default() {
            if let Some(word) = empty_word(&module) {
                findings.fail(path, line, advice(&module, word));
            }
        }
    }
}

fn advice(name: &str, word: &str) -> String {
    format!("`{name}`: a name with `{word}` can hold anything; name it after the one thing it is about")
}

fn empty_word(name: &str) -> Option<&'static str> {
    let words = || name.split(['_', '-']);
    EMPTY_WORDS.into_iter().find(|empty| words().any(|word| word == *empty))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(path: &str, text: &str) -> Vec<String> {
        let mut findings = Findings::default();
        check(&Repository::of([(path, text)]), &mut findings);
        findings.failures()
    }

    #[test]
    fn names_that_could_hold_anything_fail() {
        assert_eq!(findings("crates/a/src/utils.rs", "").len(), 1);
        assert_eq!(findings("crates/a/src/topic_manager.rs", "").len(), 1);
        assert_eq!(findings("crates/common/src/lib.rs", "").len(), 1);
        let found = findings("crates/a/src/lib.rs", "\nmod helpers {}\n");
        assert!(found[0].starts_with("crates/a/src/lib.rs:2: `helpers`"), "{found:?}");
    }

    #[test]
    fn names_that_only_contain_a_forbidden_word_pass() {
        assert!(findings("crates/a/src/utility.rs", "mod commonwealth {}").is_empty());
    }
}
