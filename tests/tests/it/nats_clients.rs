//! Tests of the NATS listener with unmodified NATS client libraries. The programs in `tests/clients` use these
//! libraries.
//!
//! `cargo xtask nats-clients` installs the libraries and runs these tests. If a library is missing in a run of this
//! command, the tests fail.

use std::path::PathBuf;

use dunlin_system_tests::process::{PATIENCE, Process};

use crate::nats_node::NatsNode;
use crate::tls_node::TlsNode;

const CASES: [&str; 11] = [
    "pub_sub",
    "headers",
    "wildcard",
    "queue_group",
    "request_reply",
    "no_responders",
    "unsub_max",
    "large_payload",
    "drain",
    "gaps",
    "reconnect",
];

#[test]
#[ignore = "needs nats.py: cargo xtask nats-clients"]
fn nats_py_passes_all_checks() {
    let script = sources().join("nats_py/client.py");
    check_client("nats.py", &installed_path("py/bin/python3"), &[script]);
}

#[test]
#[ignore = "needs nats.js: cargo xtask nats-clients"]
fn nats_js_passes_all_checks() {
    check_client("nats.js", &PathBuf::from("node"), &[installed_path("js/client.mjs")]);
}

#[test]
#[ignore = "needs nats.go: cargo xtask nats-clients"]
fn nats_go_passes_all_checks() {
    check_client("nats.go", &installed_path("go/client"), &[]);
}

#[test]
#[ignore = "needs nats.py: cargo xtask nats-clients"]
fn nats_py_passes_all_checks_over_tls() {
    check_client_over_tls(
        "nats.py",
        &installed_path("py/bin/python3"),
        &[sources().join("nats_py/client.py")],
    );
}

#[test]
#[ignore = "needs nats.js: cargo xtask nats-clients"]
fn nats_js_passes_all_checks_over_tls() {
    check_client_over_tls("nats.js", &PathBuf::from("node"), &[installed_path("js/client.mjs")]);
}

#[test]
#[ignore = "needs nats.go: cargo xtask nats-clients"]
fn nats_go_passes_all_checks_over_tls() {
    check_client_over_tls("nats.go", &installed_path("go/client"), &[]);
}

/// Returns the full path of a file that `cargo xtask nats-clients` has installed. `path` is relative to the directory
/// of these files.
fn installed_path(path: &str) -> PathBuf {
    let directory = std::env::var_os("DUNLIN_NATS_CLIENTS").expect("cargo xtask nats-clients says where");
    PathBuf::from(directory).join(path)
}

fn sources() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("clients")
}

fn check_client(name: &str, program: &std::path::Path, arguments: &[PathBuf]) {
    let mut node = NatsNode::start();
    let mut arguments: Vec<String> = arguments.iter().map(|path| path.display().to_string()).collect();
    arguments.push(node.url());
    let mut client = Process::start(name, &program.display().to_string(), &arguments);
    let mut passed = Vec::new();
    while let Some(line) = client.line_within(PATIENCE) {
        match line.split_once(' ') {
            Some(("ok", case)) => passed.push(case.to_owned()),
            Some(("stall", count)) => {
                client.stop();
                node.publish("gaps", count.parse().unwrap());
                client.resume();
                client.write_line("done");
            }
            _ if line == "restart" => {
                node.restart();
                client.write_line("done");
            }
            _ => panic!("unexpected line of {name}: {line:?}"),
        }
    }
    assert_eq!(passed, CASES, "{}", client.errors());
    assert!(client.wait().success(), "{}", client.errors());
}

/// Runs the cases over TLS with one client program. Leaves out the last two cases, in which the test would have to stop
/// the client or restart the node.
fn check_client_over_tls(name: &str, program: &std::path::Path, arguments: &[PathBuf]) {
    let node = TlsNode::start();
    let mut arguments: Vec<String> = arguments.iter().map(|path| path.display().to_string()).collect();
    arguments.extend([node.nats_url(), node.ca().display().to_string()]);
    let mut client = Process::start(name, &program.display().to_string(), &arguments);
    let mut passed = Vec::new();
    while let Some(line) = client.line_within(PATIENCE) {
        match line.split_once(' ') {
            Some(("ok", case)) => passed.push(case.to_owned()),
            _ => panic!("unexpected line of {name}: {line:?}"),
        }
    }
    assert_eq!(passed, CASES[..CASES.len() - 2], "{}", client.errors());
    assert!(client.wait().success(), "{}", client.errors());
}
