//! Tests the limits of users and tenants.

use dunlin::topic::{Publish, PublishError};
use dunlin::wire::ErrorCode;
use dunlin::{Config, Node, NodeLimits};
use dunlin_client::scheduler::NewTask;
use dunlin_client::{Client, Credentials, Group, GroupOptions, TasksError};
use dunlin_server::grpc::proto::dunlin as v1;
use dunlin_wait::until;
use serde_json::json;
use tonic::Code;
use v1::tasks_client::TasksClient;

use super::{Guarded, PASSWORD, PATIENCE, as_ana, basic, refusal};
use crate::grpc::kv::{connect_kv, refused};
use crate::grpc::{channel, run};
use crate::nats_refusals::permission_violation;

/// A users file with the user `ana`, who may publish, use all keys and manage tasks.
const WRITER: &str =
    "[users.ana]\npassword = \"HASH\"\npublish = [\">\"]\nkeys = [\"*\"]\ntasks = [\"manage\"]\n";

/// Limits `ana` to 1,000 bytes a second, and publishes 900,000 bytes as `ana`. The user is then over the limit for 15
/// minutes.
fn exceed_rate(guarded: &Guarded) {
    guarded.rewrite(&format!("{WRITER}[users.ana.limits]\npublish_bytes_per_s = 1000\n"));
    let response = guarded.http("POST", "/v1/topics/a", &basic("ana", PASSWORD), &[0; 900_000]);
    assert_eq!(response.status, 200, "{response:?}");
}

#[test]
fn publish_over_the_rate_is_refused_with_a_retry_time() {
    let guarded = Guarded::new(
        "[users.ana]\npassword = \"HASH\"\npublish = [\">\"]\n[users.ana.limits]\npublish_records_per_s = 2\n",
    );
    let ana = guarded.by_password("ana");
    let mut publisher = ana.publisher("a").unwrap();
    let refused = (0..1_000).find_map(|_| publisher.publish(b"x").err());
    match refused {
        Some(PublishError::Refused(text)) => {
            assert!(text.starts_with("RATE_LIMIT: users.ana.limits.publish_records_per_s"), "{text}");
            assert!(text.contains("try again in "), "{text}");
        }
        other => panic!("{other:?}"),
    }
    let response = (0..1_000).map(|_| guarded.http("POST", "/v1/topics/a", &basic("ana", PASSWORD), b"x"));
    let response = response.into_iter().find(|response| response.status != 200).unwrap();
    assert_eq!(response.status, 429, "{response:?}");
    assert!(
        response.headers.iter().any(|(name, value)| name == "retry-after" && value == "1"),
        "{response:?}"
    );
}

#[test]
fn lease_can_be_renewed_while_the_publish_rate_is_exceeded() {
    let guarded = Guarded::new(WRITER);
    let (ana, kv) = (basic("ana", PASSWORD), guarded.by_password("ana").kv());
    let lease = kv.lease(PATIENCE).unwrap();
    exceed_rate(&guarded);
    assert_eq!(kv.put("k", "v").unwrap_err().code(), Some(ErrorCode::RateLimit));
    assert!(kv.keep_alive(&[lease.id()]).unwrap().is_empty());
    assert_eq!(guarded.http("PUT", &format!("/v1/leases/{}", lease.id()), &ana, b"").status, 204);
    run(async {
        let mut kv = connect_kv(&guarded.server).await;
        let requests = tokio_stream::once(v1::LeaseKeepAliveRequest { lease: lease.id() });
        let mut responses = kv.lease_keep_alive(as_ana(requests)).await.unwrap().into_inner();
        assert!(!responses.message().await.unwrap().unwrap().ended);
    });
}

/// The gRPC code and the error code of a refusal because of the publish rate.
fn rate_limit() -> (Code, String) {
    (Code::ResourceExhausted, "RATE_LIMIT".to_owned())
}

#[test]
fn user_over_the_publish_rate_cannot_wait_for_a_lock() {
    let guarded = Guarded::new(WRITER);
    let kv = guarded.by_password("ana").kv();
    let lease = kv.lease(PATIENCE).unwrap();
    exceed_rate(&guarded);
    assert_eq!(kv.lock("gate", &lease, b"").unwrap_err().code(), Some(ErrorCode::RateLimit));
    let path = format!("/v1/locks/gate?wait&lease={}", lease.id());
    assert_eq!(guarded.http("PUT", &path, &basic("ana", PASSWORD), b"").status, 429);
    run(async {
        let mut kv = connect_kv(&guarded.server).await;
        let wait = v1::LockRequest { name: "gate".into(), lease: lease.id(), ..Default::default() };
        assert_eq!(refused(kv.lock(as_ana(wait)).await), rate_limit());
    });
}

#[test]
fn user_over_the_publish_rate_can_cancel_but_not_submit_tasks() {
    let guarded = Guarded::new(WRITER);
    let (ana, tasks) = (basic("ana", PASSWORD), guarded.by_password("ana").tasks());
    let submit = || tasks.submit("acme", NewTask::new(b"k", b"")).map(|submitted| submitted.task);
    let [first, second, third] = [(); 3].map(|()| submit().unwrap());
    exceed_rate(&guarded);
    match submit() {
        Err(TasksError::Refused(refused)) => assert_eq!(refused.code, ErrorCode::RateLimit),
        other => panic!("{other:?}"),
    }
    let one = json!({"kind": "k"}).to_string();
    assert_eq!(guarded.http("POST", "/v1/tasks?tenant=acme", &ana, one.as_bytes()).status, 429);
    tasks.cancel(first).unwrap();
    assert_eq!(guarded.http("DELETE", &format!("/v1/tasks/{second:x}"), &ana, b"").status, 204);
    run(async {
        let mut client = TasksClient::new(channel(&guarded.server).await);
        let drafts = vec![v1::TaskDraft { kind: "k".to_owned(), ..Default::default() }];
        let submission = v1::SubmitTasksRequest { tenant: "acme".to_owned(), tasks: drafts };
        assert_eq!(refused(client.submit(as_ana(submission)).await), rate_limit());
        client.cancel(as_ana(v1::CancelTaskRequest { task: third })).await.unwrap();
        let redrive = v1::RedriveRequest { tenant: "acme".to_owned(), ..Default::default() };
        client.redrive(as_ana(redrive)).await.unwrap();
    });
}

/// After a refusal, the node reads the client's next command only when the rate permits one. If a client ignores the
/// refusal, its next command therefore succeeds.
#[test]
fn every_kind_of_tcp_command_over_the_rate_is_slowed_down() {
    let guarded = Guarded::new(&format!("{WRITER}[users.ana.limits]\npublish_records_per_s = 5\n"));
    let ana = guarded.by_password("ana");
    let (kv, tasks, mut publisher) = (ana.kv(), ana.tasks(), ana.publisher("a").unwrap());
    let mut put = || kv.put("k", "v").is_ok();
    let mut submit = || tasks.submit("acme", NewTask::new(b"k", b"")).is_ok();
    let mut publish = || publisher.publish(b"x").is_ok();
    let commands: [&mut dyn FnMut() -> bool; 3] = [&mut put, &mut submit, &mut publish];
    for (number, is_accepted) in commands.into_iter().enumerate() {
        while is_accepted() {}
        assert!(is_accepted(), "command {number} was refused twice");
    }
}

#[test]
fn nats_client_over_its_rate_waits_and_loses_nothing() {
    let users = "[users.ana]\npassword = \"HASH\"\npublish = [\">\"]\n[users.ana.limits]\npublish_records_per_s = 100\n\
                 [users.bob]\npassword = \"HASH\"\npublish = [\">\"]\n";
    let guarded = Guarded::with(users, |config| config.limits.nats.rate_wait_ms_max = 3_600_000);
    let (mut ana, mut bob) = (guarded.nats_by_password("ana"), guarded.nats_by_password("bob"));
    let last = |topic: &str| guarded.node.topic(topic).map_or(0, |topic| topic.logs()[0].info().next_seq - 1);
    // The user may publish 100 records a second, so that some of these 150 records must wait.
    ana.send("PUB slow 1\r\nx\r\n".repeat(150).as_bytes());
    ana.ping();
    assert_eq!(last("slow"), 150, "none was refused");
    // With one record a second, 600 records take ten minutes. The other user's records must not wait meanwhile.
    guarded.rewrite(&users.replace("= 100\n", "= 1\n"));
    ana.send("PUB slow 1\r\nx\r\n".repeat(600).as_bytes());
    (0..20).for_each(|_| bob.publish("free", "x"));
    bob.ping();
    assert_eq!(last("free"), 20);
    assert!(last("slow") < 750, "the limit holds");
    // After the limit is removed, the waiting records and all later ones must be appended at once.
    guarded.rewrite(&users.replace("publish_records_per_s = 100\n", ""));
    ana.send("PUB slow 1\r\nx\r\n".repeat(10_000).as_bytes());
    ana.ping();
    assert_eq!(last("slow"), 10_750);
}

#[test]
fn rate_refusal_does_not_disconnect_a_nats_client() {
    let guarded = Guarded::with(
        "[users.ana]\npassword = \"HASH\"\npublish = [\">\"]\n[users.ana.limits]\npublish_bytes_per_s = 100\n",
        |config| config.limits.nats.rate_wait_ms_max = 100,
    );
    let mut nats = guarded.nats_by_password("ana");
    let large = "x".repeat(100_000);
    nats.publish("a", &large);
    nats.publish("a", "over");
    let line = nats.line();
    let text = permission_violation(&line, "Publish", "a");
    assert!(text.contains("publish_bytes_per_s of 100 is reached; retry in"), "{text}");
    nats.ping();
    assert_eq!(guarded.node.topic("a").unwrap().logs()[0].info().next_seq - 1, 1);
}

#[test]
fn rate_limit_delay_survives_a_change_of_the_users_file() {
    let users = "[users.ana]\npassword = \"HASH\"\npublish = [\">\"]\n[users.ana.limits]\npublish_bytes_per_s = 1000\n";
    let guarded = Guarded::new(users);
    let ana = basic("ana", PASSWORD);
    assert_eq!(guarded.http("POST", "/v1/topics/a", &ana, &[0; 900_000]).status, 200);
    guarded.rewrite(&format!("# another day\n{users}"));
    assert_eq!(guarded.http("POST", "/v1/topics/a", &ana, b"x").status, 429);
    guarded.rewrite(&users.replace("= 1000", "= 2000"));
    assert_eq!(guarded.http("POST", "/v1/topics/a", &ana, b"x").status, 429);
    guarded.rewrite(&users.replace("publish_bytes_per_s = 1000", ""));
    assert_eq!(guarded.http("POST", "/v1/topics/a", &ana, b"x").status, 200);
}

#[test]
fn users_of_a_tenant_share_its_byte_rate() {
    let guarded = Guarded::new(
        "[tenants.acme.limits]\npublish_bytes_per_s = 1000\n\
         [users.ana]\ntenant = \"acme\"\npassword = \"HASH\"\npublish = [\"acme.>\"]\n\
         [users.bob]\ntenant = \"acme\"\npassword = \"HASH\"\npublish = [\"acme.>\"]\n",
    );
    let mut statuses = Vec::new();
    for user in ["ana", "bob"] {
        let response = guarded.http("POST", "/v1/topics/acme.a", &basic(user, PASSWORD), &[0; 900_000]);
        statuses.push((response.status, String::from_utf8_lossy(&response.body).into_owned()));
    }
    assert_eq!(statuses[0].0, 200, "what is larger than a second's worth passes once: {statuses:?}");
    assert_eq!(statuses[1].0, 429, "{statuses:?}");
    assert!(statuses[1].1.contains("tenants.acme.limits.publish_bytes_per_s"), "{statuses:?}");
}

#[test]
fn connection_over_the_user_or_tenant_limit_is_refused() {
    let guarded = Guarded::new(
        "[tenants.acme.limits]\nconnections = 2\n[users.ana]\ntenant = \"acme\"\npassword = \"HASH\"\n\
         [users.ana.limits]\nconnections = 1\n[users.bob]\ntenant = \"acme\"\npassword = \"HASH\"\n",
    );
    let log_in = |user: &str| guarded.connect(Credentials::password(user, PASSWORD.as_bytes()));
    let ana = log_in("ana").unwrap();
    let refused = refusal(log_in("ana"));
    assert_eq!((refused.code, refused.text.as_str()), (ErrorCode::Limit, "users.ana.limits.connections"));
    let _bob = log_in("bob").unwrap();
    let refused = refusal(log_in("bob"));
    assert_eq!((refused.code, refused.text.as_str()), (ErrorCode::Limit, "tenants.acme.limits.connections"));
    assert_eq!(guarded.http("GET", "/v1/topics", &basic("bob", PASSWORD), b"").status, 429);
    let mut nats = guarded.nats(&format!(",\"user\":\"bob\",\"pass\":\"{PASSWORD}\""));
    assert_eq!(nats.line(), "-ERR 'maximum account active connections exceeded'");
    drop(ana);
    until("the place is given back", || log_in("ana").is_ok());
}

#[test]
fn idle_topics_of_a_tenant_expire_to_allow_new_ones() {
    let guarded = Guarded::new(
        "[tenants.acme.limits]\ntopics = 2\ntopic_idle = \"1s\"\n\
         [users.ana]\ntenant = \"acme\"\npassword = \"HASH\"\npublish = [\"acme.>\"]\nsubscribe = [\"acme.>\"]\n\
         create = [\"acme.>\"]\ndelete = [\"acme.>\"]\n",
    );
    let ana = basic("ana", PASSWORD);
    assert_eq!(guarded.http("PUT", "/v1/topics/acme.kept", &ana, b"{}").status, 201);
    assert_eq!(guarded.http("POST", "/v1/topics/acme.used", &ana, b"x").status, 200);
    let response = guarded.http("POST", "/v1/topics/acme.third", &ana, b"x");
    // On a slow machine, `acme.used` may already have been idle for a second and have been deleted. Then this publish
    // succeeds.
    if response.status != 200 {
        assert_eq!(response.status, 429, "{response:?}");
        assert!(String::from_utf8_lossy(&response.body).contains("topics"), "{response:?}");
    }
    until("the topic that nobody uses goes", || guarded.node.topic("acme.used").is_none());
    assert!(guarded.node.topic("acme.kept").is_some(), "what was created on purpose stays");
    until("room is made", || guarded.http("POST", "/v1/topics/acme.third", &ana, b"x").status == 200);
}

#[test]
fn topic_with_a_subscriber_does_not_expire() {
    let guarded = Guarded::new(
        "[tenants.acme.limits]\ntopic_idle = \"1s\"\n[users.ana]\ntenant = \"acme\"\npassword = \"HASH\"\n\
         publish = [\"acme.>\"]\nsubscribe = [\"acme.>\"]\n",
    );
    let ana = guarded.by_password("ana");
    let _subscriber = ana.subscribe("acme.read", Default::default()).unwrap();
    assert_eq!(guarded.http("POST", "/v1/topics/acme.other", &basic("ana", PASSWORD), b"x").status, 200);
    until("the topic that nobody uses goes", || guarded.node.topic("acme.other").is_none());
    assert!(guarded.node.topic("acme.read").is_some());
}

#[test]
fn topic_created_explicitly_does_not_expire() {
    let guarded = Guarded::new(
        "[tenants.acme.limits]\ntopic_idle = \"1s\"\n[users.ana]\ntenant = \"acme\"\npassword = \"HASH\"\n\
         publish = [\"acme.>\"]\ncreate = [\"acme.>\"]\n\
         [users.root]\npassword = \"HASH\"\ncreate = [\">\"]\ndelete = [\">\"]\n",
    );
    let (ana, root) = (basic("ana", PASSWORD), basic("root", PASSWORD));
    assert_eq!(guarded.http("POST", "/v1/topics/acme.anew", &ana, b"x").status, 200);
    guarded.http("DELETE", "/v1/topics/acme.anew", &root, b"");
    let recreated = guarded.http("PUT", "/v1/topics/acme.anew", &root, b"{\"retention\":{\"records\":7}}");
    assert_eq!(recreated.status, 201, "{recreated:?}");
    assert_eq!(guarded.http("POST", "/v1/topics/acme.made", &ana, b"x").status, 200);
    let created = guarded.http("PUT", "/v1/topics/acme.made", &ana, b"{}");
    assert!([200, 201].contains(&created.status), "{created:?}");
    assert_eq!(guarded.http("POST", "/v1/topics/acme.later", &ana, b"x").status, 200);
    until("the topic that nobody uses goes", || guarded.node.topic("acme.later").is_none());
    assert!(guarded.node.topic("acme.made").is_some());
    assert!(guarded.node.topic("acme.anew").is_some(), "another tenant's user created it");
}

#[test]
fn tenant_at_its_memory_limit_does_not_affect_other_tenants() {
    let guarded = Guarded::new(
        "[tenants.small.limits]\nmemory_bytes = 200000\n\
         [users.ana]\ntenant = \"small\"\npassword = \"HASH\"\npublish = [\"small.>\"]\n\
         [users.bob]\npassword = \"HASH\"\npublish = [\">\"]\n",
    );
    let filled = (0..200).find_map(|number| {
        let path = format!("/v1/topics/small.t{number}");
        let response = guarded.http("POST", &path, &basic("ana", PASSWORD), &[0; 4_096]);
        (response.status != 200).then_some(response)
    });
    let response = filled.expect("200 topics of a segment each are more than 200 kB");
    assert!([429, 503].contains(&response.status), "{response:?}");
    assert_eq!(guarded.http("POST", "/v1/topics/free", &basic("bob", PASSWORD), b"x").status, 200);
}

#[test]
fn one_user_cannot_use_up_all_groups() {
    let may = "password = \"HASH\"\ncreate = [\">\"]\nsubscribe = [\">\"]\ngroups = [\">\"]\n";
    let guarded = Guarded::new(&format!("[users.ana]\n{may}[users.bob]\n{may}"));
    let (ana, bob) = (guarded.by_password("ana"), guarded.by_password("bob"));
    let join = |client: &Client, number: usize| {
        let group = Group { topic: "jobs", name: &format!("g{number}") };
        client.join(group, GroupOptions::default()).map(|member| member.leave())
    };
    let groups_max = guarded.node.config().limits.groups_max;
    (0..groups_max / 4).for_each(|number| join(&ana, number).unwrap());
    let refused = join(&ana, groups_max).unwrap_err().to_string();
    assert!(refused.contains("groups_of_user_max"), "{refused}");
    join(&ana, 0).expect("it may go on in those that there are");
    join(&bob, groups_max).unwrap();
}

/// The node limits the number of subscriptions to patterns that have no topics yet. One tenant must not use up this
/// limit.
#[test]
fn one_tenant_cannot_use_up_the_limit_of_waiting_subscriptions() {
    let may = "password = \"HASH\"\nsubscribe = [\">\"]\n";
    let users: String =
        ["eve1", "eve2"].map(|name| format!("[users.{name}]\ntenant = \"evil\"\n{may}")).concat();
    let of_acme = format!("[users.ana]\ntenant = \"acme\"\n{may}");
    let limits = NodeLimits { watchers_max: 40, ..NodeLimits::default() };
    let node = Node::start(Config { limits, ..Config::default() }).unwrap();
    let guarded =
        Guarded::with_node(node, &format!("[tenants.evil]\n[tenants.acme]\n{users}{of_acme}"), |_| ());
    let clients = ["eve1", "eve2"].map(|user| guarded.by_password(user));
    let subscribe = |client: &Client, pattern: &str| client.subscribe(pattern, Default::default());
    let mut subscribers = Vec::new();
    let refused =
        (0..41).find_map(|number| match subscribe(&clients[number % 2], &format!("evil.{number}.*")) {
            Ok(subscriber) => {
                subscribers.push(subscriber);
                None
            }
            Err(refused) => Some(refused.to_string()),
        });
    let refused = refused.unwrap();
    assert!(refused.contains("watchers_of_tenant_max"), "{refused}");
    assert_eq!(subscribers.len(), 30);
    let ana = guarded.by_password("ana");
    let _others = subscribe(&ana, "acme.1.*").expect("other tenants have room");
    drop(subscribers);
    until("ended subscriptions do not count", || subscribe(&clients[0], "evil.41.*").is_ok());
}

/// A group without members remains for an hour. The users of one tenant must not use up the node's limit of groups.
#[test]
fn one_tenant_cannot_use_up_all_groups() {
    let may = "password = \"HASH\"\ncreate = [\">\"]\nsubscribe = [\">\"]\ngroups = [\">\"]\n";
    let users = ["eve1", "eve2", "eve3", "eve4"];
    let of_evil = users.map(|name| format!("[users.{name}]\ntenant = \"evil\"\n{may}")).concat();
    let of_acme = format!("[users.ana]\ntenant = \"acme\"\n{may}");
    let groups_max = 40;
    let limits = NodeLimits { groups_max, ..NodeLimits::default() };
    let node = Node::start(Config { limits, ..Config::default() }).unwrap();
    let guarded =
        Guarded::with_node(node, &format!("[tenants.evil]\n[tenants.acme]\n{of_evil}{of_acme}"), |_| ());
    let join = |client: &Client, topic: &str, name: &str| {
        let group = Group { topic, name };
        client.join(group, GroupOptions::default()).map(|member| member.leave())
    };
    let mut joined_count = 0;
    for user in users {
        let client = guarded.by_password(user);
        let refused = (0..groups_max).find_map(|number| {
            let joined = join(&client, "evil.jobs", &format!("{user}-{number}"));
            joined_count += usize::from(joined.is_ok());
            joined.err()
        });
        let refused = refused.unwrap().to_string();
        let limit = if user == "eve4" { "groups_of_tenant_max" } else { "groups_of_user_max" };
        assert!(refused.contains(limit), "{user}: {refused}");
    }
    assert_eq!(joined_count, 30);
    join(&guarded.by_password("eve4"), "evil.jobs", "eve1-0")
        .expect("they may go on in those that there are");
    join(&guarded.by_password("ana"), "acme.jobs", "first").expect("the others have room");
    let mut ana = guarded.nats_by_password("ana");
    ana.send_line("SUB acme.jobs workers 1");
    ana.ping();
}
