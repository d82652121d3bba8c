//! Checks that the name of a public type has one meaning in the whole product.
//!
//! Two types in different files may share a name only if one represents the other, as a protocol's message represents a
//! type of the product. The file [`LIST`] must have a line for each name that several types share. A line for a name
//! that types do not share is an error too. Types that are not fully public, generated code and tests are exempt.

use std::collections::BTreeMap;

use super::repository::Repository;
use super::{Findings, absence};

/// The list of names that several types share. The first line is a heading. Each further line has a name, a tab, and
/// the reason why all types with this name mean the same.
const LIST: &str = "xtask/src/tidy/same-type-names.tsv";

/// Finds names that several public types share, and compares these names with the list.
pub fn check(repository: &Repository, findings: &mut Findings) {
    let mut unused_names = read_list(repository, findings);
    for (name, files) in shared_names(repository) {
        if unused_names.remove(name.as_str()).is_some() {
            continue;
        }
        let mut files = files.into_iter();
        let Some((path, line)) = files.next() else { continue };
        let others: Vec<&str> = files.map(|(path, _)| path).collect();
        let others = others.join(", ");
        findings.fail(
            path,
            line,
            format!(
                "type `{name}` is also defined in {others}: name each after what it holds; if one is a view \
                 of the other, add a line to {LIST}"
            ),
        );
    }
    for (name, line) in unused_names {
        findings.fail(LIST, line, format!("`{name}` is not the name of two public types: take the line out"));
    }
}

/// Returns the names that public types in several files have. For each name, the value contains these files, each with
/// the line of the declaration.
fn shared_names(repository: &Repository) -> BTreeMap<String, BTreeMap<&str, usize>> {
    let mut names: BTreeMap<String, BTreeMap<&str, usize>> = BTreeMap::new();
    // Skips a source that cannot be parsed; another rule reports such a source.
    for (path, source) in absence::product_sources(repository, &mut Findings::default()) {
        if path.contains("/generated/") {
            continue;
        }
        for (line, name) in source.public_types {
            names.entry(name).or_default().entry(path).or_insert(line);
        }
    }
    names.retain(|_, files| files.len() > 1);
    names
}

/// Returns the names in the list, each with its line.
fn read_list<'a>(repository: &'a Repository, findings: &mut Findings) -> BTreeMap<&'a str, usize> {
    let list = repository.text(LIST).unwrap_or_default();
    let mut listed = BTreeMap::new();
    for (text, line) in list.lines().zip(1..).skip(1) {
        match text.split_once('\t') {
            Some((name, reason)) if !reason.is_empty() => {
                listed.insert(name, line);
            }
            _ => findings.fail(LIST, line, "expected a name, a tab and a reason".to_owned()),
        }
    }
    listed
}

#[cfg(test)]
mod tests {
    use super::*;

    const LANE: (&str, &str) = ("crates/a/src/a.rs", "pub struct Lane;");

    /// Returns the findings for a repository that contains [`LANE`], the file `path` with the text `text`, and a list
    /// with the line `line`.
    fn findings(path: &str, text: &str, line: &str) -> Vec<String> {
        let list = format!("name\treason\n{line}");
        let list = if line.is_empty() { "" } else { list.as_str() };
        let mut findings = Findings::default();
        check(&Repository::of([LANE, (path, text), (LIST, list)]), &mut findings);
        findings.failures()
    }

    #[test]
    fn two_types_may_share_a_name_only_if_listed() {
        let (path, text) = ("crates/b/src/b.rs", "\npub enum Lane {}");
        let found = findings(path, text, "");
        assert_eq!(found.len(), 1, "{found:?}");
        let expected = "crates/a/src/a.rs:1: type `Lane` is also defined in crates/b/src/b.rs:";
        assert!(found[0].starts_with(expected), "{found:?}");
        assert_eq!(findings(path, text, "Lane\ta view of that of `a`\n"), [""; 0]);
    }

    #[test]
    fn private_and_generated_and_test_types_may_share_names() {
        for (path, text) in [
            ("crates/b/src/b.rs", "pub(crate) struct Lane;"),
            ("crates/b/src/b.rs", "#[cfg(test)]\nmod tests { pub struct Lane; }"),
            ("crates/b/src/generated/b.rs", "pub struct Lane;"),
            ("crates/b/tests/b.rs", "pub struct Lane;"),
        ] {
            assert_eq!(findings(path, text, ""), [""; 0], "{path}: {text}");
        }
    }

    #[test]
    fn exception_for_a_type_name_must_be_used_and_have_a_reason() {
        let unused = findings("crates/b/src/b.rs", "", "Lane\ta view of that of `a`\n");
        assert_eq!(unused.len(), 1, "{unused:?}");
        assert!(unused[0].starts_with("xtask/src/tidy/same-type-names.tsv:2: `Lane` is not"), "{unused:?}");
        let found = findings("crates/b/src/b.rs", "pub enum Lane {}", "Lane\t\n");
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].ends_with(":2: expected a name, a tab and a reason"), "{found:?}");
    }
}
