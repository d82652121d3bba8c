//! Tests that the processes of a world serve only users with permissions.

use super::Process;
use crate::dunlin::{Node, Outcome, run};

/// A users file, and for each of its users a file with an access token.
struct UsersFile {
    dir: tempfile::TempDir,
}

impl UsersFile {
    /// Creates three users: `runner` may run world `w`, `keeper` may not read the world's secret, and `watcher` may
    /// only watch this world.
    fn new() -> UsersFile {
        let users = UsersFile { dir: tempfile::tempdir().expect("a folder") };
        let map = ["--publish", "space.w.map.>", "--create", "space.w.map", "--create", "space.w.map.>"];
        users.add("runner", &[&["--keys", "space/w/*", "--keys", "space-secret/w"][..], &map].concat());
        users.add("keeper", &["--keys", "space/w/*"]);
        let subjects = ["--subscribe", "space.w.region.*", "--publish", "space.w.process.*.watch"];
        users.add("watcher", &[&["--read-keys", "space/w/*"][..], &subjects].concat());
        users
    }

    fn path(&self, name: &str) -> String {
        self.dir.path().join(name).to_str().expect("a path").to_owned()
    }

    fn file(&self) -> String {
        self.path("users.toml")
    }

    fn add(&self, name: &str, permissions: &[&str]) {
        let file = self.file();
        let user = ["user", "--users-file", &file];
        run(&[&user[..], &["add", name, "--no-password"], permissions].concat()).done();
        let token = run(&[&user[..], &["token", name]].concat()).done();
        std::fs::write(self.path(name), token).expect("a token file");
    }
}

/// The node of a world's process must serve only the users in its users file, and each user only within the user's
/// permissions.
#[test]
fn user_who_may_only_watch_a_world_cannot_change_it() {
    let users = UsersFile::new();
    let (file, runner, watcher) = (users.file(), users.path("runner"), users.path("watcher"));
    let node = Node::start_with(&["--auth-users-file", &file]);
    let login = ["--url", &node.url, "--token-file", &runner];
    let words = [&["run", "w", "--processes", "1", "--flock", "300"][..], &login].concat();
    let unprotected = run(&[&["space"][..], &words].concat());
    assert!(unprotected.code == Some(1) && unprotected.err.contains("--auth-users-file"), "{unprotected:?}");
    let world = Process::start(&[&words[..], &["--auth-users-file", &file]].concat());
    let url = world.wait_for_event("started")["url"].as_str().expect("the node's address").to_owned();
    world.wait_for_event("owns");

    let watch = |words: &[&str]| run(&[words, &["--url", &node.url, "--token-file", &watcher]].concat());
    let map = watch(&["space", "watch", "w", "--once", "--json"]).done();
    assert!(map.contains("\"entities\":300"), "{map}");
    let near = watch(&["space", "near", "1000000", "w", "--within", "40", "--once", "--json"]).done();
    assert!(near.contains("\"1000000\""), "{near}");
    let assert_refused = |outcome: Outcome, reason: &str| {
        assert!(outcome.code == Some(1) && outcome.err.contains(reason), "{outcome:?}");
    };
    for words in [
        &["space", "command", "1000000", "w", "--kind", "9"][..],
        &["space", "spawn", "7", "w", "--position", "5,5,5"],
        &["space", "despawn", "1000000", "w"],
        &["kv", "put", "space/w/hold/0", "1"],
        &["kv", "get", "space-secret/w"],
    ] {
        assert_refused(watch(words), "no permission");
    }
    let delete = ["topics", "delete", "space.w.region.1", "--url", &url];
    assert_refused(run(&delete), "UNAUTHENTICATED");
    assert_refused(run(&[&delete[..], &["--token-file", &watcher]].concat()), "no permission");
}

/// The user may write the world's keys, but not read its secret. `run` must write no keys.
#[test]
fn world_process_ends_if_it_may_not_read_the_secret() {
    let users = UsersFile::new();
    let (file, keeper) = (users.file(), users.path("keeper"));
    let node = Node::start_with(&["--auth-users-file", &file]);
    let login = ["--url", &node.url, "--token-file", &keeper];
    for command in ["join", "run"] {
        let words = [&["space", command, "w"][..], &login, &["--auth-users-file", &file]].concat();
        let outcome = run(&words);
        assert!(outcome.code == Some(1) && outcome.err.contains("space-secret/w"), "{outcome:?}");
    }
    let keys = run(&[&["kv", "range", "space/w/"][..], &login].concat()).done();
    assert!(!keys.contains("space/w/world"), "{keys}");
}

/// A process must log in at the node that holds the world's keys, even if this node runs in the process itself.
#[test]
fn world_with_its_own_node_serves_only_users_in_the_users_file() {
    let users = UsersFile::new();
    let (file, runner, watcher) = (users.file(), users.path("runner"), users.path("watcher"));
    let words = ["run", "w", "--processes", "1", "--flock", "300", "--listen", "127.0.0.1:0"];
    let login = ["--auth-users-file", &file, "--token-file", &runner];
    let world = Process::start(&[&words[..], &login].concat());
    let url = world.wait_for_event("started")["url"].as_str().expect("the node's address").to_owned();
    world.wait_for_event("owns");
    let watch = ["space", "watch", "w", "--once", "--json", "--url", &url];
    let map = run(&[&watch[..], &["--token-file", &watcher]].concat()).done();
    assert!(map.contains("\"entities\":300"), "{map}");
    let refused = run(&watch);
    assert!(refused.code == Some(1) && refused.err.contains("UNAUTHENTICATED"), "{refused:?}");
}

/// The user `watcher` may log in at the node that holds the keys, but is not in the users file of the process's node.
#[test]
fn space_watch_reports_why_its_login_was_refused() {
    let users = UsersFile::new();
    let (file, runner, watcher) = (users.file(), users.path("runner"), users.path("watcher"));
    let node = Node::start_with(&["--auth-users-file", &file]);
    let own_file = users.path("own.toml");
    std::fs::copy(&file, &own_file).expect("a copy");
    run(&["user", "--users-file", &own_file, "remove", "watcher"]).done();
    let words = ["run", "w", "--processes", "1", "--flock", "10", "--auth-users-file", &own_file];
    let world = Process::start(&[&words[..], &["--url", &node.url, "--token-file", &runner]].concat());
    world.wait_for_event("owns");
    let words = ["watch", "w", "--every", "20ms", "--url", &node.url, "--token-file", &watcher];
    Process::start(&words).wait_for("the reason", |object| {
        object["why"].as_str().is_some_and(|why| why.contains("refused the login: UNAUTHENTICATED"))
    });
}
