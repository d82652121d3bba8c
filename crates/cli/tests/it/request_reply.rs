//! Tests of `dunlin req` and `dunlin reply`.

use std::process::{Child, Stdio};
use std::thread;

use dunlin_wait::until;

use crate::dunlin::{Node, RunningProgram, read_stderr_until, signal};

/// A running `dunlin reply` whose subscription has begun.
struct Replier(Child);

impl Replier {
    fn start(node: &Node, arguments: &[&str]) -> Replier {
        let arguments = [&["reply"], arguments].concat();
        let replier = Replier(node.command(&arguments).stdout(Stdio::null()).spawn().unwrap());
        // A responder receives only requests that are published after its subscription has begun.
        until("the service has subscribed", || {
            node.run(&["topics", "describe", arguments[1], "--json"]).out.contains("\"subscribers_total\":1")
        });
        replier
    }
}

impl Drop for Replier {
    fn drop(&mut self) {
        signal("INT", self.0.id());
        let code = self.0.wait().unwrap().code();
        assert!(thread::panicking() || code == Some(0), "{code:?}");
    }
}

#[test]
fn dunlin_reply_can_echo_send_fixed_text_or_run_a_command() {
    let node = Node::start();
    let _echo = Replier::start(&node, &["echo", "--echo"]);
    let _text = Replier::start(&node, &["motd", "--text", "mind the gap"]);
    let _command =
        Replier::start(&node, &["loud", "--", "sh", "-c", "tr a-z A-Z; printf ' %s' \"$DUNLIN_HEADER_BY\""]);
    assert_eq!(node.run(&["req", "echo", "hello"]).done(), "hello");
    assert_eq!(node.run(&["req", "motd"]).done(), "mind the gap");
    assert_eq!(node.run_with(&["req", "loud", "-", "--header", "by=ear"], b"quiet").done(), "QUIET ear");
}

#[test]
fn failed_reply_command_is_reported_to_the_requester() {
    let node = Node::start();
    let _replier = Replier::start(&node, &["fails", "--", "sh", "-c", "exit 3"]);
    let outcome = node.run(&["req", "fails"]);
    assert_eq!(outcome.code, Some(1));
    assert!(outcome.err.contains("exit status: 3"), "{outcome:?}");
    let outcome = node.run(&["reply", "absent", "--", "no-such-command-anywhere"]);
    assert_eq!(outcome.code, Some(1));
    assert!(
        outcome.err.contains("cannot run no-such-command-anywhere: the command was not found"),
        "{outcome:?}"
    );
}

#[test]
fn dunlin_reply_reports_the_deletion_of_its_topic() {
    let node = Node::start();
    node.run(&["topics", "create", "services", "--pattern", "services.>"]).done();
    let mut command = node.command(&["reply", "services.>", "--echo"]);
    let mut replier: RunningProgram = command.stderr(Stdio::piped()).spawn().unwrap().into();
    until("the service has subscribed", || {
        node.run(&["topics", "describe", "services", "--json"]).out.contains("\"subscribers_total\":1")
    });
    node.run(&["topics", "delete", "services"]).done();
    read_stderr_until(&mut replier, "DELETED  services");
}

#[test]
fn dunlin_req_without_a_reply_exits_with_1_and_a_reason() {
    let node = Node::start();
    let outcome = node.run(&["req", "nobody", "hello", "--timeout", "50ms"]);
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
    assert!(outcome.err.contains("no subscriber on nobody: nothing was published"), "{outcome:?}");
    assert_eq!(node.run(&["topics", "list", "--json"]).done(), "", "no topic was created");
    let _subscriber =
        node.command(&["sub", "deaf"]).stdout(Stdio::null()).spawn().map(RunningProgram::from).unwrap();
    until("the subscriber has subscribed", || {
        node.run(&["topics", "list", "--json"]).out.contains("\"subscribers\":1")
    });
    let outcome = node.run(&["req", "deaf", "hello", "--timeout", "50ms"]);
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
    assert!(outcome.err.contains("no reply"), "{outcome:?}");
}
