//! Tests changes of the users file while clients are connected.

use std::time::Duration;

use dunlin::topic::{Event, Publish, PublishError, Subscribe, SubscribeError, SubscribeOptions, TopicConfig};
use dunlin::wire::ErrorCode;
use dunlin_client::{Client, Credentials, Group, GroupOptions, Kv};
use dunlin_wait::{Deadline, until};

use super::{Guarded, PASSWORD, PATIENCE, TOKEN, basic, read_subscribe_error, read_to, refusal};
use crate::clients::patient_options;

fn users(subscribe_deny: &str, publish: &str, groups: &str) -> String {
    format!(
        "[users.ana]\npassword = \"HASH\"\npublish = [{publish}]\nsubscribe = [\">\"]\nsubscribe_deny = [{subscribe_deny}]\n\
         groups = [{groups}]\n"
    )
}

#[test]
fn subscription_ends_with_a_reason_when_its_permission_ends() {
    let guarded = Guarded::new(&users("", "\">\"", "\">\""));
    guarded.node.create_topic("secret.a", TopicConfig::default(), false).unwrap();
    let ana = guarded.by_password("ana");
    let mut ended = ana.subscribe("secret.a", SubscribeOptions::default()).unwrap();
    let mut member = ana.join(Group { topic: "secret.a", name: "g" }, GroupOptions::default()).unwrap();
    let mut continues = ana.subscribe("plain", SubscribeOptions::default()).unwrap();
    let mut nats = guarded.nats_by_password("ana");
    nats.send_line("SUB secret.a 1\r\nSUB plain 2");
    nats.ping();
    guarded.rewrite(&users("\"secret.>\"", "\">\"", "\">\""));
    assert!(matches!(read_subscribe_error(&mut ended), SubscribeError::Forbidden(_)));
    let why = member.next_timeout(PATIENCE).unwrap_err();
    assert!(matches!(why, SubscribeError::Forbidden(_)), "{why:?}");
    assert_eq!(nats.line(), "-ERR 'Permissions Violation for Subscription to \"secret.a\"'");
    guarded.node.publisher("secret.a").unwrap().publish(b"hidden").unwrap();
    guarded.node.publisher("plain").unwrap().publish(b"seen").unwrap();
    assert_eq!(read_to(&mut continues, "seen"), ["seen"]);
    assert_eq!(nats.message().payload, b"seen");
}

#[test]
fn wildcard_subscription_continues_without_newly_denied_topics() {
    let guarded = Guarded::new(&users("", "\">\"", ""));
    let config = TopicConfig { pattern: Some("orders.>".to_owned()), ..TopicConfig::default() };
    guarded.node.create_topic("all", config, false).unwrap();
    guarded.node.create_topic("secret.a", TopicConfig::default(), false).unwrap();
    let ana = guarded.by_password("ana");
    let mut tcp = ana.subscribe(">", SubscribeOptions::default()).unwrap();
    let mut nats = guarded.nats_by_password("ana");
    nats.send_line("SUB > 1");
    nats.ping();
    let publish = |subject: &str, payload: &str| {
        guarded.node.publisher(subject).unwrap().publish(payload.as_bytes()).unwrap();
    };
    publish("orders.private.x", "first");
    assert_eq!(read_to(&mut tcp, "first"), ["first"]);
    assert_eq!(nats.message().payload, b"first");
    guarded.rewrite(&users("\"secret.>\", \"orders.private.>\"", "\">\"", ""));
    // The sessions must apply the new users file before they send these records.
    publish("orders.private.x", "hidden");
    publish("secret.a", "hidden");
    publish("secret.later", "hidden");
    publish("orders.eu", "last");
    assert_eq!(read_to(&mut tcp, "last"), ["last"]);
    assert_eq!(nats.message().payload, b"last");
    // After the permission is granted again, the same subscription receives records again.
    guarded.rewrite(&users("", "\">\"", ""));
    publish("orders.private.x", "again");
    assert_eq!(read_to(&mut tcp, "again"), ["again"]);
}

#[test]
fn wildcard_subscription_gets_topics_when_they_become_allowed() {
    let guarded = Guarded::new(&users("\"secret.>\"", "\">\"", "\">\""));
    let publish = |subject: &str, payload: &str| {
        guarded.node.publisher(subject).unwrap().publish(payload.as_bytes()).unwrap();
    };
    publish("secret.old", "hidden");
    publish("plain", "before");
    let ana = guarded.by_password("ana");
    let mut tcp = ana.subscribe(">", SubscribeOptions::default()).unwrap();
    let mut nats = guarded.nats_by_password("ana");
    nats.send_line("SUB > 1\r\nSUB > workers 2");
    nats.ping();
    publish("secret.old", "hidden");
    publish("secret.later", "hidden");
    guarded.rewrite(&users("", "\">\"", "\">\""));
    // This response and the receipt for the next record show that both sessions have applied the new users file.
    nats.ping();
    ana.publisher("plain").unwrap().publish(b"applied").unwrap();
    let mut expect = |payload: &str| {
        assert_eq!(read_to(&mut tcp, payload), [payload]);
        let mut received = [(); 2].map(|()| nats.message()).map(|message| (message.sid, message.payload));
        received.sort();
        assert_eq!(received, ["1", "2"].map(|sid| (sid.to_owned(), payload.as_bytes().to_vec())));
    };
    expect("applied");
    for (subject, payload) in [("secret.old", "old"), ("secret.later", "later"), ("secret.new", "new")] {
        publish(subject, payload);
        expect(payload);
    }
}

#[test]
fn deleted_topic_is_read_to_its_end_after_permissions_change() {
    const RECORDS: u64 = 500;
    let guarded = Guarded::new(&users("", "\">\"", ""));
    let mut options = patient_options();
    options.credentials = Credentials::password("ana", PASSWORD.as_bytes());
    options.limits.credit_bytes = 64 << 10;
    let url = format!("dunlin://{}", guarded.address(dunlin_server::Protocol::Tcp));
    let ana = Client::connect(&url, options).unwrap();
    // While the subscriber does not read, it receives only a part of the records.
    let mut subscriber = ana.subscribe("r.*", SubscribeOptions::default()).unwrap();
    let mut publisher = guarded.node.publisher("r.x").unwrap();
    let payload = |number: u64| format!("{number:01000}");
    for number in 1..=RECORDS {
        publisher.publish(payload(number).as_bytes()).unwrap();
    }
    guarded.node.delete_topic("r.x").unwrap();
    guarded.rewrite(&users("\"secret.>\"", "\">\"", ""));
    // The receipt shows that the session has applied the new users file.
    ana.publisher("plain").unwrap().publish(b"applied").unwrap();
    let got = read_to(&mut subscriber, &payload(RECORDS));
    assert_eq!(got.len() as u64, RECORDS);
}

#[test]
fn publisher_is_refused_after_its_permission_ends() {
    let guarded = Guarded::new(&users("", "\">\"", ""));
    let ana = guarded.by_password("ana");
    let mut publisher = ana.publisher("a").unwrap();
    publisher.publish(b"x").unwrap();
    let mut nats = guarded.nats_by_password("ana");
    nats.send_line("PUB a 1\r\nx");
    nats.ping();
    guarded.rewrite(&users("", "\"b\"", ""));
    let refused = publisher.publish(b"y").unwrap_err();
    assert!(matches!(refused, PublishError::Forbidden(_)), "{refused:?}");
    nats.send_line("PUB a 1\r\ny");
    assert_eq!(nats.line(), "-ERR 'Permissions Violation for Publish to \"a\"'");
    let count: u64 = guarded.node.topic("a").unwrap().logs().iter().map(|log| log.last().seq).sum();
    assert_eq!(count, 2);
}

#[test]
fn removed_user_is_disconnected_at_once_with_a_reason() {
    let guarded = Guarded::new(&users("", "\">\"", ""));
    let ana = guarded.by_password("ana");
    let mut subscriber = ana.subscribe("a", SubscribeOptions::default()).unwrap();
    let mut nats = guarded.nats_by_password("ana");
    let peer = crate::http::peer::Peer::connect(guarded.address(dunlin_server::Protocol::Http));
    let authorization = basic("ana", PASSWORD);
    let mut events = peer.events("/v1/topics/a/events", &[("authorization", &authorization)]);
    guarded.rewrite("[users.bob]\npassword = \"HASH\"\n");
    assert_eq!(nats.line(), "-ERR 'User Authentication Revoked'");
    let ended = events.next().unwrap();
    assert!(ended.event == "end" && ended.data.contains("user ana was removed"), "{ended:?}");
    let deadline = Deadline::new();
    let why = loop {
        deadline.check("the client is told");
        match subscriber.next_timeout(PATIENCE) {
            Err(SubscribeError::Connection(why)) if why.contains("UNAUTHENTICATED") => break why,
            Err(SubscribeError::Connection(_)) => {}
            Ok(Some(Event::Notice(_))) => {}
            other => panic!("{other:?}"),
        }
    };
    assert!(why.contains("wrong credentials") || why.contains("was removed"), "{why}");
    assert_eq!(guarded.http("GET", "/v1/topics", &authorization, b"").status, 401);
}

/// Writes a key that depends on a lease of one year. The lease is not revoked when the client ends.
fn put_under_a_long_lease(kv: &Kv, key: &str) {
    let lease = kv.lease(Duration::from_secs(365 * 86_400)).unwrap();
    kv.put_with_lease(key, "1", lease.id()).unwrap();
    std::mem::forget(lease);
}

/// When a user is removed, the user's leases must end. Otherwise, a lock could stay held for a year.
#[test]
fn removing_a_user_ends_only_the_leases_of_that_user() {
    let user = |name: &str| format!("[users.{name}]\npassword = \"HASH\"\nkeys = [\"*\"]\n");
    let guarded = Guarded::new(&format!("{}{}", user("ana"), user("bob")));
    let (ana, bob) = (guarded.by_password("ana").kv(), guarded.by_password("bob").kv());
    put_under_a_long_lease(&ana, "of-ana");
    put_under_a_long_lease(&bob, "of-bob");
    guarded.rewrite(&user("bob"));
    until("the keys under ana's lease are gone", || bob.get("of-ana").unwrap().is_none());
    assert!(bob.get("of-bob").unwrap().is_some());
}

/// When a user moves to another tenant, the user's leases must end. Otherwise, the user could renew them, and so keep
/// locks that belong to the former tenant.
#[test]
fn leases_of_a_user_end_when_the_user_changes_tenants() {
    let users = |tenant: &str| {
        format!(
            "[tenants.acme]\n[tenants.other]\n[users.ana]\ntenant = \"{tenant}\"\npassword = \"HASH\"\nkeys = [\"*\"]\n\
             [users.bob]\npassword = \"HASH\"\nkeys = [\"*\"]\n"
        )
    };
    let guarded = Guarded::new(&users("acme"));
    put_under_a_long_lease(&guarded.by_password("ana").kv(), "of-ana");
    let bob = guarded.by_password("bob").kv();
    assert!(bob.get("of-ana").unwrap().is_some());
    guarded.rewrite(&users("other"));
    until("the keys under ana's lease are gone", || bob.get("of-ana").unwrap().is_none());
}

#[test]
fn session_ends_when_its_own_credentials_are_removed() {
    let both = "[users.ana]\npassword = \"HASH\"\ntokens = [\"DIGEST\"]\nsubscribe = [\">\"]\n";
    let guarded = Guarded::new(both);
    let mut by_password = guarded.nats_by_password("ana");
    let mut by_token = guarded.nats(&format!(",\"auth_token\":\"{}\"", TOKEN.0));
    by_token.ping();
    guarded.rewrite(&both.replace("tokens = [\"DIGEST\"]", ""));
    assert_eq!(by_token.line(), "-ERR 'User Authentication Revoked'");
    by_password.ping();
    let refused = refusal(guarded.connect(Credentials::token(TOKEN.0.as_str())));
    assert_eq!(refused.code, ErrorCode::Unauthenticated);
}

#[test]
fn changed_users_file_is_reloaded_and_a_broken_one_ignored() {
    let guarded = Guarded::new(&users("", "\">\"", ""));
    let mut nats = guarded.nats_by_password("ana");
    std::fs::write(&guarded.file, "[users.ana]\npublish = [\"a..b\"]\n").unwrap();
    let error = guarded.server.reload_users().unwrap_err().to_string();
    assert!(error.contains("users.toml:2: ") && error.contains("empty token"), "{error}");
    std::fs::write(&guarded.file, "").unwrap();
    let error = guarded.server.reload_users().unwrap_err().to_string();
    assert!(error.contains("users.toml: the file is empty"), "{error}");
    std::fs::write(
        &guarded.file,
        format!("{}\n", dunlin_server::access::UserDirectory::with_end_line("").lines().next().unwrap()),
    )
    .unwrap();
    let error = guarded.server.reload_users().unwrap_err().to_string();
    assert!(error.contains("users.toml: the file is cut off"), "{error}");
    nats.send_line("PUB a 1\r\nx");
    nats.ping();
    guarded.by_password("ana");
    // The file is changed without a request to reload, so the node must notice the change by itself.
    std::fs::write(&guarded.file, "# nobody\n").unwrap();
    assert_eq!(nats.line(), "-ERR 'User Authentication Revoked'");
}
