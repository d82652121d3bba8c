//! Finds names that say nothing about what they name, such as `utils`. Checks the names of files, folders, modules,
//! types and functions.
//!
//! The file [`BANNED`] lists two kinds of words: words that must not be the name of a type or module, and words with
//! which the name of a function must not begin.

use super::repository::Repository;
use super::{Findings, source};

/// Words that tell nothing about the contents of a file or folder, and must not be its name.
const EMPTY_WORDS: [&str; 11] =
    ["common", "util", "utils", "helper", "helpers", "manager", "managers", "types", "misc", "impl", "impls"];

/// The list of banned words. The first line is a heading. Each further line has a word, a tab, and a better name. A
/// word that ends with `_` concerns functions: no function's name may begin with this word, and no function may have
/// the word without `_` as its name.
const BANNED: &str = "xtask/src/tidy/banned-names.tsv";

/// Checks the names of Rust files and their folders, and of the modules, types and functions that the files declare.
pub fn check(repository: &Repository, findings: &mut Findings) {
    let list = repository.text(BANNED).unwrap_or_default();
    let banned: Vec<(&str, &str)> = list.lines().skip(1).filter_map(|line| line.split_once('\t')).collect();
    for (path, text) in repository.texts().filter(|(path, _)| path.ends_with(".rs")) {
        for part in path.trim_end_matches(".rs").split('/') {
            if let Some(word) = empty_word(part) {
                findings.fail(path, 1, advice(part, word));
            }
        }
        // Skips a source that cannot be parsed; another rule reports such a source.
        for (line, module) in source::names(text).map(|names| names.modules).unwrap_or_default() {
            if let Some(word) = empty_word(&module) {
                findings.fail(path, line, advice(&module, word));
            }
        }
        for (line, declaration) in declarations(text) {
            if let Some((_, instead)) = banned.iter().find(|(word, _)| declaration.is_banned(word)) {
                let name = declaration.name();
                findings.fail(path, line, format!("`{name}` says too little; write {instead}"));
            }
        }
    }
}

/// A name that a source file declares.
enum Declaration<'a> {
    /// The name of a type or module.
    Item(&'a str),
    Function(&'a str),
}

impl<'a> Declaration<'a> {
    fn name(&self) -> &'a str {
        let (Declaration::Item(name) | Declaration::Function(name)) = self;
        name
    }

    /// Whether `word`, an entry of [`BANNED`], forbids this name.
    fn is_banned(&self, word: &str) -> bool {
        match (self, word.strip_suffix('_')) {
            (Declaration::Item(name), None) => *name == word,
            (Declaration::Function(name), Some(first)) => *name == first || name.starts_with(word),
            _ => false,
        }
    }
}

/// Returns the types, modules and functions that are declared at the start of a line, without indentation, each with
/// the number of this line.
fn declarations(text: &str) -> impl Iterator<Item = (usize, Declaration<'_>)> {
    text.lines().zip(1..).filter_map(|(line, number)| {
        let mut line = line.trim_start();
        if let Some(rest) = line.strip_prefix("pub") {
            line =
                if rest.starts_with('(') { rest.split_once(')')?.1.trim_start() } else { rest.trim_start() };
        }
        loop {
            let (keyword, rest) = line.split_once(' ')?;
            let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
            match keyword {
                "struct" | "enum" | "trait" | "type" | "union" | "mod" => {
                    return Some((number, Declaration::Item(&rest[..end])));
                }
                "fn" => return Some((number, Declaration::Function(&rest[..end]))),
                "async" | "const" | "unsafe" => line = rest,
                _ => return None,
            }
        }
    })
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
    fn tidy_reports_vague_names_of_modules_and_crates() {
        assert_eq!(findings("crates/a/src/utils.rs", "").len(), 1);
        assert_eq!(findings("crates/a/src/topic_manager.rs", "").len(), 1);
        assert_eq!(findings("crates/common/src/lib.rs", "").len(), 1);
        let found = findings("crates/a/src/lib.rs", "\nmod helpers {}\n");
        assert!(found[0].starts_with("crates/a/src/lib.rs:2: `helpers`"), "{found:?}");
    }

    #[test]
    fn banned_names_of_types_and_modules_fail() {
        let list = ("xtask/src/tidy/banned-names.tsv", "name\tinstead\nSeat\t`Member`\nseat\t`member`\n");
        for (text, fails) in [
            ("pub(crate) struct Seat<T> {", true),
            ("    enum Seat {", true),
            ("mod seat;", true),
            ("struct SeatMap;", false),
            ("let seat = Seat(1);", false),
        ] {
            let mut findings = Findings::default();
            check(&Repository::of([list, ("crates/a/src/lib.rs", text)]), &mut findings);
            assert_eq!(findings.failures().len(), usize::from(fails), "{text}");
        }
    }

    #[test]
    fn function_name_that_begins_with_a_banned_word_fails() {
        let list = ("xtask/src/tidy/banned-names.tsv", "name\tinstead\nsay_\tsend\n");
        for (text, fails) in [
            ("fn say() {", true),
            ("    pub(super) async fn say_end<T>(t: T) {", true),
            ("pub const unsafe fn say_end() {", true),
            ("fn sayer() {", false),
            ("fn send() { say_end() }", false),
            ("mod say;", false),
        ] {
            let mut findings = Findings::default();
            check(&Repository::of([list, ("crates/a/src/lib.rs", text)]), &mut findings);
            assert_eq!(findings.failures().len(), usize::from(fails), "{text}");
        }
    }

    #[test]
    fn forbidden_word_inside_a_longer_word_is_allowed() {
        assert!(findings("crates/a/src/utility.rs", "mod commonwealth {}").is_empty());
    }
}
