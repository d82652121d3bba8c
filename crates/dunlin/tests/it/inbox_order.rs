//! Tests that records for an inbox at another node stay in order, even if earlier records are refused or sent again.

use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use dunlin::state::{ControlCommand, ControlEffects, ControlReply, ControlState, KeyEvents};
use dunlin::topic::{
    AckLevel, Draft, Frame, Payload, Position, PublishError, Receipt, RecordMeta, Subject, Topic,
};
use dunlin::{
    ClusterCommandError, Config, InFlightBatch, MirrorFeed, Node, Ownership, OwnershipLimits, OwningTopic,
    PeerNodes, now_ns,
};
use dunlin_wait::until;

/// Three nodes. Node 1 publishes, and the test responds on behalf of the others.
#[derive(Debug, Default)]
struct Nodes {
    state: Mutex<ControlState>,
    ownerships: Mutex<Vec<Arc<Ownership>>>,
    forwarded: Mutex<Vec<(u64, InFlightBatch)>>,
}

#[derive(Debug)]
struct Link(Weak<Nodes>);

impl PeerNodes for Link {
    fn propose(&self, command: &ControlCommand<'_>) -> Result<ControlReply, ClusterCommandError> {
        let nodes =
            self.0.upgrade().ok_or_else(|| ClusterCommandError::Away("the test is over".to_owned()))?;
        let mut effects = ControlEffects::default();
        let reply = nodes.state.lock().unwrap().apply(command, &mut effects);
        let ownerships = nodes.ownerships.lock().unwrap().clone();
        for change in effects.changes {
            ownerships.iter().for_each(|of| of.apply_events(KeyEvents::new(&change.bytes).unwrap()));
        }
        Ok(reply?)
    }

    fn forward_batch(&self, to: u64, batch: InFlightBatch) {
        self.0.upgrade().unwrap().forwarded.lock().unwrap().push((to, batch));
    }

    fn feed_mirrors(&self, _from: u64, feed: Arc<MirrorFeed>) {
        feed.ended("nobody feeds here");
    }
}

impl Nodes {
    fn start() -> (Arc<Nodes>, Node) {
        let nodes = Arc::<Nodes>::default();
        let limits = OwnershipLimits { lease_ttl: Duration::from_secs(600), ..OwnershipLimits::default() };
        let of_cluster: Vec<Node> = (1..=3).map(|_| Node::start(Config::default()).unwrap()).collect();
        for (id, node) in (1..=3).zip(&of_cluster) {
            let ownership = node.join_cluster(id, Arc::new(Link(Arc::downgrade(&nodes))), limits);
            nodes.ownerships.lock().unwrap().push(Arc::clone(&ownership));
            ownership.apply_state(&nodes.state.lock().unwrap().clone());
            ownership.begin_membership(Vec::new()).unwrap();
        }
        let first = nodes.ownerships.lock().unwrap()[0].clone();
        until("all nodes are members", || first.nodes().len() == 3);
        (nodes, of_cluster.into_iter().next().unwrap())
    }

    /// The records that were forwarded and have no response yet, each with its destination.
    fn forwarded(&self) -> Vec<(u64, String)> {
        let text = |batch: &InFlightBatch| {
            let (frame, _) = Frame::split(&batch.frames).unwrap();
            String::from_utf8(frame.payload().to_vec()).unwrap()
        };
        self.forwarded.lock().unwrap().iter().map(|(to, batch)| (*to, text(batch))).collect()
    }

    fn until_forwarded(&self, expected: &[(u64, &str)]) {
        let expected: Vec<_> = expected.iter().map(|(to, text)| (*to, (*text).to_owned())).collect();
        until("the record is forwarded", || self.forwarded().len() >= expected.len());
        assert_eq!(self.forwarded(), expected);
    }

    /// Responds to the oldest forwarded record without a response.
    fn respond(&self, outcome: Result<Receipt, PublishError>) {
        let (_, batch) = self.forwarded.lock().unwrap().remove(0);
        batch.complete(outcome);
    }
}

fn publish(inbox: &Topic, text: &str) {
    let meta = RecordMeta { subject_tail: "1", ..RecordMeta::default() };
    let drafts = std::iter::once(Draft { meta, payload: Payload::Copied(text.as_bytes()) });
    inbox.append_drafts(now_ns(), 0, false, drafts).unwrap();
}

fn inbox(node: &Node) -> OwningTopic {
    node.owning_topic_for(Subject::parse("_INBOX.me.1").unwrap(), 1).unwrap()
}

fn appended() -> Result<Receipt, PublishError> {
    Ok(Receipt {
        partition: 0,
        position: Position { epoch: 1, seq: 1 },
        duplicate: false,
        acknowledged: AckLevel::Memory,
        new_epoch: false,
    })
}

fn no_inbox() -> Result<Receipt, PublishError> {
    Err(PublishError::NoTopic("_INBOX.me.>".to_owned()))
}

#[test]
fn replies_wait_in_order_until_their_inbox_is_found() {
    let (nodes, node) = Nodes::start();
    let inbox = inbox(&node);
    publish(&inbox, "first");
    publish(&inbox, "second");
    nodes.until_forwarded(&[(2, "first")]);
    nodes.respond(no_inbox());
    nodes.until_forwarded(&[(3, "first")]);
    publish(&inbox, "third");
    nodes.until_forwarded(&[(3, "first")]);
    nodes.respond(appended());
    nodes.until_forwarded(&[(3, "second"), (3, "third")]);
    publish(&inbox, "fourth");
    nodes.until_forwarded(&[(3, "second"), (3, "third"), (3, "fourth")]);
}

#[test]
fn inbox_with_an_unconfirmed_reply_is_never_forgotten() {
    let (nodes, node) = Nodes::start();
    publish(&inbox(&node), "first");
    nodes.until_forwarded(&[(2, "first")]);
    // Use more inboxes than a node remembers.
    for other in 0..5_000 {
        let subject = format!("_INBOX.other{other}.1");
        node.owning_topic_for(Subject::parse(&subject).unwrap(), 1).unwrap();
    }
    publish(&inbox(&node), "second");
    nodes.until_forwarded(&[(2, "first")]);
    nodes.respond(no_inbox());
    nodes.until_forwarded(&[(3, "first")]);
    nodes.respond(appended());
    nodes.until_forwarded(&[(3, "second")]);
}

#[test]
fn refused_replies_are_resent_before_newer_ones() {
    let (nodes, node) = Nodes::start();
    let inbox = inbox(&node);
    publish(&inbox, "found");
    nodes.until_forwarded(&[(2, "found")]);
    nodes.respond(appended());
    // Respond as if the client had closed the inbox and opened it again.
    ["first", "second"].iter().for_each(|text| publish(&inbox, text));
    nodes.until_forwarded(&[(2, "first"), (2, "second")]);
    nodes.respond(no_inbox());
    publish(&inbox, "third");
    nodes.until_forwarded(&[(2, "second")]);
    nodes.respond(no_inbox());
    nodes.until_forwarded(&[(2, "first"), (2, "second"), (2, "third")]);
}

#[test]
fn all_pending_replies_to_an_unknown_inbox_are_refused() {
    let (nodes, node) = Nodes::start();
    let inbox = inbox(&node);
    ["first", "second", "third"].iter().for_each(|text| publish(&inbox, text));
    nodes.until_forwarded(&[(2, "first")]);
    nodes.respond(no_inbox());
    nodes.until_forwarded(&[(3, "first")]);
    nodes.respond(no_inbox());
    // The later records were not sent while the search for the inbox lasted. They begin a search of their own.
    nodes.until_forwarded(&[(2, "second")]);
    nodes.respond(no_inbox());
    nodes.until_forwarded(&[(3, "second")]);
    nodes.respond(no_inbox());
    publish(&inbox, "fourth");
    nodes.until_forwarded(&[(2, "fourth")]);
}
