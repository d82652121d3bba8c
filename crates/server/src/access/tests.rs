use std::fs;
use std::future::Future as _;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use dunlin::state::{ControlCommand, ControlQuery};
use dunlin::topic::{
    PublishError, ReliableOptions, Retention, Subscribe as _, SubscribeOptions, TopicConfig, Waiter,
};
use dunlin::wire::ErrorCode;
use dunlin::{Config, Node, NodeLimits, TopicError, User as _};

use super::*;
use crate::append::{AppendRequest, append_when_there_is_room, try_append};
use crate::tls::ClientCertificate;

struct AccessFixture {
    node: Node,
    access: Arc<Access>,
    file: PathBuf,
    token: String,
    digest: String,
    _dir: tempfile::TempDir,
}

impl AccessFixture {
    /// Creates a node with the user `ana`, who has a token and these permissions.
    fn new(permissions: &str) -> AccessFixture {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("users.toml");
        let (token, digest) = new_token().unwrap();
        fs::write(&file, users_file(&digest, permissions)).unwrap();
        let node = Node::start(Config::default()).unwrap();
        let access = Access::open(&file, &node, AccessLimits::default()).unwrap();
        AccessFixture { node, access, file, token, digest, _dir: dir }
    }

    fn rewrite(&self, users: &str) {
        fs::write(&self.file, users).unwrap();
        self.access.reload().unwrap();
    }

    fn pending(&self) -> PendingLogin {
        let waiter = (Waiter::new(), 1);
        self.access.start_login(
            Credentials::from_header(Some(format!("Bearer {}", self.token).as_bytes())),
            "",
            None,
            waiter,
        )
    }

    fn log_in(&self) -> Arc<Login> {
        self.pending().take().expect("a token is checked at once").unwrap()
    }
}

fn users_file(digest: &str, permissions: &str) -> String {
    format!("[users.ana]\ntokens = [\"{digest}\"]\n{permissions}\n")
}

const NO_USERS: &str = "# nobody\n";

#[test]
fn tenant_without_a_limit_leaves_memory_to_other_tenants() {
    let node_with = |memory: u64| {
        let limits = NodeLimits::with_memory(memory);
        Node::start(Config { limits, ..Config::default() }).unwrap()
    };
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("users.toml");
    let open = |node: &Node, other_tenant: &str| {
        let tokens = [new_token().unwrap().1, new_token().unwrap().1];
        let users = format!(
            "[tenants.a]\n[tenants.b]\n[users.ana]\ntenant = \"a\"\ntokens = [\"{}\"]\n\
             [users.eve]\ntenant = \"{other_tenant}\"\ntokens = [\"{}\"]\n",
            tokens[0], tokens[1]
        );
        fs::write(&file, users).unwrap();
        Access::open(&file, node, AccessLimits::default()).unwrap()
    };
    let node = node_with(8 << 20);
    let access = open(&node, "b");
    let (ana, eve) = (access.account("ana").unwrap(), access.account("eve").unwrap());
    assert_eq!(eve.tenant().budget().room(), 3 << 20);
    eve.tenant().budget().charge(3 << 20).unwrap();
    eve.tenant().connection_budget().charge(1 << 20).unwrap();
    assert!(eve.tenant().connection_budget().charge(1).is_err(), "half of the memory is used");
    assert_eq!(ana.tenant().budget().room(), 3 << 20);
    // The only tenant may use all memory.
    let node = node_with(8 << 20);
    let access = open(&node, "a");
    let eve = access.account("eve").unwrap();
    assert_eq!(eve.tenant().budget().room(), node.budget().room());
}

#[test]
fn login_is_refused_if_credentials_change_after_its_check() {
    let fixture = AccessFixture::new("publish = [\">\"]");
    let pending = fixture.pending();
    fixture.rewrite(&users_file(&new_token().unwrap().1, "publish = [\">\"]"));
    // The login succeeded with the old users file, but the session takes the result only now.
    let refused = pending.take().unwrap().unwrap_err();
    assert_eq!(refused.code, ErrorCode::Unauthenticated, "{refused:?}");
    assert!(refused.text.contains("has other credentials now"), "{refused:?}");
}

#[test]
fn account_created_during_a_reload_has_the_new_permissions() {
    let fixture = AccessFixture::new("publish = [\">\"]");
    let before = fixture.access.users();
    fixture.rewrite(&users_file(&fixture.digest, "publish = [\"a\"]"));
    // `before` simulates a login that read the users before the change.
    assert!(before.by_name.contains_key("ana"));
    let account = fixture.access.account("ana").unwrap();
    assert_eq!(account.permissions(), fixture.access.users().by_name["ana"].permissions);
    fixture.rewrite(NO_USERS);
    assert!(fixture.access.account("ana").is_none());
}

#[test]
fn old_login_stays_invalid_after_its_user_is_recreated() {
    let fixture = AccessFixture::new("publish = [\">\"]");
    let login = fixture.log_in();
    fixture.rewrite(NO_USERS);
    // The user was removed after this login. Below, `login` is checked only after the user was added again.
    fixture.rewrite(&users_file(&fixture.digest, "publish = [\">\"]"));
    assert_eq!(*login.account().permissions(), dunlin::Permissions::default());
    assert_eq!(login.check_validity().unwrap_err().code, ErrorCode::Unauthenticated);
    fixture.log_in().check_validity().unwrap();
}

#[test]
fn requests_of_a_connection_share_one_login() {
    let limited = "certificates = [\"CN=ana\"]\nlimits = { connections = 1 }";
    let fixture = AccessFixture::new(limited);
    let certificate = ClientCertificate { subject: "CN=ana".to_owned(), names: Vec::new() };
    let bearer = format!("Bearer {}", fixture.token);
    for (certificate, header) in [(Some(certificate), None), (None, Some(bearer.as_bytes()))] {
        let logins = RequestLoginCache::of(certificate);
        let log_in = || dunlin::block_on(logins.log_in(&fixture.access, header, None));
        // `first` stays open during the other requests. If each request had its own login, the second one would exceed
        // the limit of one connection.
        let first = log_in().unwrap();
        assert!(Arc::ptr_eq(&first, &log_in().unwrap()));
        fixture.rewrite(&users_file(&fixture.digest, &format!("publish = [\">\"]\n{limited}")));
        assert!(Arc::ptr_eq(&first, &log_in().unwrap()));
        fixture.rewrite(NO_USERS);
        assert_eq!(log_in().unwrap_err().code, ErrorCode::Unauthenticated);
        fixture.rewrite(&users_file(&fixture.digest, limited));
        assert!(!Arc::ptr_eq(&first, &log_in().unwrap()));
    }
}

/// Part of a users file: a user's permissions, and a tenant that may have one topic.
const ONE_TOPIC: &str = "\
    tenant = \"acme\"\ncreate = [\">\"]\n\
    [tenants.acme]\nsubjects = [\"acme.>\"]\nlimits = { topics = 1 }";

#[test]
fn topic_limit_of_a_tenant_includes_topics_being_created() {
    let fixture = AccessFixture::new(ONE_TOPIC);
    let login = fixture.log_in();
    let account = login.account();
    account.reserve_topic("acme.a", true).unwrap();
    assert!(matches!(account.reserve_topic("acme.b", true), Err(TopicError::Limit { value: 1, .. })));
    account.release_topic("acme.a");
    account.reserve_topic("acme.b", true).unwrap();
}

#[test]
fn existing_topics_count_towards_a_limit_that_is_set_later() {
    let fixture = AccessFixture::new(&ONE_TOPIC.replace("topics = 1", "connections = 9"));
    let login = fixture.log_in();
    fixture.node.create_topic("acme.a", TopicConfig::default(), false).unwrap();
    fixture.rewrite(&users_file(&fixture.digest, ONE_TOPIC));
    assert!(login.account().reserve_topic("acme.b", false).is_err());
    login.account().reserve_topic("acme.a", false).unwrap();
}

#[test]
fn topic_in_use_at_another_node_does_not_expire() {
    let fixture = AccessFixture::new(&ONE_TOPIC.replace("topics = 1", "topic_idle = \"1s\""));
    let login = fixture.log_in();
    let (account, tenancy) = (login.account(), login.account().tenant());
    account.reserve_topic("acme.a", true).unwrap();
    account.confirm_topic(&fixture.node.create_topic("acme.a", TopicConfig::default(), false).unwrap());
    let (later, last) = (dunlin::now_ns() + 10_000_000_000, dunlin::now_ns() + 20_000_000_000);
    let used = |ns| HashMap::from([("acme.a".to_owned(), ns)]);
    assert_eq!(tenancy.idle_topics(later, 9).len(), 1);
    tenancy.expire(later, &HashMap::new());
    assert_eq!(tenancy.idle_topics(later, 9).len(), 1, "the other nodes were not asked");
    tenancy.expire(later, &used(later));
    assert!(tenancy.idle_topics(later, 9).is_empty() && fixture.node.topic("acme.a").is_some());
    tenancy.expire(last, &used(0));
    assert!(fixture.node.topic("acme.a").is_none());
}

#[test]
fn topic_being_recreated_counts_towards_the_topic_limit() {
    let fixture = AccessFixture::new(ONE_TOPIC);
    let login = fixture.log_in();
    let account = login.account();
    account.reserve_topic("acme.a", true).unwrap();
    let topic = fixture.node.create_topic("acme.a", TopicConfig::default(), false).unwrap();
    account.confirm_topic(&topic);
    fixture.node.delete_topic("acme.a").unwrap();
    account.reserve_topic("acme.a", true).unwrap();
    assert!(account.reserve_topic("acme.b", true).is_err());
}

/// If the bucket's first time were the time of day, the bucket would never fill, because the monotonic clock has much
/// smaller values.
#[test]
fn publish_rate_is_measured_by_the_monotonic_clock() {
    let fixture = AccessFixture::new("publish = [\">\"]\nlimits = { publish_records_per_s = 2 }");
    let login = fixture.log_in();
    let quota = &login.account().quota;
    let mut meters = quota.meters();
    meters.take(2, 0);
    quota.check(&mut meters, 2, 0, dunlin::steady_ns() + 10_000_000_000).unwrap();
}

#[test]
fn failed_topic_creation_keeps_reservations_of_other_requests() {
    let fixture = AccessFixture::new(ONE_TOPIC);
    let login = fixture.log_in();
    let account = login.account();
    for _ in 0..2 {
        account.reserve_topic("acme.a", true).unwrap();
    }
    account.release_topic("acme.a");
    assert!(account.reserve_topic("acme.b", true).is_err(), "the other request may create its topic");
    let topic = fixture.node.create_topic("acme.a", TopicConfig::default(), false).unwrap();
    account.confirm_topic(&topic);
    assert!(account.reserve_topic("acme.b", true).is_err(), "the created topic counts");
    fixture.node.delete_topic("acme.a").unwrap();
    account.reserve_topic("acme.b", true).unwrap();
}

#[test]
fn stream_opened_with_an_outdated_login_is_refused_at_once() {
    let fixture = AccessFixture::new("subscribe = [\">\"]");
    let login = fixture.log_in();
    fixture.rewrite(NO_USERS);
    assert_eq!(Admission::of(&login).check().unwrap_err().code, ErrorCode::Unauthenticated);
    assert_eq!(SubscriptionAccess::of(&login).check().unwrap_err().code, ErrorCode::Unauthenticated);
}

#[test]
fn stream_ends_only_when_its_read_permissions_shrink() {
    let everything = "subscribe = [\">\"]\nkeys = [\"*\"]\ntasks = [\"submit\"]\nsurveys = true\n";
    for (after, ends) in [
        (everything.replace("subscribe = [\">\"]\n", ""), true),
        (everything.replace("keys = [\"*\"]\n", ""), true),
        (everything.replace("tasks = [\"submit\"]\n", ""), true),
        (everything.replace("surveys = true\n", ""), true),
        (everything.replace("[\"submit\"]", "[\"submit\", \"work\"]"), false),
        (format!("{everything}publish = [\"a\"]\n"), false),
        (format!("{everything}groups = [\"a\"]\n"), false),
    ] {
        let fixture = AccessFixture::new(everything);
        let mut subscription_access = SubscriptionAccess::of(&fixture.log_in());
        fixture.rewrite(&users_file(&fixture.digest, &after));
        assert_eq!(subscription_access.check().is_err(), ends, "{after}");
    }
}

#[test]
fn queued_query_is_refused_after_its_permission_ends() {
    let fixture = AccessFixture::new("keys = [\"*\"]");
    let node = fixture.log_in().node(&fixture.node);
    let control = Arc::clone(fixture.node.control().unwrap());
    let put = ControlCommand::Put { key: b"a", value: b"1", lease: 0 };
    dunlin::block_on(node.execute(&put)).unwrap();
    let query = ControlQuery::Get { key: b"a" };
    let run_query = || control.with(|state| node.query_state(state, &query)).unwrap();
    node.may_query(&query).unwrap();
    run_query().unwrap();
    // The next query stands for one that was in a session's queue when the permissions changed.
    fixture.rewrite(&users_file(&fixture.digest, "keys = [\"b\"]"));
    assert_eq!(run_query().unwrap_err().code, ErrorCode::Forbidden);
}

#[test]
fn pending_record_is_refused_after_its_permission_ends() {
    let fixture = AccessFixture::new("publish = [\"a\"]");
    let config = TopicConfig {
        retention: Retention { bytes: 64 << 10, ..Retention::default() },
        reliable: Some(ReliableOptions {
            wait_max: Duration::from_secs(3_600),
            ..ReliableOptions::default()
        }),
        ..TopicConfig::default()
    };
    let topic = fixture.node.create_topic("a", config, false).unwrap();
    let options = SubscribeOptions { registered: true, ..SubscribeOptions::default() };
    let mut reader = fixture.node.subscribe("a", &options).unwrap();
    let frame = {
        let meta = dunlin::topic::frame::RecordMeta::default();
        let payload = [0; 1_024];
        let encoded = meta.measure(payload.len()).unwrap();
        let mut frame = vec![0; encoded.padded()];
        meta.encode(encoded, 0, &payload, &mut frame);
        frame
    };
    let node = fixture.log_in().node(&fixture.node);
    let (frames, tail) = (&frame[..], "");
    let request = AppendRequest {
        frames,
        count: 1,
        partition: 0,
        mark: None,
        expect_last: None,
        after: None,
        node: &node,
        tail,
    };
    let full = loop {
        if let Err(full) = try_append(&topic, request) {
            break full;
        }
    };
    assert!(full.is_retryable(), "{full:?}");
    let last = topic.logs()[0].last();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let _guard = runtime.enter();
    let mut waiting = pin!(append_when_there_is_room(&topic, request));
    let mut cx = Context::from_waker(Waker::noop());
    assert!(waiting.as_mut().poll(&mut cx).is_pending());
    fixture.rewrite(&users_file(&fixture.digest, "publish = [\"b\"]"));
    while let Ok(Some(_)) = reader.try_next() {}
    let _ = reader.drain(0, |_| ());
    drop(reader);
    let Poll::Ready(refused) = waiting.as_mut().poll(&mut cx) else { panic!("there is room now") };
    assert!(matches!(refused, Err(PublishError::Forbidden(_))), "{refused:?}");
    assert_eq!(topic.logs()[0].last(), last);
}
