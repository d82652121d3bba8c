//! Tests permissions for subjects, topics and groups over all listeners.

use dunlin::Inbox;
use dunlin::topic::{Publish, PublishError, Start, Subscribe, SubscribeError, SubscribeOptions, TopicConfig};
use dunlin::wire::ErrorCode;
use dunlin_client::{CallError, DeadLetterTarget, Group, GroupKind, GroupOptions, RefusedError};

use super::{Guarded, PASSWORD, basic, read_to};

const USERS: &str = "[users.ana]\npassword = \"HASH\"\npublish = [\"orders.>\"]\npublish_deny = [\"orders.secret.>\"]\n\
                     subscribe = [\">\"]\nsubscribe_deny = [\"secret.>\", \"orders.secret.>\"]\ncreate = [\"orders.>\"]\n\
                     groups = [\"workers\"]\n\
                     [users.root]\npassword = \"HASH\"\npublish = [\">\"]\nsubscribe = [\">\"]\ncreate = [\">\"]\ndelete = [\">\"]\n\
                     groups = [\">\"]\nsurveys = true\n";

/// Returns the text of the `FORBIDDEN` error in the result; panics for any other result.
fn forbidden<T: std::fmt::Debug>(result: Result<T, CallError>) -> String {
    match result {
        Err(CallError::Refused(RefusedError { code: ErrorCode::Forbidden, text, .. })) => text,
        other => panic!("{other:?}"),
    }
}

#[test]
fn publish_without_permission_is_refused_and_appends_nothing() {
    let guarded = Guarded::new(USERS);
    let ana = guarded.by_password("ana");
    for denied in ["secret.a", "orders.secret.a", "other", "orders"] {
        match ana.publisher(denied) {
            Err(PublishError::Forbidden(text)) => {
                assert_eq!(text, format!("no permission to publish to {denied:?}"));
            }
            other => panic!("{other:?}"),
        }
        let response = guarded.http("POST", &format!("/v1/topics/{denied}"), &basic("ana", PASSWORD), b"x");
        assert_eq!(response.status, 403, "{response:?}");
        assert!(String::from_utf8_lossy(&response.body).contains("publish to"), "{response:?}");
    }
    let mut nats = guarded.nats_by_password("ana");
    for denied in ["secret.a", "orders.secret.a", "other"] {
        nats.send_line(&format!("PUB {denied} 1\r\nx"));
        assert_eq!(nats.line(), format!("-ERR 'Permissions Violation for Publish to \"{denied}\"'"));
        nats.send_line(&format!("PUB {denied} _INBOX.a 1\r\nx"));
        assert_eq!(
            nats.line(),
            format!("-ERR 'Permissions Violation for Publish to \"{denied}\"'"),
            "who may not ask is not told whether somebody listens"
        );
    }
    nats.send_line("PUB orders.eu 1\r\nx");
    nats.ping();
    assert!(guarded.node.topic("orders.eu").is_some());
    for denied in ["secret.a", "orders.secret.a", "other"] {
        assert!(guarded.node.topic(denied).is_none(), "{denied}");
    }
}

#[test]
fn user_publishes_only_to_permitted_subjects_of_a_topic() {
    let guarded = Guarded::new(USERS);
    let config = TopicConfig { pattern: Some("orders.>".to_owned()), ..TopicConfig::default() };
    guarded.node.create_topic("all", config, false).unwrap();
    let ana = guarded.by_password("ana");
    let mut subscriber = guarded.node.subscribe("orders.>", &SubscribeOptions::default()).unwrap();
    // `ana` may publish only to some subjects of this pattern, so the node must check each record.
    let mut publisher = ana.publisher("orders.>").unwrap();
    let to = |tail: &'static str| {
        let meta = dunlin::topic::RecordMeta { subject_tail: tail, ..Default::default() };
        dunlin::topic::Draft { meta, payload: dunlin::topic::Payload::Copied(b"x") }
    };
    publisher.publish(to("eu")).unwrap();
    let refused = publisher.publish(to("secret.a")).unwrap_err();
    assert!(matches!(refused, PublishError::Forbidden(_)), "{refused:?}");
    let mut other = ana.publisher("orders.>").unwrap();
    other.publish(to("us")).unwrap();
    let mut subjects = Vec::new();
    while let Some(event) = subscriber.try_next().unwrap() {
        if let dunlin::topic::Event::Record(record) = event {
            subjects.push(record.subject());
        }
    }
    assert_eq!(subjects, ["orders.eu", "orders.us"]);
}

#[test]
fn denied_subscription_is_refused() {
    let guarded = Guarded::new(USERS);
    let ana = guarded.by_password("ana");
    for denied in ["secret.a", "secret.*", "orders.secret.>", "_INBOX.>"] {
        let refused = ana.subscribe(denied, SubscribeOptions::default()).unwrap_err();
        assert!(matches!(refused, SubscribeError::Forbidden(_)), "{denied}: {refused:?}");
        let response = guarded.http(
            "GET",
            &format!("/v1/topics/{}/events", denied.replace('>', "%3E")),
            &basic("ana", PASSWORD),
            b"",
        );
        assert_eq!(response.status, 403, "{denied}: {response:?}");
        let mut nats = guarded.nats_by_password("ana");
        nats.send_line(&format!("SUB {denied} 1"));
        assert_eq!(nats.line(), format!("-ERR 'Permissions Violation for Subscription to \"{denied}\"'"));
    }
}

/// The user may read `>`, but not `secret.>`. The test covers topics that exist, topics that are created later, and a
/// topic with permitted and denied subjects.
#[test]
fn wildcard_subscriber_gets_all_records_except_denied_ones() {
    let guarded = Guarded::new(USERS);
    let config = TopicConfig { pattern: Some("orders.>".to_owned()), ..TopicConfig::default() };
    guarded.node.create_topic("all", config, false).unwrap();
    guarded.node.create_topic("secret.before", TopicConfig::default(), false).unwrap();
    let ana = guarded.by_password("ana");
    let options = SubscribeOptions { start: Start::Earliest, ..SubscribeOptions::default() };
    let mut tcp = ana.subscribe(">", options).unwrap();
    let mut nats = guarded.nats_by_password("ana");
    nats.send_line("SUB > 1");
    nats.ping();
    let publish = |subject: &str, payload: &str| {
        guarded.node.publisher(subject).unwrap().publish(payload.as_bytes()).unwrap();
    };
    for round in 0..50 {
        publish("orders.eu", &format!("e{round}"));
        publish("orders.secret.x", "hidden");
        publish("secret.before", "hidden");
        publish("secret.after", "hidden");
        publish("plain.after", &format!("p{round}"));
    }
    publish("orders.eu", "end");
    publish("plain.after", "over");
    let expected: Vec<String> = (0..50).map(|round| format!("e{round}")).collect();
    let plain: Vec<String> = (0..50).map(|round| format!("p{round}")).collect();
    let mut got = Vec::new();
    // The last records `end` and `over` are in two different logs, and may arrive in any order.
    while !(got.contains(&"end".to_owned()) && got.contains(&"over".to_owned())) {
        let next = if got.contains(&"end".to_owned()) { "over" } else { "end" };
        let before = got.len();
        got.extend(read_to(&mut tcp, next));
        assert!(got.len() > before);
    }
    assert!(!got.contains(&"hidden".to_owned()));
    let of = |prefix: char| {
        got.iter().filter(|p| p.starts_with(prefix) && *p != "end").cloned().collect::<Vec<_>>()
    };
    assert_eq!(of('e'), expected);
    assert_eq!(of('p'), plain);
    let mut by_nats = Vec::new();
    while by_nats.len() < 102 {
        let message = nats.message();
        assert!(!message.subject.contains("secret"), "{message:?}");
        by_nats.push(String::from_utf8(message.payload).unwrap());
    }
    assert_eq!(
        by_nats.iter().filter(|p| p.starts_with('e') && *p != "end").cloned().collect::<Vec<_>>(),
        expected
    );
}

/// Over HTTP, each event has a position. Where a denied record is left out, the position jumps, but no `gap` event is
/// sent.
#[test]
fn event_stream_omits_denied_records_and_reports_no_gap() {
    let guarded = Guarded::new(USERS);
    let config = TopicConfig { pattern: Some("orders.>".to_owned()), ..TopicConfig::default() };
    guarded.node.create_topic("all", config, false).unwrap();
    for (subject, payload) in [("orders.eu", "a"), ("orders.secret.x", "hidden"), ("orders.eu", "b")] {
        guarded.node.publisher(subject).unwrap().publish(payload.as_bytes()).unwrap();
    }
    let peer = crate::http::peer::Peer::connect(guarded.address(dunlin_server::Protocol::Http));
    let authorization = basic("ana", PASSWORD);
    let mut events =
        peer.events("/v1/topics/orders.%3E/events?from=earliest", &[("authorization", &authorization)]);
    let (first, second) = (events.next().unwrap(), events.next().unwrap());
    assert_eq!((first.event.as_str(), second.event.as_str()), ("message", "message"), "{first:?} {second:?}");
    assert!(first.data.contains('a') && second.data.contains('b'), "{first:?} {second:?}");
    assert!(first.id.ends_with("-1") && second.id.ends_with("-3"), "{first:?} {second:?}");
}

#[test]
fn topic_operations_need_the_matching_permission() {
    let guarded = Guarded::new(USERS);
    let (ana, root) = (guarded.by_password("ana"), guarded.by_password("root"));
    ana.create_topic("orders.eu", &TopicConfig::default(), false).unwrap();
    assert_eq!(
        forbidden(ana.create_topic("other", &TopicConfig::default(), false)),
        "no permission to create topic \"other\""
    );
    let wide = TopicConfig { pattern: Some(">".to_owned()), ..TopicConfig::default() };
    assert_eq!(
        forbidden(ana.create_topic("orders.wide", &wide, false)),
        "no permission to create topic \">\""
    );
    assert_eq!(forbidden(ana.delete_topic("orders.eu")), "no permission to delete topic \"orders.eu\"");
    let ana_http = basic("ana", PASSWORD);
    assert_eq!(guarded.http("PUT", "/v1/topics/other", &ana_http, b"{}").status, 403);
    assert_eq!(guarded.http("DELETE", "/v1/topics/orders.eu", &ana_http, b"").status, 403);
    root.create_topic("secret.plans", &TopicConfig::default(), false).unwrap();
    assert_eq!(guarded.http("GET", "/v1/topics/secret.plans", &ana_http, b"").status, 404, "not even seen");
    let listed = guarded.http("GET", "/v1/topics", &ana_http, b"");
    let listed = String::from_utf8(listed.body).unwrap();
    assert!(listed.contains("orders.eu") && !listed.contains("secret"), "{listed}");
    let listed = guarded.http("GET", "/v1/topics?pattern=_INBOX.%3E", &basic("root", PASSWORD), b"");
    assert!(!String::from_utf8(listed.body).unwrap().contains("_INBOX"), "inboxes are nobody's to list");
    assert!(ana.topic_settings("$DUNLIN.interest.orders.eu").is_err(), "who subscribes is for nodes");
    assert_eq!(guarded.http("GET", "/metrics", &ana_http, b"").status, 403);
    assert_eq!(guarded.http("GET", "/v1/subscriptions", &ana_http, b"").status, 403);
    assert_eq!(guarded.http("GET", "/v1/subscriptions", &basic("root", PASSWORD), b"").status, 200);
    root.delete_topic("orders.eu").unwrap();
}

#[test]
fn overlap_error_hides_the_inbox_of_another_session() {
    let guarded = Guarded::new(USERS);
    let mut inbox = Inbox::of_client(guarded.node.clone(), "_INBOX.other.");
    inbox.open().unwrap();
    let config = TopicConfig { pattern: Some(">".to_owned()), ..TopicConfig::default() };
    match guarded.by_password("root").create_topic("all", &config, false) {
        Err(CallError::Refused(RefusedError { code: ErrorCode::PatternOverlaps, text, .. })) => {
            assert_eq!(text, "");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn group_needs_permission_to_read_its_whole_topic() {
    let guarded = Guarded::new(USERS);
    let ana = guarded.by_password("ana");
    for name in ["orders.eu", "secret.plans"] {
        guarded.node.create_topic(name, TopicConfig::default(), false).unwrap();
    }
    let join =
        |topic: &str, group: &str| ana.join(Group { topic, name: group }, GroupOptions::default()).map(drop);
    assert!(join("orders.eu", "workers").is_ok());
    assert!(matches!(join("orders.eu", "others"), Err(SubscribeError::Forbidden(_))));
    assert!(matches!(join("secret.plans", "workers"), Err(SubscribeError::Forbidden(_))));
    let mut nats = guarded.nats_by_password("ana");
    nats.send_line("SUB orders.eu others 1");
    assert_eq!(
        nats.line(),
        "-ERR 'Permissions Violation for Subscription to \"orders.eu\" using queue \"others\"'"
    );
    nats.send_line("SUB orders.eu workers 2");
    nats.ping();
}

#[test]
fn error_for_a_refused_group_join_hides_the_topic_pattern() {
    let guarded = Guarded::new(USERS);
    let pattern = Some("secret.plans.>".to_owned());
    guarded.node.create_topic("orders.x", TopicConfig { pattern, ..TopicConfig::default() }, false).unwrap();
    let ana = guarded.by_password("ana");
    for kind in [GroupKind::Share, GroupKind::Work] {
        let group = Group { topic: "orders.x", name: "workers" };
        match ana.join(group, GroupOptions { kind, ..GroupOptions::default() }).map(drop) {
            Err(SubscribeError::Forbidden(text)) => {
                assert_eq!(text, "no permission to subscribe to \"orders.x\"");
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn group_needs_permission_to_publish_its_dead_letters() {
    let guarded = Guarded::new(USERS);
    let ana = guarded.by_password("ana");
    for name in ["orders.eu", "orders.none", "orders.drop", "orders.named"] {
        guarded.node.create_topic(name, TopicConfig::default(), false).unwrap();
    }
    let join = |topic: &str, attempts_max, dead_letters| {
        let kind = GroupKind::Work;
        let options = GroupOptions { kind, attempts_max, dead_letters, ..GroupOptions::default() };
        ana.join(Group { topic, name: "workers" }, options).map(drop)
    };
    match join("orders.eu", 1, DeadLetterTarget::Default) {
        Err(SubscribeError::Forbidden(text)) => {
            let permission =
                "no permission to publish to \"dead.orders.eu\", the subject of the group's dead letters";
            assert!(text.starts_with(permission), "{text}");
        }
        other => panic!("{other:?}"),
    }
    assert!(guarded.node.topic("dead.orders.eu").is_none());
    // These groups have no dead letters, drop them, or publish them to a subject that the user may use. They need no
    // further permission.
    join("orders.none", 0, DeadLetterTarget::Default).unwrap();
    join("orders.drop", 1, DeadLetterTarget::Drop).unwrap();
    join("orders.named", 1, DeadLetterTarget::Subject("orders.dead".to_owned())).unwrap();
}

#[test]
fn join_of_a_denied_group_is_refused_and_creates_no_topic() {
    let guarded = Guarded::new(USERS);
    let mut nats = guarded.nats_by_password("ana");
    for subject in ["orders.later", "orders.*"] {
        nats.send_line(&format!("SUB {subject} others 1"));
        let refused =
            format!("-ERR 'Permissions Violation for Subscription to \"{subject}\" using queue \"others\"'");
        assert_eq!(nats.line(), refused);
    }
    nats.send_line("SUB orders.later workers 2");
    nats.ping();
    // Joining a group over TCP may create the topic. A join that is refused must not.
    let ana = guarded.by_password("ana");
    let join = |name| ana.join(Group { topic: "orders.later", name }, GroupOptions::default()).map(drop);
    assert!(matches!(join("others"), Err(SubscribeError::Forbidden(_))));
    assert!(guarded.node.topic("orders.later").is_none());
    join("workers").unwrap();
    nats.publish("orders.later", "first");
    assert_eq!(nats.text(), ("orders.later".to_owned(), "first".to_owned()));
}

#[test]
fn queue_subscriber_gets_an_error_if_a_denied_topic_is_created() {
    let guarded = Guarded::new(USERS);
    let mut nats = guarded.nats_by_password("ana");
    nats.send_line("SUB later.* workers 1");
    nats.ping();
    let topic = TopicConfig { pattern: Some("later.>".to_owned()), ..TopicConfig::default() };
    guarded.node.create_topic("later", topic, false).unwrap();
    assert_eq!(
        nats.line(),
        "-ERR 'Permissions Violation for Subscription to \"later\" using queue \"workers.of.later.+\": \
         no permission to join group \"workers.of.later.+\"'"
    );
    // The response shows that nothing else was refused, and that the connection is still open.
    nats.ping();
}

#[test]
fn each_denied_record_of_a_burst_gets_its_own_error() {
    let guarded = Guarded::new(USERS);
    let mut nats = guarded.nats_by_password("ana");
    nats.send(format!("{}PING\r\n", "PUB denied.a 1\r\nx\r\n".repeat(20)).as_bytes());
    for _ in 0..20 {
        assert_eq!(nats.line(), "-ERR 'Permissions Violation for Publish to \"denied.a\"'");
    }
    assert_eq!(nats.line(), "PONG");
}

#[test]
fn replies_reach_only_the_user_who_sent_the_request() {
    let guarded = Guarded::new(
        "[users.asks]\npassword = \"HASH\"\npublish = [\"ask\"]\n[users.answers]\npassword = \"HASH\"\nsubscribe = [\"ask\"]\n",
    );
    let mut answers = guarded.nats_by_password("answers");
    answers.send_line("SUB ask 1");
    answers.ping();
    let mut asks = guarded.nats_by_password("asks");
    asks.send_line("SUB _INBOX.own.* 1\r\nPUB ask _INBOX.own.1 1\r\n?");
    asks.ping();
    let request = answers.message();
    let reply = request.reply.unwrap();
    // The responder knows the inbox's name from the request. The responder may publish to the inbox, but must not read
    // from it.
    answers.send_line("SUB _INBOX.own.> 2");
    assert_eq!(answers.line(), "-ERR 'Permissions Violation for Subscription to \"_INBOX.own.>\"'");
    answers.send_line(&format!("PUB {reply} 1\r\n!"));
    answers.ping();
    assert_eq!(asks.message().payload, b"!");
    // Another connection of the same user may read from the inbox, because clients do so after they reconnect.
    let mut again = guarded.nats_by_password("asks");
    again.send_line("SUB _INBOX.own.* 1");
    again.ping();
    // The same rules apply to the inboxes of clients that use Dunlin's own protocol.
    let client = guarded.by_password("asks");
    let mut requester = client.requester();
    let waiting = std::thread::spawn(move || requester.request("ask", "?", super::PATIENCE));
    let request = answers.message();
    let reply = request.reply.unwrap();
    let inbox = reply.rsplit_once('.').unwrap().0;
    answers.send_line(&format!("SUB {inbox}.> 3"));
    assert!(answers.line().starts_with("-ERR 'Permissions Violation"));
    answers.send_line(&format!("PUB {reply} 1\r\n!"));
    assert_eq!(waiting.join().unwrap().unwrap().payload, b"!"[..]);
}

#[test]
fn users_see_only_metrics_and_subscriptions_of_their_tenant() {
    let guarded = Guarded::new(
        "[tenants.acme]\n[tenants.other]\n\
         [users.ana]\ntenant = \"acme\"\npassword = \"HASH\"\npublish = [\">\"]\nsubscribe = [\">\"]\nsurveys = true\n\
         [users.bob]\ntenant = \"other\"\npassword = \"HASH\"\npublish = [\">\"]\nsubscribe = [\">\"]\n\
         [users.root]\npassword = \"HASH\"\nsurveys = true\n",
    );
    let named = |name: &str| SubscribeOptions { name: name.to_owned(), ..SubscribeOptions::default() };
    let (ana, bob) = (guarded.by_password("ana"), guarded.by_password("bob"));
    let _own = ana.subscribe("acme.mine", named("subscriber-of-ana")).unwrap();
    let _others = bob.subscribe("other.plans", named("subscriber-of-bob")).unwrap();
    let text = |user: &str, path: &str| {
        let response = guarded.http("GET", path, &basic(user, PASSWORD), b"");
        assert_eq!(response.status, 200, "{response:?}");
        String::from_utf8(response.body).unwrap()
    };
    for path in ["/metrics", "/v1/subscriptions"] {
        let received = text("ana", path);
        assert!(received.contains("acme.mine") && received.contains("subscriber-of-ana"), "{received}");
        for hidden in ["other", "subscriber-of-bob", "default", "process_", "dunlin_logins"] {
            assert!(!received.contains(hidden), "{hidden} in {received}");
        }
        let all = text("root", path);
        assert!(all.contains("acme.mine") && all.contains("subscriber-of-bob"), "{all}");
    }
    assert!(text("ana", "/metrics").contains("dunlin_topics 1\n"));
    let recent = guarded.http("GET", "/v1/subscriptions?recent", &basic("ana", PASSWORD), b"");
    assert_eq!(recent.status, 403, "{recent:?}");
    // The node's own counters contain data of all tenants, so users of one tenant must not read them.
    for path in ["/v1/node/stats", "/v1/topics/$node.%3E/events?from=snapshot"] {
        for user in ["ana", "bob"] {
            let refused = guarded.http("GET", path, &basic(user, PASSWORD), b"");
            assert_eq!(refused.status, 403, "{user}: {refused:?}");
        }
    }
    assert!(text("root", "/v1/node/stats").contains("subscriber-of-bob"));
    assert!(ana.subscribe("$node.>", named("curious")).is_err());
    guarded.by_password("root").subscribe("$node.>", named("operator")).unwrap();
}

#[test]
fn benchmark_report_page_needs_credentials() {
    let dir = tempfile::tempdir().unwrap();
    let report = dir.path().join("report.html");
    std::fs::write(&report, "figures").unwrap();
    let guarded = Guarded::with("[users.ana]\npassword = \"HASH\"\n", |config| {
        config.http_report = Some(report.clone())
    });
    assert_eq!(guarded.http("GET", "/report", "", b"").status, 401);
    assert_eq!(guarded.http("GET", "/report", &basic("ana", PASSWORD), b"").text(), "figures");
}
