//! Tests of `dunlin user`, and of a node that has a users file.

use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::process::Stdio;

use dunlin_wait::until;

use crate::dunlin::{Node, Outcome, RunningProgram, dunlin, run_with};

fn run(arguments: &[&str], input: &str) -> Outcome {
    run_with(dunlin(arguments), input.as_bytes())
}

#[test]
fn added_users_log_in_with_their_credentials_until_removed() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (file, secret, token_file) = (path("users.toml"), path("secret"), path("token"));
    std::fs::write(&file, "# kept as it is\n").unwrap();
    let user = |arguments: &[&str], input: &str| {
        let output = run(&[&["user", "--users-file", file.as_str()], arguments].concat(), input);
        assert_eq!(output.code, Some(0), "{arguments:?}: {output:?}");
        output.out
    };
    let rights = ["--publish", "orders.>", "--subscribe", "orders.>", "--create", "orders.>"];
    user(&[&["add", "ana"], &rights[..]].concat(), "open sesame\n");
    user(&["add", "robot", "--no-password", "--publish", "orders.>", "--certificate", "CN=robot"], "");
    let token = user(&["token", "robot"], "");
    let again = run(&["user", "--users-file", &file, "add", "robot", "--no-password"], "");
    assert_eq!(again.code, Some(1), "{again:?}");
    assert!(again.err.contains("`dunlin user change robot`"), "{again:?}");
    let changed = user(&["change", "robot", "--publish", "orders.eu", "--subscribe", ">", "--surveys"], "");
    assert!(changed.contains("  publish orders.eu\n  subscribe >\n  surveys\n"), "{changed}");
    let changed = user(
        &["change", "robot", "--publish", "orders.>", "--without", "subscribe", "--without", "surveys"],
        "",
    );
    assert!(changed.ends_with("  publish orders.>\n"), "{changed}");
    let listed = user(&["list", "--json"], "");
    assert!(listed.contains(r#""publish":{"allow":["orders.>"],"deny":[]}"#), "{listed}");
    assert!(listed.contains(r#""certificates":["CN=robot"]"#), "{listed}");
    let listed = user(&["list"], "");
    assert!(listed.contains("publish orders.>; subscribe orders.>; create orders.>"), "{listed}");
    assert!(listed.contains("ana") && listed.contains("robot"), "{listed}");
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(text.contains("# kept as it is\n"), "{text}");
    assert!(!text.contains("sesame") && !text.contains(token.trim()), "secrets are kept as hashes: {text}");

    let node = Node::start_with(&["--auth-users-file", &file]);
    let url = &node.url;
    let publish = |credentials: &[&str]| {
        run(&[&["--url", url.as_str()], credentials, &["pub", "orders.eu", "x"]].concat(), "")
    };
    std::fs::write(&secret, "open sesame\n").unwrap();
    std::fs::write(&token_file, &token).unwrap();
    for credentials in
        [&["--user", "ana", "--password-file", secret.as_str()][..], &["--token-file", token_file.as_str()]]
    {
        let output = publish(credentials);
        assert_eq!(output.code, Some(0), "{output:?}");
    }
    let output = publish(&[]);
    assert_eq!(output.code, Some(1), "{output:?}");
    assert!(output.err.contains("UNAUTHENTICATED"), "{output:?}");
    let denied = ["--user", "ana", "--password-file", secret.as_str()];
    let output = run(&[&["--url", url.as_str()], &denied[..], &["pub", "secret", "x"]].concat(), "");
    assert_eq!(output.code, Some(1), "{output:?}");
    assert!(output.err.contains("no permission to publish to \"secret\""), "{output:?}");

    user(&["remove", "robot"], "");
    let output = run(&["user", "--users-file", &file, "remove", "robot"], "");
    assert_eq!(output.code, Some(1));
    assert!(output.err.contains("does not exist"), "{output:?}");
}

#[test]
fn user_add_stores_nkeys_and_allowed_and_denied_patterns() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("users.toml").to_str().unwrap().to_owned();
    let user = |arguments: &[&str]| run(&[&["user", "--users-file", file.as_str()], arguments].concat(), "");
    let nkey = "UDI6ND5BHG7FC7FCVXTZ33VOQLKMBW535YD3ECYGOVVD7HPS7V6YLNRM";
    let arguments = [
        &["add", "ana", "--no-password", "--nkey", nkey][..],
        &["--keys", "acme/*", "--keys", "$lock/acme/*", "--read-keys", "b/*", "--deny-keys", "acme/secret"],
        &["--create", "a.>", "--deny-create", "a.b", "--delete", "a.>", "--deny-delete", "a.c"],
        &["--groups", ">", "--deny-groups", "internal"],
    ];
    let added = user(&arguments.concat()).done();
    let lines = [
        "create a.>, not a.b",
        "delete a.>, not a.c",
        "groups >, not internal",
        "keys acme/* $lock/acme/*, not acme/secret",
        "keys_read b/*, not acme/secret",
    ];
    assert!(added.ends_with(&format!("  {}\n", lines.join("\n  "))), "{added}");
    let listed: serde_json::Value = serde_json::from_str(&user(&["list", "--json"]).done()).unwrap();
    assert_eq!(listed["nkeys"], serde_json::json!([nkey]));
    let keys =
        serde_json::json!({"allow": ["acme/*", "$lock/acme/*"], "read": ["b/*"], "deny": ["acme/secret"]});
    assert_eq!(listed["permissions"]["keys"], keys);
    let changed = user(&["change", "ana", "--keys", "b/*", "--without", "keys_deny", "--without", "nkeys"]);
    assert!(changed.done().contains("  keys b/*\n"));
    let refused = user(&["change", "ana", "--nkey", "UNKNOWN"]);
    assert!(refused.code != Some(0) && refused.err.contains("nkeys: expected the public key"), "{refused:?}");
}

#[test]
fn user_add_never_uses_the_password_file_of_a_client() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (file, secret) = (path("users.toml"), path("secret"));
    std::fs::write(&secret, "open sesame\n").unwrap();
    let add = ["user", "--users-file", &file, "add", "ana", "--publish", "a", "--password-file", &secret];
    let output = run(&add, "typed\n");
    assert!(output.code == Some(2) && output.err.contains("--password-from"), "{output:?}");
    assert!(!std::path::Path::new(&file).exists());
    // `dunlin user` must ignore this variable, because the variable is for commands that connect to a node.
    let mut command = dunlin(&add[..7]);
    command.env("DUNLIN_PASSWORD_FILE", &secret);
    let output = run_with(command, b"typed\n");
    assert_eq!(output.code, Some(0), "{output:?}");
}

#[test]
fn user_commands_with_option_json_print_one_object() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("users.toml").to_str().unwrap().to_owned();
    for (verb, options, done) in [
        ("add", &["--no-password", "--publish", ">"][..], "added"),
        ("change", &["--publish", "a"][..], "changed"),
        ("remove", &[][..], "removed"),
    ] {
        let arguments = [&["user", "--users-file", &file, "--json", verb, "ana"][..], options].concat();
        let output = run(&arguments, "").done();
        let object: serde_json::Value = serde_json::from_str(&output).expect("one object");
        assert_eq!((&object["user"], &object["done"]), (&"ana".into(), &done.into()));
    }
}

#[test]
fn changed_users_file_keeps_its_unix_owner_and_group() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("users.toml");
    std::fs::write(&path, "# users\n").unwrap();
    // Only an administrator may change the owner of a file. For other users, the test is skipped.
    let (owner, group) = (60_001, 60_002);
    if std::os::unix::fs::chown(&path, Some(owner), Some(group)).is_err() {
        return;
    }
    run(&["user", "--users-file", path.to_str().unwrap(), "add", "ana", "--no-password"], "").done();
    let changed = std::fs::metadata(&path).unwrap();
    assert_eq!((changed.uid(), changed.gid()), (owner, group));
}

#[test]
fn concurrent_user_commands_lose_no_change() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("users.toml").to_str().unwrap().to_owned();
    let names: Vec<String> = (0..12).map(|number| format!("user-{number}")).collect();
    let list = || {
        let listed = run(&["user", "--users-file", &file, "list", "--json"], "").done();
        let user = |line: &str| serde_json::from_str::<serde_json::Value>(line).expect("an object");
        listed.lines().map(user).collect::<Vec<_>>()
    };
    // The first command creates the file, and the second one replaces it.
    for verb in [&["add", "--no-password"][..], &["change", "--publish", "orders.>"]] {
        let run_one = |name: &String| -> RunningProgram {
            let arguments = [&["user", "--users-file", file.as_str()][..], verb, &[name.as_str()]].concat();
            let mut command = dunlin(&arguments);
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap().into()
        };
        let programs: Vec<RunningProgram> = names.iter().map(run_one).collect();
        for program in programs {
            Outcome::of(program).done();
        }
        assert_eq!(list().len(), names.len());
    }
    for user in list() {
        assert_eq!(user["permissions"]["publish"]["allow"], serde_json::json!(["orders.>"]), "{user}");
    }
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "no temporary file is left");
}

#[test]
fn dunlin_user_add_keeps_a_symbolic_link_to_the_users_file() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("etc")).unwrap();
    let (link, target) = (dir.path().join("users.toml"), dir.path().join("etc/users.toml"));
    std::os::unix::fs::symlink("etc/users.toml", &link).unwrap();
    // The link's target does not exist yet. The first command creates it.
    for name in ["ana", "bob"] {
        run(&["user", "--users-file", link.to_str().unwrap(), "add", name, "--no-password"], "").done();
        assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
        let text = std::fs::read_to_string(&target).unwrap();
        assert!(text.contains(&format!("[users.{name}]")), "{text}");
    }
}

#[test]
fn error_in_users_toml_names_the_file_and_the_line() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("users.toml");
    std::fs::write(&file, "[users.ana]\npublish = ['a..b']\n").unwrap();
    let output = run(&["user", "--users-file", file.to_str().unwrap(), "list"], "");
    assert_ne!(output.code, Some(0));
    assert!(output.err.contains("users.toml:2: "), "{output:?}");
}

#[test]
fn command_ends_when_its_reconnect_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("users.toml");
    let file = file.to_str().unwrap();
    let node = Node::start();
    let listen = node.url.strip_prefix("dunlin://").unwrap().to_owned();
    let url = node.url.clone();
    let spawn = |arguments: &[&str], input: Stdio| -> RunningProgram {
        let mut command = node.command(arguments);
        command.stdin(input).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap().into()
    };
    let sub = spawn(&["sub", "a"], Stdio::null());
    let mut lines = spawn(&["pub", "a"], Stdio::piped());
    let mut input = lines.stdin.take().unwrap();
    input.write_all(b"one\n").unwrap();
    until("both have connected", || {
        let topics = node.run(&["topics", "list", "--json"]).out;
        topics.contains("\"subscribers\":1") && topics.contains("\"records\":1")
    });
    node.kill();
    run(&["user", "--users-file", file, "add", "ana", "--no-password"], "");
    let _restarted = Node::start_with(&["--listen", &listen, "--auth-users-file", file]);
    // The write fails if the command has refused its arguments and ended before.
    let _ = input.write_all(b"two\n");
    for program in [sub, lines] {
        let outcome = Outcome::of(program);
        assert_eq!(outcome.code, Some(1), "{url}: {outcome:?}");
        assert!(outcome.err.contains("UNAUTHENTICATED"), "{outcome:?}");
    }
}
