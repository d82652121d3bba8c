//! Tests of the options for TLS that the commands have.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use dunlin_wait::{find, until};

use crate::dunlin::{Node, Outcome, dunlin, run, signal};

/// A running `dunlin dev --tls`, the directory of its certificates, and the lines that it has printed.
struct Dev {
    child: Child,
    lines: Vec<String>,
}

impl Dev {
    fn start(dir: &Path, more: &[&str]) -> Dev {
        let (any, tls) = ("127.0.0.1:0", format!("--tls={}", dir.display()));
        let listeners = ["--listen", any, "--nats-listen", any, "--http-listen", any, "--grpc-listen", any];
        let arguments = [&["dev", &tls], &listeners[..], more].concat();
        let mut child = dunlin(&arguments).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = Vec::new();
        for line in BufReader::new(child.stdout.take().unwrap()).lines() {
            lines.push(line.unwrap());
            if lines.last().is_some_and(|line| line.starts_with("Ctrl-C")) {
                break;
            }
        }
        Dev { child, lines }
    }

    /// Returns the rest of the first output line that begins with `prefix`. Indentation before `prefix` is ignored.
    fn rest_of_line(&self, prefix: &str) -> &str {
        let found = self.lines.iter().find_map(|line| line.trim().strip_prefix(prefix));
        found.unwrap_or_else(|| panic!("no {prefix:?} in {:#?}", self.lines))
    }

    /// Runs a command in a shell, after the commands that `dunlin dev` has printed to set variables.
    fn run_printed(&self, command: &str) -> Outcome {
        retry_timeouts(|| self.run_printed_once(command))
    }

    fn run_printed_once(&self, command: &str) -> Outcome {
        let exports: Vec<_> =
            self.lines.iter().map(|line| line.trim()).filter(|line| line.starts_with("export ")).collect();
        let dunlin = Path::new(env!("CARGO_BIN_EXE_dunlin")).parent().unwrap().display();
        let script = format!("PATH={dunlin}:$PATH\n{}\n{command}", exports.join("\n"));
        let mut shell = Command::new("sh");
        shell.args(["-c", &script]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Outcome::of(shell.spawn().unwrap())
    }
}

/// Repeats an attempt that has timed out, because connecting may take longer than two seconds on a slow machine.
fn retry_timeouts(attempt: impl Fn() -> Outcome) -> Outcome {
    find("the node answers in time", || {
        let outcome = attempt();
        (!outcome.err.contains("did not answer in time")).then_some(outcome)
    })
}

impl Drop for Dev {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn dunlin_dev_prints_commands_that_work_over_tls() {
    let dir = tempfile::tempdir().unwrap();
    let tls = dir.path().join("tls");
    let dev = Dev::start(&tls, &[]);
    assert!(dev.rest_of_line("export DUNLIN_URL=").starts_with("tls://127.0.0.1:"));
    dev.rest_of_line("Created certificates in ");
    dev.run_printed("dunlin pub ticks hello").done();
    let read = dev.run_printed("dunlin sub ticks --from earliest --count 1").done();
    assert!(read.contains("hello"), "{read}");
    // The beginning of the curl command that `dunlin dev` has printed, up to the host and port in its URL.
    let curl = dev.rest_of_line("curl -N").split("/v1/").next().unwrap();
    assert!(dev.run_printed(&format!("curl -sS{curl}/healthz")).done().contains("alive"));
    assert!(dev.rest_of_line("nats sub ticks -s tls://127.0.0.1:").contains("--tlsca"));
    // A second node uses the certificates of the first, and requires that clients have certificates too.
    let ca = tls.join("ca.pem");
    let second = Dev::start(&tls, &["--tls-client-ca", ca.to_str().unwrap()]);
    second.rest_of_line("Using the certificates in ");
    let refused = second.run_printed("dunlin pub ticks hello");
    assert!(refused.err.contains("requires a client certificate"), "{refused:?}");
    let options = second.rest_of_line("dunlin sub ticks --client-cert");
    second.run_printed(&format!("dunlin pub ticks hello --client-cert{options}")).done();
}

#[test]
fn missing_tls_files_and_incomplete_tls_settings_are_named() {
    let outcome =
        run(&["serve", "--listen", "127.0.0.1:0", "--tls-cert", "no.pem", "--tls-key", "no-key.pem"]);
    assert_eq!(outcome.code, Some(2));
    assert!(outcome.err.contains("no.pem: No such file"), "{outcome:?}");
    let outcome = run(&["serve", "--tls-cert", "no.pem"]);
    assert!(outcome.err.contains("tls.key is not"), "{outcome:?}");
    let outcome = run(&["pub", "t", "x", "--url", "tls://localhost:1", "--ca", "no.pem"]);
    assert!(outcome.err.contains("cannot read the CA file no.pem"), "{outcome:?}");
}

#[test]
fn sighup_reloads_certificates() {
    let dir = tempfile::tempdir().unwrap();
    let (old, new) = (dir.path().join("old"), dir.path().join("new"));
    // Create two directories of certificates, each with an authority of its own.
    drop((Dev::start(&old, &[]), Dev::start(&new, &[])));
    let file = |dir: &Path, name: &str| dir.join(name).to_str().unwrap().to_owned();
    let (cert, key) = (file(&old, "node.pem"), file(&old, "node-key.pem"));
    let node = Node::start_with(&["--tls-cert", &cert, "--tls-key", &key]);
    assert!(node.ready.trim_end().ends_with(" tls=on"), "{}", node.ready);
    let url = node.url.replace("dunlin://127.0.0.1", "tls://localhost");
    let publish =
        |ca: &Path| retry_timeouts(|| run(&["pub", "t", "x", "--url", &url, "--ca", &file(ca, "ca.pem")]));
    publish(&old).done();
    for name in ["node.pem", "node-key.pem"] {
        std::fs::copy(new.join(name), old.join(name)).unwrap();
    }
    signal("HUP", node.pid());
    until("the new certificate is shown", || publish(&new).code == Some(0));
    let refused = publish(&old);
    assert!(refused.err.contains("not trusted here"), "{refused:?}");
    assert_eq!(node.stop(), Some(0));
}
