//! Checks that each crate uses only the capabilities, such as files or clocks, that a table in ARCHITECTURE.md allows
//! for this crate.
//!
//! [`CAPABILITIES`] defines the capabilities that the table names. For each capability, the table lists the crates, or
//! single modules such as `topic::segment`, that may use the capability. A second table lists exceptions: files that
//! may use a capability nevertheless, with the reasons. An exception that its file does not need is an error too.
//! Tests, examples and benches are exempt.
//!
//! The rule looks only at names, not at types. For example, if code receives an `Instant` as an argument and reads the
//! clock with it, the rule does not notice.

mod capability;

use std::collections::{BTreeMap, BTreeSet};

use super::repository::Repository;
use super::source::SourceNames;
use super::{ARCHITECTURE, Findings, source, table};
use crate::workspace::PRODUCT_FOLDERS;
use capability::{CAPABILITIES, Capability};

const ALLOWED: [&str; 2] = ["capability", "used only in"];
const EXCEPTIONS: [&str; 3] = ["file", "may name", "because"];

/// Checks every source file of the product against the two tables.
pub fn check(repository: &Repository, findings: &mut Findings) {
    let page = repository.text(ARCHITECTURE).unwrap_or_default();
    let allowed = allowed_scopes(page, findings);
    let mut exceptions = exceptions(page, findings);
    for (path, names) in product_sources(repository, findings) {
        for capability in CAPABILITIES {
            let scopes = allowed.get(capability.name).map_or(&[][..], Vec::as_slice);
            if scopes.iter().any(|scope| scope_contains(scope, path)) {
                continue;
            }
            let lines = capability_uses(capability, &names);
            if !lines.is_empty() && exceptions.remove(&(path, capability.name)).is_some() {
                continue;
            }
            for (line, used) in lines {
                findings.fail(path, line, refusal(capability, used));
            }
        }
    }
    for ((path, name), line) in exceptions {
        findings.fail(
            ARCHITECTURE,
            line,
            format!(
                "has an exception `{path}` for `{name}`, but that file does not use `{name}`: delete the row"
            ),
        );
    }
}

fn refusal(capability: &Capability, used: &str) -> String {
    let Capability { name, instead, .. } = capability;
    let row = EXCEPTIONS.join(" | ");
    format!(
        "`{used}` is not allowed here ({name}): {instead}; an exception is a row under `| {row} |` in {ARCHITECTURE}"
    )
}

/// Reads the first table. Returns, for each capability, the crates and modules that may use it.
fn allowed_scopes<'a>(page: &'a str, findings: &mut Findings) -> BTreeMap<&'a str, Vec<&'a str>> {
    let rows = table::rows(page, &ALLOWED).unwrap_or_default();
    let mut allowed = BTreeMap::new();
    for row in &rows {
        for name in table::names(row.cells[0]) {
            if !CAPABILITIES.iter().any(|capability| capability.name == name) {
                findings.fail(
                    ARCHITECTURE,
                    row.line,
                    format!("tidy does not know what `{name}` is: {}", known_capabilities()),
                );
            }
            allowed.insert(name, table::names(row.cells[1]));
        }
    }
    for capability in CAPABILITIES.iter().filter(|capability| !allowed.contains_key(capability.name)) {
        let header = ALLOWED.join(" | ");
        findings.fail(ARCHITECTURE, 1, format!("has no row for `{}` under `| {header} |`", capability.name));
    }
    allowed
}

fn known_capabilities() -> String {
    let names: Vec<_> = CAPABILITIES.iter().map(|capability| capability.name).collect();
    format!("it knows {}", names.join(", "))
}

/// Reads the table of exceptions. Returns each pair of a file and a capability, with the line of its row.
fn exceptions<'a>(page: &'a str, findings: &mut Findings) -> BTreeMap<(&'a str, &'a str), usize> {
    let mut exceptions = BTreeMap::new();
    for row in table::rows(page, &EXCEPTIONS).unwrap_or_default() {
        if row.cells[2].is_empty() {
            findings.fail(
                ARCHITECTURE,
                row.line,
                "has no reason for its exception: write one in the row".to_owned(),
            );
        }
        for path in table::names(row.cells[0]) {
            exceptions.extend(table::names(row.cells[1]).into_iter().map(|name| ((path, name), row.line)));
        }
    }
    exceptions
}

/// Returns the source files of the product's crates, each with the names that it uses. Leaves out modules for tests.
pub fn product_sources<'a>(
    repository: &'a Repository,
    findings: &mut Findings,
) -> Vec<(&'a str, SourceNames)> {
    let mut sources = Vec::new();
    let mut test_modules = BTreeSet::new();
    for (path, text) in repository.texts().filter(|(path, _)| is_product(path)) {
        match source::names(text) {
            Err(error) => findings.fail(path, 1, format!("cannot be read as Rust, at line {error}")),
            Ok(names) => {
                test_modules.extend(names.test_modules.iter().map(|name| module_within(path, name)));
                sources.push((path, names));
            }
        }
    }
    sources.retain(|(path, _)| !test_modules.iter().any(|module| is_module(module, path)));
    sources
}

fn is_product(path: &str) -> bool {
    let mut parts = path.split('/');
    parts.next().is_some_and(|root| PRODUCT_FOLDERS.contains(&root))
        && parts.nth(1) == Some("src")
        && path.ends_with(".rs")
}

/// Returns the path of the module `name`, which the file `path` declares. The path lacks the extension of the module's
/// file.
fn module_within(path: &str, name: &str) -> String {
    let stem = path.trim_end_matches(".rs");
    let folder = ["/lib", "/main", "/mod"].iter().find_map(|root| stem.strip_suffix(root)).unwrap_or(stem);
    format!("{folder}/{name}")
}

/// Whether the file `path` is this module, or is inside this module's folder.
fn is_module(module: &str, path: &str) -> bool {
    path.strip_prefix(module).is_some_and(|rest| rest == ".rs" || rest.starts_with('/'))
}

/// Whether a file belongs to `scope`: a crate such as `topic`, or a module such as `topic::segment`.
fn scope_contains(scope: &str, path: &str) -> bool {
    match scope.split_once("::") {
        None => path.split('/').nth(1) == Some(scope),
        Some((name, module)) => is_module(&format!("crates/{name}/src/{}", module.replace("::", "/")), path),
    }
}

/// Returns the lines of a file that use a capability. For each line number, the value is the name through which the
/// line uses the capability.
fn capability_uses<'a>(capability: &Capability, names: &'a SourceNames) -> BTreeMap<usize, &'a str> {
    let uses = names.used.iter().filter(|(_, path)| capability.is_used_by(path));
    uses.map(|(line, path)| (*line, path.as_str())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "| capability | used only in |\n|---|---|\n| `sockets` | `server` |\n| `disk` | `cli` |\n\
                        | `clock` | `cli` |\n| `threads` | – |\n| `processes` | – |\n\
                        | `openraft` | – |\n| `tonic` | `server::grpc` |\n| `unsafe` | `topic::segment` |\n";

    fn findings_for(page: &str, files: &[(&str, &str)]) -> Vec<String> {
        let mut findings = Findings::default();
        let empty_file = ("x", "");
        let file = |at: usize| files.get(at).copied().unwrap_or(empty_file);
        check(&Repository::of([(ARCHITECTURE, page), file(0), file(1)]), &mut findings);
        findings.failures()
    }

    fn findings_in_file(path: &str, text: &str) -> Vec<String> {
        findings_for(PAGE, &[(path, text)])
    }

    #[test]
    fn use_of_a_capability_outside_its_allowed_files_fails() {
        let sources = [
            "use std::net::TcpStream;",
            "use std::{fmt, net::{Shutdown}};",
            "fn f() { tokio::net::lookup_host(a) }",
            "fn f() -> UnixStream {}",
            "use std::fs;",
            "fn f() { File::open(p) }",
            "fn f() { let now = Instant::now(); }",
            "fn f() -> std::time::SystemTime {}",
            "fn f() { std::thread::spawn(g) }",
            "use std::process::Command;",
            "use openraft::Raft;",
            "impl tonic::Service for A {}",
            "fn f() { unsafe { g() } }",
        ];
        for source in sources {
            let found = findings_in_file("crates/topic/src/log.rs", source);
            assert_eq!(found.len(), 1, "{source}: {found:?}");
            assert!(found[0].starts_with("crates/topic/src/log.rs:1: "), "{found:?}");
        }
    }

    #[test]
    fn listed_files_and_tests_may_use_restricted_functions() {
        assert!(findings_in_file("crates/server/src/protocol.rs", "use tokio::net::TcpListener;").is_empty());
        assert!(findings_in_file("crates/topic/src/segment.rs", "unsafe {}").is_empty());
        assert!(findings_in_file("crates/topic/src/segment/pool.rs", "unsafe {}").is_empty());
        assert!(!findings_in_file("crates/topic/src/segments.rs", "unsafe {}").is_empty());
        assert!(
            findings_in_file("crates/wire/src/hello.rs", "use std::net::{SocketAddr, IpAddr};").is_empty()
        );
        assert!(
            findings_in_file("crates/wire/src/a.rs", "use std::time::Instant; use std::process::ExitCode;")
                .is_empty()
        );
        assert!(
            findings_in_file("crates/topic/src/log.rs", "#[cfg(test)] mod tests { use std::fs; }").is_empty()
        );
        assert!(findings_in_file("crates/topic/tests/it/main.rs", "use std::fs;").is_empty());
        assert!(findings_in_file("xtask/src/data.rs", "use std::fs;").is_empty());
    }

    #[test]
    fn test_modules_in_separate_files_may_use_std_fs() {
        let product = ("crates/topic/src/log.rs", "#[cfg(test)]\nmod model;");
        assert!(findings_for(PAGE, &[product, ("crates/topic/src/log/model.rs", "use std::fs;")]).is_empty());
        assert!(!findings_for(PAGE, &[product, ("crates/topic/src/model.rs", "use std::fs;")]).is_empty());
    }

    #[test]
    fn unused_or_unexplained_exception_in_the_table_is_reported() {
        let with = |reason: &str| {
            format!(
                "{PAGE}\n| file | may name | because |\n|---|---|---|\n| `crates/topic/src/log.rs` | `clock` | {reason} |\n"
            )
        };
        let clock = ("crates/topic/src/log.rs", "fn f() { Instant::now() }");
        assert!(findings_for(&with("deadlines of waits"), &[clock]).is_empty());
        assert!(findings_for(&with(""), &[clock])[0].contains("has no reason"));
        let unused = findings_for(&with("deadlines of waits"), &[("crates/topic/src/log.rs", "")]);
        assert!(unused[0].starts_with("ARCHITECTURE.md:14: has an exception"), "{unused:?}");
    }

    #[test]
    fn tidy_reports_unknown_and_missing_capabilities() {
        let found = findings_for(&PAGE.replace("`unsafe`", "`magic`"), &[]);
        assert_eq!(found.len(), 2, "{found:?}");
    }
}
