//! `dunlin user`, and a node that asks who one is.

use crate::dunlin::{Node, Outcome, dunlin, run_with};

fn run(arguments: &[&str], input: &str) -> Outcome {
    run_with(dunlin(arguments), input.as_bytes())
}

#[test]
fn users_are_added_listed_and_removed_and_come_in_with_what_they_were_given() {
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
    user(&["add", "robot", "--no-password", "--publish", "orders.>"], "");
    let token = user(&["token", "robot"], "");
    let listed = user(&["list"], "");
    assert!(listed.contains("ana") && listed.contains("robot"), "{listed}");
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(text.contains("# kept as it is\n"), "{text}");
    assert!(!text.contains("sesame") && !text.contains(token.trim()), "secrets are kept as hashes: {text}");

    let node = Node::start_with(&["--auth-users-file", &file]);
    let url = &node.url;
    let publish =
        |who: &[&str]| run(&[&["--url", url.as_str()], who, &["pub", "orders.eu", "x"]].concat(), "");
    std::fs::write(&secret, "open sesame\n").unwrap();
    std::fs::write(&token_file, &token).unwrap();
    for who in
        [&["--user", "ana", "--password-file", secret.as_str()][..], &["--token-file", token_file.as_str()]]
    {
        let output = publish(who);
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
    assert!(output.err.contains("there is no user"), "{output:?}");
}

#[test]
fn a_users_file_that_is_not_sound_is_named_with_its_line() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("users.toml");
    std::fs::write(&file, "[users.ana]\npublish = ['a..b']\n").unwrap();
    let output = run(&["user", "--users-file", file.to_str().unwrap(), "list"], "");
    assert_ne!(output.code, Some(0));
    assert!(output.err.contains("users.toml:2: "), "{output:?}");
}
