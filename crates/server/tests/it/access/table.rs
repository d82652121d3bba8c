//! Checks the table of permissions in `docs/security.md`. Each request needs a row, and each row must name existing
//! functions and tests. If a route or call has no row, it must refuse clients that are not logged in.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use dunlin_server::Protocol;

use super::{Guarded, PASSWORD, basic};

/// One row of the table of permissions.
struct Row {
    section: String,
    what: Vec<String>,
    who: String,
    checked_in: Vec<String>,
    test: Vec<String>,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Returns the texts between backticks in a cell of the table.
fn named(cell: &str) -> Vec<String> {
    cell.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

fn rows() -> Vec<Row> {
    let docs = read("docs/security.md");
    let (_, table) = docs.split_once("\n## Permissions\n").expect("the section");
    let table = table.split("\n## ").next().unwrap();
    let (mut section, mut rows) = (String::new(), Vec::new());
    for line in table.lines() {
        if let Some(name) = line.strip_prefix("### ") {
            section = name.to_owned();
        }
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        if !line.starts_with("| ") || cells[0] == "what" {
            continue;
        }
        let [what, who, checked_in, test] = cells[..] else { panic!("four cells: {line}") };
        let (what, checked_in, test) = (named(what), named(checked_in), named(test));
        rows.push(Row { section: section.clone(), what, who: who.to_owned(), checked_in, test });
    }
    rows
}

/// Checks that the rows of a section name exactly the items of `expected`, each of them once.
fn check_section(rows: &[Row], section: &str, expected: &[String]) {
    let of_section = rows.iter().filter(|row| row.section == section);
    let named: Vec<&String> = of_section.flat_map(|row| &row.what).collect();
    assert_eq!(named.len(), named.iter().collect::<BTreeSet<_>>().len(), "{section}: twice in {named:?}");
    let (named, expected): (BTreeSet<_>, BTreeSet<_>) =
        (named.into_iter().collect(), expected.iter().collect());
    let missing: Vec<_> = expected.difference(&named).collect();
    let unknown: Vec<_> = named.difference(&expected).collect();
    assert!(
        missing.is_empty() && unknown.is_empty(),
        "{section}: without a row {missing:?}, not there {unknown:?}"
    );
}

/// Returns the method and path of each route that the HTTP listener serves.
fn routes() -> Vec<String> {
    let paths = read("crates/server/src/http/paths.rs");
    let path_of = |name: &str| {
        let begin = format!("const {name}: &str = \"");
        let (_, rest) = paths.split_once(&begin).unwrap_or_else(|| panic!("no path {name}"));
        rest.split('"').next().unwrap().to_owned()
    };
    let source = read("crates/server/src/http/routes.rs");
    let mut routes = Vec::new();
    for route in source.split(".route(").skip(1) {
        let route = route.split(".fallback").next().unwrap();
        let (_, rest) = route.split_once("paths::").unwrap();
        let path = path_of(rest.split(|c: char| !c.is_ascii_uppercase()).next().unwrap());
        for method in ["get", "put", "post", "delete"] {
            let is_present = [".", "("].iter().any(|before| route.contains(&format!("{before}{method}(")));
            routes.extend(is_present.then(|| format!("{} {path}", method.to_uppercase())));
        }
    }
    routes
}

/// Returns each call of the gRPC listener, as `Service.Call` and as a full path.
fn calls() -> Vec<(String, String)> {
    let mut calls = Vec::new();
    for file in ["dunlin/v1/dunlin", "dunlin/v1/kv", "dunlin/v1/tasks", "ratatoskr/ratatoskr"] {
        let text = read(&format!("crates/server/proto/{file}.proto"));
        let (mut package, mut service) = (String::new(), String::new());
        for line in text.lines() {
            let word = |at: usize| line.split([' ', '(', ';', '{']).filter(|word| !word.is_empty()).nth(at);
            match word(0) {
                Some("package") => package = word(1).unwrap().to_owned(),
                Some("service") => service = word(1).unwrap().to_owned(),
                Some("rpc") => {
                    let name = word(1).unwrap();
                    calls.push((format!("{service}.{name}"), format!("/{package}.{service}/{name}")));
                }
                _ => {}
            }
        }
    }
    calls
}

/// Reads the names of an enum's variants from its source file. The variants follow after the text `begin`.
fn variants(path: &str, begin: &str) -> Vec<String> {
    let source = read(path);
    let (_, rest) = source.split_once(begin).unwrap_or_else(|| panic!("no {begin} in {path}"));
    let indent = rest.lines().find(|line| !line.trim().is_empty()).unwrap();
    let indent = &indent[..indent.len() - indent.trim_start().len()];
    let body = rest.lines().take_while(|line| line.is_empty() || line.starts_with(indent));
    let name = |line: &str| {
        let name = line.strip_prefix(indent)?.split(|c: char| !c.is_ascii_alphanumeric()).next()?.to_owned();
        name.starts_with(|c: char| c.is_ascii_uppercase()).then_some(name)
    };
    body.filter_map(name).collect()
}

#[test]
fn permission_docs_have_a_row_for_every_client_request() {
    let rows = rows();
    check_section(&rows, "HTTP", &routes());
    let calls: Vec<String> = calls().into_iter().map(|(name, _)| name).collect();
    check_section(&rows, "gRPC", &calls);
    let messages = variants("crates/wire/src/from_client.rs", "pub enum FromClient<'a> {");
    check_section(&rows, "Dunlin's own protocol and WebSocket", &messages);
    let operation = read("crates/wire/src/nats/operation.rs");
    let verbs = operation.lines().find(|line| line.starts_with("const VERBS")).unwrap();
    let verbs: Vec<String> = verbs.split('"').skip(1).step_by(2).map(str::to_owned).collect();
    check_section(&rows, "NATS", &verbs);
    let of_keys = variants("crates/control/src/command.rs", "pub enum ControlCommand<'a> {");
    check_section(&rows, "Commands about keys, leases and locks", &of_keys);
    let of_tasks = variants("crates/tasks/src/command.rs", "pub enum TaskCommand<'a> {");
    check_section(&rows, "Commands about tasks", &of_tasks);
}

/// Appends the text of all Rust files below this directory to `text`.
fn source(dir: &Path, text: &mut String) {
    for entry in std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()) {
        if entry.is_dir() {
            source(&entry, text);
        } else if entry.extension().is_some_and(|extension| extension == "rs") {
            text.push_str(&std::fs::read_to_string(entry).unwrap());
        }
    }
}

#[test]
fn functions_and_tests_named_in_the_permission_docs_exist() {
    let (mut node, mut tests) = (String::new(), String::new());
    source(&root().join("crates/dunlin/src"), &mut node);
    for dir in ["crates/dunlin/src", "crates/server", "crates/control/tests", "crates/cli/tests", "tests"] {
        source(&root().join(dir), &mut tests);
    }
    for row in rows() {
        for function in &row.checked_in {
            let is_present = ["(", "<"].iter().any(|after| node.contains(&format!("fn {function}{after}")));
            assert!(is_present, "{:?} is checked in {function}", row.what);
        }
        assert!(!row.test.is_empty(), "{:?} has no test", row.what);
        for test in &row.test {
            assert!(tests.contains(&format!("fn {test}()")), "{:?} is tried by {test}", row.what);
        }
    }
}

#[test]
fn anonymous_clients_reach_only_the_routes_listed_as_open() {
    let guarded = Guarded::new("[users.nobody]\npassword = \"HASH\"\n");
    let rows = rows();
    let is_open = |what: &str| {
        let row = rows.iter().find(|row| row.what.iter().any(|named| named == what)).unwrap();
        row.who.starts_with("everybody")
    };
    for route in routes() {
        let (method, path) = route.split_once(' ').unwrap();
        let path = path.replace("{*name}", "x").replace("{name}", "x");
        let stranger = guarded.http(method, &path, "", b"");
        assert_eq!(stranger.status != 401, is_open(&route), "{route}: {stranger:?}");
        // Instead of a refusal, the response may be an empty list, or the error for an invalid request.
        let unprivileged = guarded.http(method, &path, &basic("nobody", PASSWORD), b"");
        let is_list = matches!(route.as_str(), "GET /v1/topics");
        assert_eq!(
            unprivileged.status < 400,
            is_open(&route) && path != "/v1/ws" || is_list,
            "{route}: {unprivileged:?}"
        );
        assert!(!is_list || unprivileged.text().contains("[]"), "{route}: {unprivileged:?}");
    }
    crate::grpc::run(async {
        let address = guarded.address(Protocol::Grpc);
        let channel = tonic::transport::Endpoint::from_shared(format!("http://{address}")).unwrap();
        let mut client = tonic::client::Grpc::new(channel.connect().await.unwrap());
        for (call, path) in calls() {
            client.ready().await.unwrap();
            let codec = tonic_prost::ProstCodec::<(), ()>::default();
            let request = client.unary(tonic::Request::new(()), path.parse().unwrap(), codec).await;
            let code = request.map_or_else(|refused| refused.code(), |_| tonic::Code::Ok);
            assert_eq!(code, tonic::Code::Unauthenticated, "{call}");
        }
    });
}
