//! Compares the table of crates in ARCHITECTURE.md with the packages that cargo reports.
//!
//! Every crate of the product (in `crates/` and `clients/`) must have a row in the table, a description, and the
//! package name that follows from the name of the crate's folder. A row without a crate causes a warning. The table
//! must allow every normal and build dependency between crates of the product.

use std::collections::{BTreeMap, BTreeSet};

use super::repository::Repository;
use super::table::{self, Row};
use super::{ARCHITECTURE, Findings};
use crate::workspace::Package;

const HEADER: [&str; 3] = ["crate", "purpose", "may depend on"];

/// Compares the table with the packages of the workspace.
pub fn check(repository: &Repository, findings: &mut Findings) {
    let page = repository.text(ARCHITECTURE).unwrap_or_default();
    let Some(rows) = table::rows(page, &HEADER) else {
        let header = HEADER.join(" | ");
        findings.fail(ARCHITECTURE, 1, format!("has no crate table: write one under `| {header} |`"));
        return;
    };
    let table = Table::read(&rows, findings);
    let crates = repository.packages.iter().filter_map(|package| Some((package.product_crate()?, package)));
    let crates: BTreeMap<&str, &Package> = crates.collect();
    for (name, line) in &table.lines {
        if !crates.contains_key(name) {
            let text = format!("names crate `{name}`, and there is no crates/{name} yet");
            findings.warn(ARCHITECTURE, *line, text);
        }
    }
    for (folder, package) in &crates {
        let manifest = format!("{}/Cargo.toml", package.folder);
        check_package(folder, package, &manifest, findings);
        if !table.lines.contains_key(folder) {
            findings.fail(
                &manifest,
                1,
                format!("is missing in the crate table: add a row to {ARCHITECTURE}"),
            );
            continue;
        }
        let reached = table.reached_from(folder);
        let text = repository.text(&manifest).unwrap_or_default();
        for dependency in package.dependencies.iter().filter_map(|name| crate_of(name)) {
            let known = crates.contains_key(dependency);
            if known && !reached.contains(dependency) {
                let line = dependency_line(text, &package_name(dependency));
                findings.fail(&manifest, line, forbidden_dependency(folder, dependency));
            }
        }
    }
}

fn check_package(folder: &str, package: &Package, manifest: &str, findings: &mut Findings) {
    let name = package_name(folder);
    if package.name != name {
        findings.fail(
            manifest,
            1,
            format!("is package `{}`: call it `{name}`, as its folder says", package.name),
        );
    }
    if package.description.trim().is_empty() {
        findings.fail(manifest, 1, "has no description: write the crate's purpose in one line".to_owned());
    }
}

fn forbidden_dependency(from: &str, to: &str) -> String {
    format!(
        "`{from}` depends on `{to}`, which the crate table does not reach: take the dependency out, or argue the \
         edge in a commit of its own that changes {ARCHITECTURE}"
    )
}

/// Returns the package name that the crate in this folder must have. The package name follows from the folder's name,
/// with one exception: the package of the embeddable node is named `dunlin`.
fn package_name(folder: &str) -> String {
    if folder == "dunlin" { folder.to_owned() } else { format!("dunlin-{folder}") }
}

fn crate_of(package: &str) -> Option<&str> {
    if package == "dunlin" { Some(package) } else { package.strip_prefix("dunlin-") }
}

fn dependency_line(text: &str, word: &str) -> usize {
    let depends = |line: &str| line.strip_prefix(word).is_some_and(|rest| rest.starts_with([' ', '.', '=']));
    text.lines().position(depends).map_or(1, |index| index + 1)
}

struct Table<'a> {
    lines: BTreeMap<&'a str, usize>,
    edges: BTreeMap<&'a str, Vec<&'a str>>,
}

impl<'a> Table<'a> {
    fn read(rows: &[Row<'a>], findings: &mut Findings) -> Table<'a> {
        let mut table = Table { lines: BTreeMap::new(), edges: BTreeMap::new() };
        for row in rows {
            let Some(&name) = table::names(row.cells[0]).first() else {
                findings.fail(
                    ARCHITECTURE,
                    row.line,
                    "has no crate name in backticks in its first cell".to_owned(),
                );
                continue;
            };
            table.lines.insert(name, row.line);
            table.edges.insert(name, table::names(row.cells[2]));
        }
        for (name, edges) in &table.edges {
            for edge in edges.iter().filter(|edge| !table.lines.contains_key(*edge)) {
                findings.fail(
                    ARCHITECTURE,
                    table.lines[name],
                    format!("allows an edge to `{edge}`, which has no row"),
                );
            }
        }
        table
    }

    fn reached_from(&self, start: &str) -> BTreeSet<&'a str> {
        let mut reached = BTreeSet::new();
        let mut pending: Vec<&str> = self.edges.get(start).cloned().unwrap_or_default();
        while let Some(name) = pending.pop() {
            if reached.insert(name) {
                pending.extend(self.edges.get(name).into_iter().flatten());
            }
        }
        reached
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "| crate | purpose | may depend on |\n|---|---|---|\n| `frame` | bytes | – |\n\
                        | `topic` | log | `frame` |\n| `dunlin` | node | `topic` |\n";

    fn package(folder: &str, dependencies: &[&str]) -> Package {
        Package {
            name: package_name(folder),
            folder: format!("crates/{folder}"),
            description: "what it is for".to_owned(),
            dependencies: dependencies.iter().map(|&name| name.to_owned()).collect(),
        }
    }

    fn sample_packages() -> Vec<Package> {
        let node = package("dunlin", &["dunlin-topic", "dunlin-frame", "bytes"]);
        vec![package("frame", &[]), package("topic", &["dunlin-frame"]), node]
    }

    fn findings_in_packages(packages: Vec<Package>, manifest: &str) -> Findings {
        let files = [(ARCHITECTURE, PAGE), ("crates/frame/Cargo.toml", manifest)];
        let mut repository = Repository::of(files);
        repository.packages = packages;
        let mut findings = Findings::default();
        check(&repository, &mut findings);
        findings
    }

    fn findings(packages: Vec<Package>, manifest: &str) -> Vec<String> {
        findings_in_packages(packages, manifest).failures()
    }

    #[test]
    fn tidy_accepts_dependencies_that_the_crate_table_allows() {
        assert_eq!(findings(sample_packages(), ""), [""; 0]);
    }

    #[test]
    fn report_on_a_forbidden_dependency_names_file_and_line() {
        let mut packages = sample_packages();
        packages[0].dependencies.push("dunlin-topic".to_owned());
        let found = findings(packages, "[dependencies]\ndunlin-topic.workspace = true\n");
        assert_eq!(found.len(), 1);
        assert!(found[0].starts_with("crates/frame/Cargo.toml:2: `frame` depends on `topic`"), "{found:?}");
    }

    #[test]
    fn unlisted_crate_is_an_error_and_absent_crate_a_warning() {
        let mut packages = sample_packages();
        packages.push(package("stray", &[]));
        packages.remove(0);
        let found = findings_in_packages(packages, "");
        assert!(found.failures()[0].starts_with("crates/stray/Cargo.toml:1: is missing"));
        assert!(found.warnings()[0].starts_with("ARCHITECTURE.md:3: warning: names crate `frame`"));
    }

    #[test]
    fn crate_with_a_wrong_name_or_empty_description_fails() {
        let mut packages = sample_packages();
        packages[0].name = "frames".to_owned();
        packages[1].description.clear();
        let found = findings(packages, "");
        assert!(found[0].contains("call it `dunlin-frame`"), "{found:?}");
        assert!(found[1].contains("has no description"), "{found:?}");
    }
}
