//! Checks that every path in a Markdown page exists. A path is written in backticks, or is the target of a link.
//!
//! Text in backticks counts as a path if it begins with a folder of the repository's root, or ends in `.rs` or `.md`. A
//! path that ends in `.rs` or `.md` may lack its first folders, as in `segment.rs`. Patterns, placeholders, paths
//! outside of the repository, files that git ignores, and fenced blocks are exempt.

use std::collections::BTreeSet;

use super::Findings;
use super::repository::Repository;

/// Names of folders in the repository's root. If text on a page begins with such a name, it counts as a path, even if
/// the folder does not exist.
const ROOT_FOLDERS: [&str; 11] =
    ["crates", "docs", "examples", "tests", "fuzz", "peers", "clients", "web", "xtask", ".ci", "bench-runs"];

/// Checks the paths in every Markdown page.
pub fn check(repository: &Repository, findings: &mut Findings) {
    let mut roots: BTreeSet<&str> = ROOT_FOLDERS.into();
    roots.extend(repository.paths().filter_map(|path| path.split_once('/')).map(|(root, _)| root));
    for (page, text) in repository.texts().filter(|(path, _)| path.ends_with(".md")) {
        for (line, text) in prose(text) {
            for path in text.split('`').skip(1).step_by(2).filter_map(|code| path_in(code, &roots)) {
                if !exists(repository, page, path) {
                    findings.fail(
                        page,
                        line,
                        format!("names `{path}`, which does not exist: correct the path"),
                    );
                }
            }
            for target in link_targets(text) {
                if !repository.has(&resolve(page, target)) {
                    findings.fail(
                        page,
                        line,
                        format!("links to {target}, which does not exist: correct the link"),
                    );
                }
            }
        }
    }
}

/// Returns the lines of a page that are outside of fenced blocks, each with its line number.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    text.lines().enumerate().filter_map(move |(index, line)| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        (!fence && !fenced).then_some((index + 1, line))
    })
}

/// Returns the path in a code span, which is text in backticks; `None` if the text does not look like a path.
fn path_in<'a>(code: &'a str, roots: &BTreeSet<&str>) -> Option<&'a str> {
    let path = code.split([':', '#']).next()?.trim_end_matches('/');
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-./".contains(&byte);
    let is_outside = path.starts_with("..") || path.starts_with('/');
    if path.is_empty() || is_outside || !path.bytes().all(is_plain) || code.contains("::") {
        return None;
    }
    let has_root = code.split_once('/').is_some_and(|(root, _)| roots.contains(root));
    (has_root || has_known_extension(path)).then_some(path)
}

fn has_known_extension(path: &str) -> bool {
    [".rs", ".md"].iter().any(|ending| path.strip_suffix(ending).is_some_and(|stem| !stem.is_empty()))
}

fn exists(repository: &Repository, page: &str, path: &str) -> bool {
    let ignored = |root: &String| {
        path == root || path.strip_prefix(root.as_str()).is_some_and(|rest| rest.starts_with('/'))
    };
    let ending = format!("/{path}");
    repository.has(path)
        || repository.has(&resolve(page, path))
        || repository.ignored.iter().any(ignored)
        || (has_known_extension(path) && repository.paths().any(|file| file.ends_with(&ending)))
}

/// Returns the targets of links in a line (`[text](target)`), if they point into this repository. Anchors are removed
/// from the targets.
fn link_targets(line: &str) -> impl Iterator<Item = &str> {
    let targets = line.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(target, _)| target);
    let local =
        targets.filter(|target| !target.contains(':') && !target.starts_with("..") && !target.contains(' '));
    local.filter_map(|target| target.split('#').next()).filter(|target| !target.is_empty())
}

/// Converts a path that is relative to a page's folder to a path from the repository's root.
fn resolve(page: &str, path: &str) -> String {
    let path = path.trim_start_matches("./").trim_end_matches('/');
    match page.rsplit_once('/') {
        Some((folder, _)) => format!("{folder}/{path}"),
        None => path.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(page: &str) -> Vec<String> {
        let files = [("docs/page.md", page), ("docs/topic.md", ""), ("crates/topic/src/segment.rs", "")];
        let mut repository = Repository::of(files);
        repository.ignored = vec!["data".to_owned()];
        let mut findings = Findings::default();
        check(&repository, &mut findings);
        findings.failures()
    }

    #[test]
    fn page_that_names_a_missing_file_fails() {
        for gone in ["crates/topic/src/segmint.rs", "docs/gone.md", "xtask/", "ring.rs", "peers/x:12"] {
            let found = findings(&format!("\nsee `{gone}`"));
            assert_eq!(found.len(), 1, "{gone}: {found:?}");
            assert!(found[0].starts_with("docs/page.md:2: names "), "{found:?}");
        }
        assert_eq!(findings("[the log](gone.md#life)").len(), 1);
    }

    #[test]
    fn page_that_names_existing_files_passes() {
        let page = "`crates/topic/src/segment.rs:12`, `segment.rs`, `crates/topic/`, `topic.md`, `data/orders.csv`,\n\
                    [the log](topic.md#life), [far](https://example.org/x.md)";
        assert_eq!(findings(page), [""; 0]);
    }

    #[test]
    fn page_check_accepts_text_that_only_resembles_a_path() {
        let page = "`crates/*`, `crates/<name>`, `and/or`, `../shared/x.md`, `/proc/stat`, `topic::segment`, `.rs`\n\
                    ```\ncat docs/gone.md `docs/gone.md`\n```\n";
        assert_eq!(findings(page), [""; 0]);
    }
}
