//! Tests of `dunlin cluster` and of `dunlin dev --nodes`.

use dunlin_chaos::port;
use dunlin_wait::{Deadline, find};
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::os::unix::ffi::OsStrExt;
use std::process::{Child, Command, Stdio};

use crate::dunlin::{Node, Outcome, RunningProgram, dunlin, run, run_with, signal};
use crate::http::curl;

/// Starts `dev --nodes 3` in a directory. Returns the program, and the lines that it has printed until all nodes run.
fn start_dev(dir: &str) -> (RunningProgram, Vec<String>) {
    let mut child: Child = dunlin(&["dev", "--nodes", "3", "--data-dir", dir])
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let out = BufReader::new(child.stdout.take().expect("a pipe"));
    let mut lines = Vec::new();
    for line in out.lines().map_while(Result::ok) {
        let is_last = line.starts_with("Ctrl-C");
        lines.push(line);
        if is_last {
            break;
        }
    }
    (child.into(), lines)
}

fn status(dir: &str) -> Vec<serde_json::Value> {
    // The command fails while no node responds, so its exit code is ignored.
    let out = run(&["cluster", "status", "--json", "--data-dir", dir]).out;
    out.lines().map(|line| serde_json::from_str(line).expect("an object")).collect()
}

fn until(dir: &str, what: &str, condition: impl Fn(&[serde_json::Value]) -> bool) -> Vec<serde_json::Value> {
    let deadline = Deadline::new();
    loop {
        let nodes = status(dir);
        if condition(&nodes) {
            return nodes;
        }
        deadline.check(format_args!("{what}: {nodes:#?}"));
    }
}

fn has_leader(nodes: &[serde_json::Value]) -> bool {
    nodes.iter().any(|node| node["role"] == "leader")
}

/// Whether `nodes` contains `count` nodes, each of which knows `count` voters.
fn all_vote(nodes: &[serde_json::Value], count: usize) -> bool {
    nodes.len() == count
        && nodes.iter().all(|node| node["voters"].as_array().is_some_and(|voters| voters.len() == count))
}

fn leader(nodes: &[serde_json::Value]) -> u64 {
    let leader = nodes.iter().find(|node| node["role"] == "leader").expect("a node is the leader");
    leader["node"].as_u64().expect("a number")
}

#[test]
fn cluster_of_three_nodes_can_be_administered() {
    let temporary = tempfile::tempdir().unwrap();
    let dir = temporary.path().to_str().unwrap();
    let (mut child, output) = start_dev(dir);
    assert!(output.iter().any(|line| line.contains("a cluster of 3")), "{output:#?}");
    let first = format!("{dir}/node-1");
    let nodes = until(&first, "all are ready", |nodes| {
        all_vote(nodes, 3) && has_leader(nodes) && nodes.iter().all(|node| node["ready"] == true)
    });
    let before = leader(&nodes);
    let to = if before == 2 { "3" } else { "2" };
    let moved = run(&["cluster", "transfer", to, "--json", "--data-dir", &first]).done();
    assert!(moved.contains(&format!("\"leader\":{to}")), "{moved}");
    let table = run(&["cluster", "status", "--data-dir", &first]).done();
    assert!(table.contains("NODE") && table.lines().count() == 5, "{table}");
    move_topic(&nodes);
    // The command works with the data directory of any of the nodes.
    let token = run(&["cluster", "token", "--ttl", "1m", "--data-dir", &format!("{dir}/node-3")]).done();
    assert!(token.starts_with("dunlin-join-1-"), "{token}");
    let added = run(&["cluster", "add", "--data-dir", &first]).done();
    assert!(added.contains("--join 127.0.0.1:") && added.contains("dunlin-join-1-"), "{added}");
    let refused = run(&["cluster", "remove", "9", "--data-dir", &first]);
    assert_eq!((refused.code, refused.err.contains("there is no node 9")), (Some(1), true), "{refused:?}");
    let backup = format!("{dir}/backup");
    run(&["cluster", "backup", &backup, "--data-dir", &first]).done();
    let new = format!("{dir}/new");
    let restored = run(&["cluster", "restore", &backup, "--data-dir", &new]).done();
    assert!(restored.contains("first node of a new cluster"), "{restored}");
    let again = run(&["cluster", "restore", &backup, "--data-dir", &new]);
    assert_eq!((again.code, again.err.contains("is not empty")), (Some(1), true), "{again:?}");
    // After a signal, the program must end, and all nodes that it has started must end too.
    Command::new("kill").arg(child.id().to_string()).status().unwrap();
    assert!(child.wait().unwrap().success());
    let unreachable = run(&["cluster", "status", "--data-dir", &first]);
    assert_eq!(unreachable.code, Some(2), "{unreachable:?}");
    assert!(unreachable.err.contains("no node of the cluster responds"), "{unreachable:?}");
    let unreachable = run(&["cluster", "status", "--json", "--data-dir", &first]);
    assert!(unreachable.code == Some(2) && unreachable.out.contains("\"error\":"), "{unreachable:?}");
}

#[test]
fn data_directory_may_have_a_name_that_is_not_utf_8() {
    let temporary = tempfile::tempdir().unwrap();
    let dir = temporary.path().join(OsStr::from_bytes(b"\xff"));
    let mut command = dunlin(&["cluster", "init", "--json", "--data-dir"]);
    command.arg(&dir);
    let created: serde_json::Value = serde_json::from_str(&run_with(command, b"").done()).expect("an object");
    assert_eq!(created["data_dir"].as_str(), Some(&*dir.to_string_lossy()));
}

/// Moves a topic to the second node and then to the third. Sends all requests to the first node.
fn move_topic(nodes: &[serde_json::Value]) {
    let url = format!("dunlin://{}", nodes[0]["listeners"]["tcp"].as_str().expect("an address"));
    let run_client = |arguments: &[&str]| {
        let mut command = dunlin(arguments);
        command.env("DUNLIN_URL", &url);
        run_with(command, b"")
    };
    run_client(&["topics", "create", "orders"]).done();
    run_client(&["pub", "orders", "before"]).done();
    let owner = || -> serde_json::Value {
        let described = run_client(&["topics", "describe", "orders", "--json"]).done();
        serde_json::from_str::<serde_json::Value>(&described).expect("an object")["owner"].clone()
    };
    for to in [2, 3] {
        let Outcome { code, err, .. } = find("it takes part", || {
            let moved = run_client(&["topics", "move", "orders", &to.to_string()]);
            // On a busy machine, the lease of the target node may have ended for a moment. If so, repeat the move.
            (!moved.err.contains("is not a member at present")).then_some(moved)
        });
        assert!(code == Some(0) && err.contains(&format!("moved orders to node {to}, epoch ")), "{err}");
        dunlin_wait::until(format!("node {to} owns it"), || owner()["node"] == to);
        run_client(&["pub", "orders", &format!("at {to}")]).done();
    }
    let read = ["sub", "orders", "--from", "earliest", "--count", "1", "--format", "{payload}"];
    assert_eq!(run_client(&read).done().trim(), "before", "the records moved along");
}

#[test]
fn cluster_command_fails_on_a_node_without_a_cluster() {
    let temporary = tempfile::tempdir().unwrap();
    let dir = temporary.path().to_str().unwrap();
    let commands = [&["status"][..], &["add"], &["token"], &["remove", "2"], &["transfer"], &["backup", "b"]];
    for command in commands {
        let refused = run(&[&["cluster"][..], command, &["--json", "--data-dir", dir]].concat());
        assert_eq!(refused.code, Some(1), "{command:?}: {refused:?}");
        assert!(refused.err.contains("\"code\":\"NO_CLUSTER\""), "{command:?}: {refused:?}");
    }
    let node = Node::start();
    node.run(&["topics", "create", "orders"]).done();
    let refused = node.run(&["topics", "move", "orders", "2"]);
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(refused.err.contains("NO_CLUSTER") && refused.err.contains("--cluster-listen"), "{refused:?}");
}

#[test]
fn missing_cluster_settings_are_named() {
    let temporary = tempfile::tempdir().unwrap();
    let dir = temporary.path().to_str().unwrap();
    let assert_error = |arguments: &[&str], expected: &str| {
        let Outcome { err, code, .. } = run(arguments);
        assert!(err.contains(expected) && code != Some(0), "{arguments:?}: {err}");
    };
    assert_error(&["cluster", "status", "--data-dir", dir], "is not the data directory of a cluster's node");
    assert_error(&["cluster", "status"], "--data-dir or DUNLIN_DATA_DIR");
    assert_error(
        &["serve", "--listen", "127.0.0.1:0", "--cluster-listen", "127.0.0.1:0"],
        "but not data_dir",
    );
    assert_error(&["serve", "--listen", "127.0.0.1:0", "--join", "127.0.0.1:1"], "but not cluster.listen");
    let node = ["serve", "--listen", "127.0.0.1:0", "--data-dir", dir, "--cluster-listen"];
    assert_error(
        &[&node[..], &["127.0.0.1:0", "--join", "127.0.0.1:1"]].concat(),
        "but not cluster.token_file",
    );
    assert_error(&[&node[..], &["0.0.0.0:0"]].concat(), "--cluster-advertise HOST:");
    assert_error(&[&node[..], &["127.0.0.1:0"]].concat(), "dunlin cluster init --data-dir");
    let token = format!("{dir}/token");
    std::fs::write(&token, "nonsense").unwrap();
    let join = ["127.0.0.1:0", "--join", "127.0.0.1:1", "--token-file", &token];
    assert_error(&[&node[..], &join].concat(), "invalid join token");
}

#[test]
fn refused_join_fails_at_once_and_a_pending_join_can_be_ended() {
    let temporary = tempfile::tempdir().unwrap();
    let dir = |name: &str| temporary.path().join(name).to_str().unwrap().to_owned();
    let start_first_node = |dir: &str| {
        run(&["cluster", "init", "--data-dir", dir]).done();
        Node::start_with(&["--data-dir", dir, "--cluster-listen", "127.0.0.1:0"])
    };
    let (one, _other) = (start_first_node(&dir("one")), start_first_node(&dir("other")));
    let field = |name: &str| one.ready.split_whitespace().find_map(|word| word.strip_prefix(name)).unwrap();
    let (cluster, token) = (field("cluster="), dir("token"));
    let token_text = run(&["cluster", "token", "--data-dir", &dir("other")]).done();
    std::fs::write(&token, token_text).unwrap();
    let new = dir("new");
    let join = |address: &str| {
        dunlin(
            &[
                &["serve", "--listen", "127.0.0.1:0", "--cluster-listen", "127.0.0.1:0", "--data-dir", &new]
                    [..],
                &["--join", address, "--token-file", &token],
            ]
            .concat(),
        )
    };
    // The command must report each of these errors at the first attempt to join.
    for (address, expected) in [
        ("nowhere", "expected a host and a port"),
        ("127.0.0.1:99999", "expected a host and a port"),
        (cluster, "the node at this address belongs to another cluster than the token"),
        (&nats_port(), "the port is not for nodes of a cluster: give the address of --cluster-listen"),
    ] {
        let Outcome { code, err, .. } = run_with(join(address), b"");
        assert!(code == Some(1) && err.contains(expected), "{address}: {code:?} {err}");
        assert!(!err.contains("still tries"), "{address}: {err}");
    }
    let mut child = join("127.0.0.1:1").stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let err = BufReader::new(child.stderr.take().unwrap());
    let mut lines = err.lines().map_while(Result::ok);
    let waiting_line =
        lines.find(|line| line.contains("still tries to join the cluster through 127.0.0.1:1: "));
    assert!(waiting_line.is_some(), "the command reports what it waits for");
    signal("TERM", child.id());
    let ended = Outcome::of(child);
    let rest: Vec<_> = lines.collect();
    assert!(ended.code == Some(0) && !rest.iter().any(|line| line.contains("cannot reach")), "{rest:?}");
}

/// If a member of a cluster has lost its identity, the error must not advise the operator to create a cluster, because
/// there would then be two clusters.
#[test]
fn error_for_a_lost_identity_does_not_advise_cluster_init() {
    let temporary = tempfile::tempdir().unwrap();
    let dir = |name: &str| temporary.path().join(name).to_str().unwrap().to_owned();
    let (one, two, token) = (dir("one"), dir("two"), dir("token"));
    run(&["cluster", "init", "--data-dir", &one]).done();
    let first = Node::start_with(&["--data-dir", &one, "--cluster-listen", "127.0.0.1:0"]);
    let token_text = run(&["cluster", "token", "--reusable", "--data-dir", &one]).done();
    std::fs::write(&token, token_text).unwrap();
    let address = first.ready_field("cluster=");
    // The second node must have the same address after its restart. While one of two nodes is stopped, there is no
    // leader, so the second node could not tell the first one a new address.
    let listen = port::free([127, 0, 0, 1].into()).to_string();
    let member = ["--data-dir", &two, "--cluster-listen", &listen];
    let join = [&member[..], &["--join", address, "--token-file", &token]].concat();
    let second = Node::start_with(&join);
    until(&two, "its logs have both members", |nodes| {
        all_vote(nodes, 2) && nodes.iter().all(|node| node["ready"] == true)
    });
    assert_eq!(second.stop(), Some(0));
    let identity_backup = dir("kept");
    std::fs::rename(format!("{two}/cluster/identity.json"), &identity_backup).unwrap();
    let assert_refused = |text: &str| {
        let serve = |more: &[&str]| run(&[&["serve", "--listen", "127.0.0.1:0"], more].concat());
        let all = [
            run(&["cluster", "init", "--data-dir", &two]),
            run(&["cluster", "status", "--data-dir", &two]),
            serve(&member),
            serve(&join),
        ];
        for Outcome { code, err, .. } in all {
            assert_ne!(code, Some(0), "{err}");
            assert!(err.contains(text) && err.contains("dunlin cluster remove"), "{err}");
            assert!(!err.contains("cluster init"), "{err}");
        }
    };
    let assert_unready = |text: &str| {
        let node = Node::start_with(&["--data-dir", &two, "--http-listen", "127.0.0.1:0"]);
        let http = node.ready_field("http=");
        let ready: serde_json::Value =
            serde_json::from_str(&curl(&[&format!("http://{http}/readyz")])).unwrap();
        let missing = ready["missing"].as_array().unwrap().clone();
        for (reason, part) in missing.iter().zip(["keys: ", "tasks: "]) {
            let reason = reason.as_str().unwrap();
            assert!(
                reason.contains(part) && reason.contains(text) && reason.contains("identity.json"),
                "{reason}"
            );
        }
        assert_eq!((&ready["ready"], missing.len()), (&false.into(), 2), "{ready}");
        let put = node.run(&["kv", "put", "a", "1"]);
        assert!(put.code != Some(0) && put.err.contains("identity.json"), "{put:?}");
    };
    assert_refused("it has cluster/node.pem");
    assert_unready("a member of a cluster");
    // Without the directory `cluster`, the file of the log still shows that the data directory belongs to a member of a
    // cluster.
    std::fs::rename(format!("{two}/cluster"), dir("cluster")).unwrap();
    assert_refused("the log in control belongs to a cluster of the nodes 1, 2");
    assert_unready("of the nodes 1, 2");
    // If a node stops before it has received the first entry of a log, this log names no members. To simulate this,
    // each of the node's two logs is removed in turn. The other log still names the members.
    let move_all = |log: &str, from: &str, to: &str| {
        for part in [log.to_owned(), format!("{log}.synced")] {
            std::fs::rename(format!("{from}/{part}"), format!("{to}/{part}")).unwrap();
        }
    };
    let other_dir = temporary.path().to_str().unwrap();
    for log in ["tasks", "control"] {
        move_all(log, &two, other_dir);
        let node = Node::start_with(&["--data-dir", &two]);
        for command in [&["kv", "put", "a", "1"][..], &["task", "list"]] {
            let Outcome { code, err, .. } = node.run(command);
            assert!(code != Some(0) && err.contains("of the nodes 1, 2"), "{log} {command:?}: {err}");
        }
        drop(node);
        move_all(log, other_dir, &two);
    }
    std::fs::rename(dir("cluster"), format!("{two}/cluster")).unwrap();
    std::fs::rename(&identity_backup, format!("{two}/cluster/identity.json")).unwrap();
    let second = Node::start_with(&member);
    dunlin_wait::until("the cluster has a leader again", || {
        second.run(&["kv", "put", "a", "1"]).code == Some(0)
    });
    assert_eq!(second.stop(), Some(0));
    // If the files of the old cluster are moved away, the directory can be used for a new cluster.
    for part in ["cluster", "control", "control.synced", "tasks", "tasks.synced"] {
        std::fs::rename(format!("{two}/{part}"), dir(&format!("old-{part}"))).unwrap();
    }
    run(&["cluster", "init", "--data-dir", &two]).done();
}

/// A cluster that begins with one node, and a reusable token with which more nodes can join.
struct NewCluster {
    first: Node,
    temporary: tempfile::TempDir,
}

impl NewCluster {
    fn start() -> NewCluster {
        let temporary = tempfile::tempdir().unwrap();
        let path = |name: &str| temporary.path().join(name).to_str().unwrap().to_owned();
        let (one, token) = (path("one"), path("token"));
        run(&["cluster", "init", "--data-dir", &one]).done();
        let first = Node::start_with(&["--data-dir", &one, "--cluster-listen", "127.0.0.1:0"]);
        std::fs::write(&token, run(&["cluster", "token", "--reusable", "--data-dir", &one]).done()).unwrap();
        NewCluster { first, temporary }
    }

    /// Returns the path of a file or directory of this test. The first node's data directory is `one`.
    fn path(&self, name: &str) -> String {
        self.temporary.path().join(name).to_str().unwrap().to_owned()
    }

    /// Starts a node that joins the cluster with the token.
    fn join(&self, data_dir: &str, listen: &str) -> Node {
        let address = self.first.ready_field("cluster=");
        let node = ["--data-dir", data_dir, "--cluster-listen", listen];
        Node::start_with(&[&node[..], &["--join", address, "--token-file", &self.path("token")]].concat())
    }

    /// Starts two nodes that join the cluster. Waits until all three nodes are voters.
    fn join_two(&self) -> [Node; 2] {
        let joined = ["two", "three"].map(|name| self.join(&self.path(name), "127.0.0.1:0"));
        until(&self.path("one"), "all nodes vote", |nodes| all_vote(nodes, 3) && has_leader(nodes));
        joined
    }
}

#[test]
fn removed_node_exits_with_1_at_once_and_after_a_restart() {
    let cluster = NewCluster::start();
    let (one, two) = (cluster.path("one"), cluster.path("two"));
    let listen = port::free([127, 0, 0, 1].into()).to_string();
    let second = cluster.join(&two, &listen);
    until(&one, "both nodes vote", |nodes| all_vote(nodes, 2));
    run(&["cluster", "remove", "2", "--data-dir", &one]).done();
    assert_eq!(second.wait(), Some(1));
    let again = run(&["serve", "--listen", "127.0.0.1:0", "--data-dir", &two, "--cluster-listen", &listen]);
    assert!(again.code == Some(1) && again.err.contains("was removed from"), "{again:?}");
    assert_eq!(cluster.first.stop(), Some(0));
}

#[test]
fn node_can_be_removed_while_it_joins_the_cluster() {
    let cluster = NewCluster::start();
    for number in ["2", "3", "4", "5"] {
        // A joining node writes its entry in the list of nodes several times. None of these writes may undo the removal
        // of the node.
        let joining = cluster.join(&cluster.path(number), "127.0.0.1:0");
        run(&["cluster", "remove", number, "--data-dir", &cluster.path("one")]).done();
        assert_eq!(joining.wait(), Some(1));
    }
    assert_eq!(cluster.first.stop(), Some(0));
}

#[test]
fn node_that_died_while_it_joined_can_be_removed() {
    let cluster = NewCluster::start();
    let one = cluster.path("one");
    let _second = cluster.join(&cluster.path("2"), "127.0.0.1:0");
    until(&one, "both nodes vote", |nodes| all_vote(nodes, 2));
    for number in ["3", "4", "5"] {
        // The node is killed right after it has joined, when the leader usually still waits for the node to catch up.
        cluster.join(&cluster.path(number), "127.0.0.1:0").kill();
        run(&["cluster", "remove", number, "--data-dir", &one]).done();
    }
    assert_eq!(cluster.first.stop(), Some(0));
}

#[test]
fn leadership_is_not_transferred_to_an_unresponsive_node() {
    let cluster = NewCluster::start();
    let [_second, third] = cluster.join_two();
    let one = cluster.path("one");
    third.kill();
    let another_leads = |nodes: &[serde_json::Value]| has_leader(nodes) && leader(nodes) != 3;
    until(&one, "another node leads", another_leads);
    let Outcome { code, err, .. } = run(&["cluster", "transfer", "3", "--data-dir", &one]);
    assert!(code == Some(1) && err.contains("node 3 does not respond"), "{err}");
    until(&one, "another node leads", another_leads);
    assert_eq!(cluster.first.stop(), Some(0));
}

#[test]
fn dump_fails_if_the_owner_of_the_topic_does_not_respond() {
    let cluster = NewCluster::start();
    let [_second, third] = cluster.join_two();
    // A durable topic stays at the node on which it was created, even if this node is down.
    third.run(&["topics", "create", "orders", "--durable"]).done();
    third.run(&["pub", "orders", "one"]).done();
    dunlin_wait::until("the first node reads the records of the third", || {
        let dumped = cluster.first.run(&["log", "dump", "orders"]);
        dumped.code == Some(0) && dumped.out.contains("| one")
    });
    third.kill();
    let Outcome { code, out, err } = cluster.first.run(&["log", "dump", "orders"]);
    assert!(code != Some(0) && err.contains("orders"), "{code:?} {out} {err}");
}

/// Starts a listener that sends each client the first bytes that a NATS server without TLS would send. Returns the
/// listener's address.
fn nats_port() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for mut socket in listener.incoming().flatten() {
            let _ = socket.write_all(b"INFO {}\r\n");
            let _ = std::io::copy(&mut socket, &mut std::io::sink());
        }
    });
    address
}

#[test]
fn kv_range_hides_system_keys_unless_they_are_requested() {
    let temporary = tempfile::tempdir().unwrap();
    let dir = temporary.path().to_str().unwrap();
    run(&["cluster", "init", "--data-dir", dir]).done();
    let node = Node::start_with(&["--data-dir", dir, "--cluster-listen", "127.0.0.1:0"]);
    node.run(&["kv", "put", "a", "1"]).done();
    assert_eq!(node.run(&["kv", "range", "--keys"]).done(), "a\n");
    assert_eq!(node.run(&["kv", "range", "--limit", "1"]).done(), "a\t1\n");
    // A new node also writes keys of its own in the background, so two listings of the keys may differ.
    let list_keys = |arguments: &[&str]| node.run(&[&["kv", "range", "--keys"], arguments].concat()).done();
    dunlin_wait::until("the node has written a key of its own", || list_keys(&["$"]).starts_with('$'));
    let all = list_keys(&["--system"]);
    assert!(all.lines().count() > 1 && all.ends_with("\na\n") && all.starts_with('$'), "{all}");
    let system_keys = list_keys(&["$"]);
    assert!(system_keys.lines().all(|key| key.starts_with('$')), "{system_keys}");
    node.run(&["topics", "create", "orders"]).done();
    for (arguments, expected) in [
        (
            &["topics", "move", "orders", "9"][..],
            "node 9 is not a member at present: `dunlin cluster status`",
        ),
        (&["kv", "put", &"k".repeat(5_000), "1"], "key_bytes_max = 4096, but the size is 5000"),
    ] {
        let Outcome { code, err, .. } = node.run(arguments);
        assert!(code == Some(1) && err.contains(expected), "{err}");
    }
}

#[test]
fn invalid_number_or_time_is_refused_with_an_example() {
    let assert_error = |arguments: &[&str], expected: &str| {
        let Outcome { err, code, .. } = run(arguments);
        assert!(err.contains(expected) && code != Some(0), "{arguments:?}: {err}");
    };
    let token = |ttl| ["cluster", "token", "--data-dir", "/nonexistent", "--ttl", ttl];
    assert_error(&token("0s"), "1ms to 366d");
    assert_error(&token("9000y"), "1ms to 366d");
    assert_error(&token("banana"), "30s, 5m or 2h");
    assert_error(&["cluster", "remove", "x"], "a node's number, as `dunlin cluster status` shows it");
    assert_error(&["topics", "move", "orders", "x"], "a node's number, as `dunlin cluster status` shows it");
    assert_error(&["lock", "a", "--ttl", "banana", "--", "true"], "30s, 5m or 2h");
    assert_error(&["topics", "list", "--url", "dunlin://127.0.0.1:99999"], "ports go from 0 to 65535");
}
