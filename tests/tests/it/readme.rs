//! Runs the example programs in README.md, which subscribe to a topic. The tests extract these programs from the
//! README.
//!
//! The tests always run the Rust program and the `curl` command. They run the Go and Node.js programs only in `cargo
//! xtask nats-clients`. The Python program runs in `clients/python/tests/test_examples.py`.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use dunlin::topic::{Publish, Publisher};
use dunlin::{Config, Node};
use dunlin_server::{Protocol, Server, ServerConfig};
use dunlin_system_tests::process::{PATIENCE, Process};

const SUBJECT: &str = "orders.eu";
const PAYLOAD: &str = "{\"qty\":5}";
/// The pause between two records that the test publishes. The test publishes one record after another until the program
/// prints one.
const PAUSE: Duration = Duration::from_millis(20);

/// A node with the configuration of the node of `dunlin dev`, except for its ports.
struct Dev {
    server: Server,
    publisher: Publisher,
}

impl Dev {
    fn start() -> Dev {
        let any = || vec!["127.0.0.1:0".parse().expect("an address")];
        let config = ServerConfig { tcp: any(), nats: any(), http: any(), ..ServerConfig::default() };
        let node = Node::start(Config::default()).expect("a node starts");
        let server = Server::start(node.clone(), config).expect("the listeners open");
        Dev { server, publisher: node.publisher(SUBJECT).expect("the topic is created") }
    }

    /// Returns `text`, with the addresses of `dunlin dev` replaced by the addresses of this node.
    fn with_node_addresses(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for (protocol, port) in [(Protocol::Tcp, 4220), (Protocol::Nats, 4222), (Protocol::Http, 8222)] {
            let (_, address) =
                self.server.addresses().iter().find(|(open, _)| *open == protocol).expect("the port is open");
            text = text.replace(&format!("127.0.0.1:{port}"), &address.to_string());
        }
        text
    }

    /// Publishes records until the program prints the line `line`. Several records are needed, because the test does
    /// not know when the program has subscribed.
    fn wait_for_output(&mut self, mut program: Process, line: &str) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            self.publisher.publish(PAYLOAD).expect("the node takes it");
            if program.lines_so_far().iter().any(|printed| printed == line) {
                return;
            }
            assert!(
                Instant::now() < deadline,
                "the node never printed {line:?}; standard error: {}",
                program.errors()
            );
            std::thread::sleep(PAUSE);
        }
    }
}

/// Returns the README's example program for `language`, which is the language of the program's code block.
fn snippet(language: &str) -> String {
    let page = std::fs::read_to_string(root().join("README.md")).expect("the page is there");
    let chapter = page.split("\n## ").find(|chapter| chapter.starts_with("In your language\n"));
    let fence = format!("```{language}");
    let mut programs = chapter.expect("the page has the chapter").split(&fence).skip(1);
    // The rest of the fence's line says how other tests run the block.
    let program = programs.next().and_then(|rest| rest.split("```").next());
    let (_, program) = program.and_then(|text| text.split_once('\n')).expect("the README has this language");
    assert!(programs.next().is_none(), "one program in {language}");
    program.to_owned()
}

/// Returns the command in the text of the README that begins with `beginning`.
fn inline_command(beginning: &str) -> String {
    let page = std::fs::read_to_string(root().join("README.md")).expect("the page is there");
    let mut commands = page.split('`').filter(|part| part.starts_with(beginning));
    let command = commands.next().expect("the README has this command");
    assert!(commands.next().is_none(), "one command begins with {beginning}");
    command.to_owned()
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn process(program: &str, arguments: &[&str]) -> Process {
    Process::start(program, program, &arguments.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>())
}

fn expected_line() -> String {
    format!("{SUBJECT} {PAYLOAD}")
}

#[test]
fn rust_client_subscribes_as_shown_in_the_readme() {
    let mut node = Dev::start();
    let url = node.with_node_addresses("dunlin://127.0.0.1:4220");
    node.wait_for_output(process(env!("CARGO_BIN_EXE_readme-rust"), &[&url]), &expected_line());
}

#[test]
fn curl_subscribes_as_shown_in_the_readme() {
    let mut node = Dev::start();
    // `exec` replaces the shell by the command, so that killing the process ends the command.
    let command = format!("exec {}", node.with_node_addresses(&inline_command("curl -N ")));
    node.wait_for_output(process("sh", &["-c", &command]), &format!("data: {PAYLOAD}"));
}

#[test]
#[ignore = "needs nats.go: cargo xtask nats-clients"]
fn nats_go_subscribes_as_shown_in_the_readme() {
    let mut node = Dev::start();
    let module = test_dir("readme-go");
    std::fs::write(module.join("main.go"), node.with_node_addresses(&snippet("go")))
        .expect("the file can be written");
    for file in ["go.mod", "go.sum"] {
        let from = root().join("tests/clients/nats_go").join(file);
        std::fs::copy(from, module.join(file)).expect("the file can be copied");
    }
    let program = module.join("subscribe");
    let build = Command::new("go").args(["build", "-o"]).arg(&program).current_dir(&module).status();
    assert!(build.expect("go is there").success(), "the page's program is built");
    node.wait_for_output(process(&program.display().to_string(), &[]), &expected_line());
}

#[test]
#[ignore = "needs nats.js: cargo xtask nats-clients"]
fn nats_js_subscribes_as_shown_in_the_readme() {
    let mut node = Dev::start();
    // The program's file must be beside the installed library, because Node.js searches for the library there.
    let program = test_dir("js").join("readme.mjs");
    std::fs::write(&program, node.with_node_addresses(&snippet("js"))).expect("the file can be written");
    node.wait_for_output(process("node", &[&program.display().to_string()]), &expected_line());
}

/// Creates a directory for a test's program, beside the libraries that `cargo xtask nats-clients` installs, and returns
/// its path.
fn test_dir(name: &str) -> PathBuf {
    let libraries = std::env::var_os("DUNLIN_NATS_CLIENTS").expect("cargo xtask nats-clients says where");
    let folder = Path::new(&libraries).join(name);
    std::fs::create_dir_all(&folder).expect("the folder can be created");
    folder
}
