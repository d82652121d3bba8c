use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use dunlin::topic::{
    Draft, MemoryBudget, Pattern, Payload, Publish, RecordMeta, SubscribeOptions, Topic, TopicConfig,
};
use dunlin::{
    Inbox, Permissions, RequestError, ResponderExecutor, ResponderTask, SubjectRule, TopicError, User,
};
use dunlin_wait::{PATIENCE, until};
use tokio::sync::watch;

use crate::{all, from_earliest, node};

#[test]
fn responder_in_the_node_answers_requests() {
    let node = node();
    let _responder = node.respond("double", |mut request| {
        let twice = request.record().payload().repeat(2);
        request.reply(twice.as_slice()).unwrap();
    });
    let mut requester = node.requester(&SubscribeOptions::default()).unwrap();
    for text in ["a", "b"] {
        assert_eq!(requester.request("double", text, PATIENCE).unwrap().payload, text.repeat(2).as_bytes());
    }
    assert_eq!(node.request("double", "c", PATIENCE).unwrap().payload, b"cc");
}

/// An executor that collects tasks. The test runs them.
#[derive(Default)]
struct KeptTasks(Mutex<Vec<Arc<ResponderTask>>>);

impl KeptTasks {
    fn take(&self) -> Option<Arc<ResponderTask>> {
        self.0.lock().unwrap().pop()
    }
}

impl ResponderExecutor for KeptTasks {
    fn schedule(&self, task: Arc<ResponderTask>) {
        self.0.lock().unwrap().push(task);
    }
}

/// A listener's thread also serves connections. A responder must not occupy the thread, even if requests arrive without
/// end.
#[test]
fn responder_handles_a_limited_number_of_requests_at_once() {
    let node = node();
    let tasks = Arc::<KeptTasks>::default();
    let executor: Arc<dyn ResponderExecutor> = tasks.clone();
    node.set_executor(&executor);
    let handled = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&handled);
    let _responder = node.respond("busy", move |_| {
        count.fetch_add(1, Ordering::Relaxed);
    });
    let mut publisher = node.publisher("busy").unwrap();
    for _ in 0..1_000 {
        publisher.publish("request").unwrap();
    }
    let mut largest_run = 0;
    while let Some(task) = tasks.take() {
        let before = handled.load(Ordering::Relaxed);
        task.run();
        largest_run = largest_run.max(handled.load(Ordering::Relaxed) - before);
    }
    assert!((1..=100).contains(&largest_run), "{largest_run} requests in one run");
    assert_eq!(handled.load(Ordering::Relaxed), 1_000);
}

#[test]
fn panicking_handler_ends_only_its_own_responder() {
    let node = node();
    let ended = node.respond("fails", |_| panic!("this handler fails")).unwrap();
    let _responder = node.respond("works", |mut request| {
        request.reply("reply").unwrap();
    });
    node.publisher("fails").unwrap().publish("request").unwrap();
    until("the responder has ended", || ended.ended().is_some());
    assert_eq!(node.request("works", "request", PATIENCE).unwrap().payload, b"reply");
}

/// A user with the given permissions, a budget for topics, and a budget for connections.
#[derive(Debug)]
struct Restricted(Arc<Permissions>, Arc<MemoryBudget>, Arc<MemoryBudget>);

impl User for Restricted {
    fn name(&self) -> &str {
        "restricted"
    }

    fn permissions(&self) -> Arc<Permissions> {
        Arc::clone(&self.0)
    }

    fn changes(&self) -> watch::Receiver<()> {
        watch::channel(()).1
    }

    fn budget(&self) -> &Arc<MemoryBudget> {
        &self.1
    }

    fn connection_budget(&self) -> &Arc<MemoryBudget> {
        &self.2
    }

    fn reserve_topic(&self, _: &str, _: bool) -> Result<(), TopicError> {
        Ok(())
    }

    fn confirm_topic(&self, _: &Arc<Topic>) {}

    fn release_topic(&self, _: &str) {}
}

#[test]
fn responder_publishes_only_replies_that_its_user_may_publish() {
    let node = node();
    let config = TopicConfig { pattern: Some("a.>".to_owned()), ..TopicConfig::default() };
    node.create_topic("a", config, false).unwrap();
    let mut publisher = node.publisher("service").unwrap();
    let pattern = |text| Pattern::parse(text).unwrap();
    let all_but = |deny| SubjectRule { allow: vec![pattern(">")], deny };
    let permissions = Permissions {
        tenant: all_but(Vec::new()),
        publish: all_but(vec![pattern("a.secret")]),
        subscribe: all_but(Vec::new()),
        ..Permissions::default()
    };
    let budget = MemoryBudget::node(1 << 30, 0);
    let user = Restricted(Arc::new(permissions), Arc::clone(&budget), budget);
    let replied = Arc::new(Mutex::new(Vec::new()));
    let outcomes = Arc::clone(&replied);
    let allowed = [pattern(">")];
    let handler = move |mut request: dunlin::Request<'_, '_>| {
        outcomes.lock().unwrap().push(request.reply_within(&allowed, "reply").is_ok());
    };
    let _responder = node.with_user(Arc::new(user)).respond("service", handler).unwrap();
    for reply in ["a.open", "a.secret"] {
        let meta = RecordMeta { reply: Some(reply), ..RecordMeta::default() };
        publisher.publish(Draft { meta, payload: Payload::Copied(b"request") }).unwrap();
    }
    until("both requests are handled", || replied.lock().unwrap().len() == 2);
    assert_eq!(*replied.lock().unwrap(), [true, false]);
    let mut reader = node.subscribe("a.>", &from_earliest()).unwrap();
    assert_eq!(all(&mut reader), ["a.open=reply"]);
}

/// A requester chooses the reply subject. The reply must not reach a subject to which only the responder may publish.
#[test]
fn responder_replies_only_to_inboxes_and_allowed_subjects() {
    let node = node();
    let config = TopicConfig { pattern: Some("own.>".to_owned()), ..TopicConfig::default() };
    node.create_topic("own", config, false).unwrap();
    let mut publisher = node.publisher("service").unwrap();
    let (sender, outcomes) = mpsc::channel();
    let own = [Pattern::parse("own.>").unwrap()];
    let handler = move |mut request: dunlin::Request<'_, '_>| {
        let is_within = request.record().payload() == b"within";
        let outcome = if is_within { request.reply_within(&own, "reply") } else { request.reply("reply") };
        sender.send(outcome.is_ok()).unwrap();
    };
    let _responder = node.respond("service", handler).unwrap();
    let requests = [("own.a", "within", true), ("other.a", "within", false), ("own.a", "plain", false)];
    for (reply, payload, expected) in requests {
        let meta = RecordMeta { reply: Some(reply), ..RecordMeta::default() };
        publisher.publish(Draft { meta, payload: Payload::Copied(payload.as_bytes()) }).unwrap();
        assert_eq!(outcomes.recv_timeout(PATIENCE).unwrap(), expected, "{payload} to {reply}");
    }
    assert_eq!(node.request("service", "plain", PATIENCE).unwrap().payload, b"reply");
}

#[test]
fn inbox_of_a_session_counts_towards_connection_memory() {
    let node = node();
    let (topics, connections) = (MemoryBudget::node(1 << 30, 0), MemoryBudget::node(1 << 30, 0));
    let user = Restricted(Arc::default(), Arc::clone(&topics), Arc::clone(&connections));
    let handle = node.with_user(Arc::new(user));
    let mut inbox = Inbox::new(handle.clone(), node.next_session());
    inbox.open().unwrap();
    let charged = connections.used();
    assert!(charged > 0);
    assert_eq!(topics.used(), 0);
    let mut client_inbox = Inbox::of_client(handle, "_INBOX.chosen");
    client_inbox.open().unwrap();
    assert!(topics.used() > 0, "the inbox keeps as much history as a topic");
    assert_eq!(connections.used(), charged);
}

#[test]
fn request_without_responder_is_refused() {
    let node = node();
    let short = Duration::from_millis(10);
    assert_eq!(node.request("nobody", "?", short), Err(RequestError::NoResponder("nobody".to_owned())));
}

#[test]
fn late_reply_does_not_answer_the_next_request() {
    let node = node();
    let mut requester = node.requester(&SubscribeOptions::default()).unwrap();
    let mut requests = node.subscribe("slow", &SubscribeOptions::default()).unwrap();
    assert!(requester.request("slow", "1", Duration::from_millis(1)).is_err());
    let reply_to = {
        use dunlin::topic::{Event, Subscribe};
        let Ok(Some(Event::Record(record))) = requests.try_next() else {
            panic!("the request was published")
        };
        record.frame.reply().unwrap().to_owned()
    };
    node.publisher(&reply_to).unwrap().publish("late").unwrap();
    let _responder = node.respond("slow", |mut request| drop(request.reply("prompt")));
    assert_eq!(requester.request("slow", "2", PATIENCE).unwrap().payload, b"prompt");
}

#[test]
fn inbox_is_removed_when_its_requester_is_dropped() {
    let node = node();
    let requester = node.requester(&SubscribeOptions::default()).unwrap();
    drop(requester);
    assert!(node.publisher("_INBOX.1.1").is_err());
}
