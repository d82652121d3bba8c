//! `cluster`, and `dev --nodes`: a cluster as a person sees it.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::dunlin::{Outcome, Program, dunlin, run};

const PATIENCE: Duration = Duration::from_secs(120);

/// `dev --nodes 3` in a directory; what it says up to the point where it waits.
fn dev(dir: &str) -> (Program, Vec<String>) {
    let mut child: Child = dunlin(&["dev", "--nodes", "3", "--data-dir", dir])
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let out = BufReader::new(child.stdout.take().expect("a pipe"));
    let mut said = Vec::new();
    for line in out.lines().map_while(Result::ok) {
        let is_last = line.starts_with("Ctrl-C");
        said.push(line);
        if is_last {
            break;
        }
    }
    (child.into(), said)
}

fn status(dir: &str) -> Vec<serde_json::Value> {
    let out = run(&["cluster", "status", "--json", "--data-dir", dir]).done();
    out.lines().map(|line| serde_json::from_str(line).expect("an object")).collect()
}

fn until(dir: &str, what: &str, is_so: impl Fn(&[serde_json::Value]) -> bool) -> Vec<serde_json::Value> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let nodes = status(dir);
        if is_so(&nodes) {
            return nodes;
        }
        assert!(Instant::now() < deadline, "it never came to be that {what}: {nodes:#?}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn leader(nodes: &[serde_json::Value]) -> u64 {
    let leads = nodes.iter().find(|node| node["role"] == "leader").expect("one leads");
    leads["node"].as_u64().expect("a number")
}

#[test]
fn three_nodes_are_a_cluster_that_can_be_looked_after() {
    let temporary = tempfile::tempdir().unwrap();
    let dir = temporary.path().to_str().unwrap();
    let (mut child, said) = dev(dir);
    assert!(said.iter().any(|line| line.contains("a cluster of 3")), "{said:#?}");
    let first = format!("{dir}/node-1");
    let nodes = until(&first, "all are ready", |nodes| {
        nodes.len() == 3
            && nodes
                .iter()
                .all(|node| node["ready"] == true && node["voters"].as_array().is_some_and(|v| v.len() == 3))
    });
    let before = leader(&nodes);
    let to = if before == 2 { "3" } else { "2" };
    let moved = run(&["cluster", "transfer", to, "--json", "--data-dir", &first]).done();
    assert!(moved.contains(&format!("\"leader\":{to}")), "{moved}");
    let table = run(&["cluster", "status", "--data-dir", &first]).done();
    assert!(table.contains("NODE") && table.lines().count() == 5, "{table}");
    // Any node's directory will do.
    let token = run(&["cluster", "token", "--ttl", "1m", "--data-dir", &format!("{dir}/node-3")]).done();
    assert!(token.starts_with("dunlin-join-1-"), "{token}");
    let added = run(&["cluster", "add", "--data-dir", &first]).done();
    assert!(added.contains("--join 127.0.0.1:") && added.contains("dunlin-join-1-"), "{added}");
    let refused = run(&["cluster", "remove", "9", "--data-dir", &first]);
    assert_eq!((refused.code, refused.err.contains("there is no node 9")), (Some(1), true), "{refused:?}");
    let backup = format!("{dir}/backup");
    run(&["cluster", "backup", &backup, "--data-dir", &first]).done();
    let new = format!("{dir}/new");
    let made = run(&["cluster", "restore", &backup, "--data-dir", &new]).done();
    assert!(made.contains("first node of a new cluster"), "{made}");
    let again = run(&["cluster", "restore", &backup, "--data-dir", &new]);
    assert_eq!((again.code, again.err.contains("is not empty")), (Some(1), true), "{again:?}");
    // It ends its nodes with itself.
    Command::new("kill").arg(child.id().to_string()).status().unwrap();
    assert!(child.wait().unwrap().success());
    let gone = run(&["cluster", "status", "--data-dir", &first]);
    assert_eq!(gone.code, Some(2), "{gone:?}");
    assert!(gone.err.contains("no node of the cluster answers"), "{gone:?}");
}

#[test]
fn what_is_missing_for_a_cluster_is_said() {
    let temporary = tempfile::tempdir().unwrap();
    let dir = temporary.path().to_str().unwrap();
    let says = |arguments: &[&str], expected: &str| {
        let Outcome { err, code, .. } = run(arguments);
        assert!(err.contains(expected) && code != Some(0), "{arguments:?}: {err}");
    };
    says(&["cluster", "status", "--data-dir", dir], "is the data directory of no node of a cluster");
    says(&["cluster", "status"], "--data-dir DIR, or DUNLIN_DATA_DIR");
    says(&["serve", "--listen", "127.0.0.1:0", "--cluster-listen", "127.0.0.1:0"], "but not data_dir");
    says(&["serve", "--listen", "127.0.0.1:0", "--join", "127.0.0.1:1"], "but not cluster.listen");
    let node = ["serve", "--listen", "127.0.0.1:0", "--data-dir", dir, "--cluster-listen"];
    says(&[&node[..], &["127.0.0.1:0", "--join", "127.0.0.1:1"]].concat(), "but not cluster.token_file");
    says(&[&node[..], &["0.0.0.0:0"]].concat(), "--cluster-advertise HOST:");
    let token = format!("{dir}/token");
    std::fs::write(&token, "nonsense").unwrap();
    let join = ["127.0.0.1:0", "--join", "127.0.0.1:1", "--token-file", &token];
    says(&[&node[..], &join].concat(), "this is no join token");
}
