//! Tests publishers and subscribers of a state topic that another node owns.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;

use dunlin::now_ns;
use dunlin::topic::{OnGap, ReducerConfig, Subject};
use dunlin::wire::FromNode;
use dunlin_client::{Relay, RelayBatch, RelayOutcome};
use dunlin_server::grpc::proto::dunlin as v1;

use super::*;
use crate::peer::Peer;

fn book() -> TopicConfig {
    TopicConfig {
        reducer: Some(ReducerConfig { kind: "book".to_owned(), ..ReducerConfig::default() }),
        ..TopicConfig::default()
    }
}

fn follow(client: &Client) -> dunlin_client::Subscriber {
    let options = SubscribeOptions { on_gap: OnGap::Snapshot, ..start_at(Start::Snapshot) };
    client.subscribe("md", options).unwrap()
}

/// Reads until a notice reports that publishers are connected (or, if `connected` is false, that none is).
fn wait_for_publisher_status(reader: &mut dunlin_client::Subscriber, connected: bool) {
    loop {
        match reader.next_timeout(PATIENCE).unwrap() {
            Some(Event::Notice(Notice::Publishers(status))) if status.connected == connected => return,
            Some(_) => {}
            None => panic!("it is not told that connected is {connected}"),
        }
    }
}

/// Encodes a level of an order book. If `number` is a multiple of 100, its size is negative, and the state refuses it.
fn level(number: i64) -> Vec<u8> {
    let size = if number % 100 == 0 { -1 } else { number };
    [&[1, 1, 0, 0, 0, 0, 0, 0][..], &number.to_le_bytes(), &size.to_le_bytes()].concat()
}

#[test]
fn owner_refuses_bad_remote_records_but_accepts_the_others() {
    let cluster = TestCluster::of(3);
    cluster.create_topic_at(1, "md", book());
    let log = || cluster.node(1).topic("md").unwrap().logs()[0].state_info().unwrap();
    let client = cluster.client(2);
    let mut publisher = client.publisher("md").unwrap();
    let mut left_out = 0;
    let mut is_done = |outcome: Result<(), PublishError>| match outcome {
        Ok(()) => true,
        Err(PublishError::LeftOut { more, .. }) => {
            left_out += 1 + more;
            false
        }
        Err(other) => panic!("{other}"),
    };
    for number in 1..=1_000 {
        is_done(publisher.send(&level(number)[..]).map(drop));
    }
    while !is_done(publisher.flush().map(drop)) {}
    assert_eq!((left_out, log().0.seq, log().1.entries), (10, 990, 990));

    let mut peer = cluster.nats(3);
    let mut burst = Vec::new();
    for number in 1_001..=2_000 {
        burst.extend_from_slice(b"PUB md 24\r\n");
        burst.extend_from_slice(&level(number));
        burst.extend_from_slice(b"\r\n");
    }
    burst.extend_from_slice(b"PING\r\n");
    peer.send(&burst);
    // The owner's response takes a while, so `PONG` may arrive before the refusals.
    let (pongs, refused): (Vec<_>, Vec<_>) = (0..11).map(|_| peer.line()).partition(|line| line == "PONG");
    assert_eq!(pongs.len(), 1, "{refused:?}");
    refused
        .iter()
        .for_each(|line| assert!(line.starts_with("-ERR") && line.contains("state refuses it"), "{line}"));
    assert_eq!((log().0.seq, log().1.entries), (1_980, 1_980));

    grpc::run(async {
        let (through, refused) = stream_levels(&cluster, 2_001..=3_000).await;
        assert_eq!(through, 1_000);
        let expected: Vec<u64> = (1..=10).map(|of| 100 * of - 1).collect();
        assert_eq!(refused, expected, "each by its own number, and the stream went on");
    });
    assert_eq!((log().0.seq, log().1.entries), (2_970, 2_970));
}

/// Publishes levels through node 3 over one gRPC stream. Returns the number of acknowledged records, and the numbers of
/// those that were refused.
async fn stream_levels(cluster: &TestCluster, numbers: std::ops::RangeInclusive<i64>) -> (u64, Vec<u64>) {
    let address = format!("http://{}", cluster.address(3, Protocol::Grpc));
    let channel = tonic::transport::Endpoint::from_shared(address).unwrap().connect().await.unwrap();
    let messages: Vec<_> = numbers
        .map(|number| v1::PublishStreamRequest {
            subject: "md".to_owned(),
            records: vec![v1::Draft { payload: level(number).into(), ..Default::default() }],
            ..Default::default()
        })
        .collect();
    let mut client = grpc::GrpcClient::new(channel);
    let mut answers = client.publish_stream(tokio_stream::iter(messages)).await.unwrap().into_inner();
    let (mut through, mut refused) = (0, Vec::new());
    while let Some(response) = answers.message().await.unwrap() {
        through = response.through;
        refused.extend(response.refused.iter().map(|refused| refused.index));
    }
    (through, refused)
}

#[test]
fn publisher_at_any_node_is_reported_to_all_subscribers() {
    let cluster = TestCluster::of(3);
    cluster.create_topic_at(1, "md", book());
    let clients = [1, 2, 3].map(|id| cluster.client(id));
    let mut readers = clients.each_ref().map(follow);
    readers.iter_mut().for_each(|reader| wait_for_publisher_status(reader, false));
    for id in [1, 2, 3] {
        let publishing = cluster.client(id);
        let publisher = publishing.publisher("md").unwrap();
        readers.iter_mut().for_each(|reader| wait_for_publisher_status(reader, true));
        drop((publisher, publishing));
        readers.iter_mut().for_each(|reader| wait_for_publisher_status(reader, false));
    }
}

#[test]
fn moved_state_topic_keeps_its_publishers() {
    let cluster = TestCluster::of(3);
    cluster.create_topic_at(1, "md", book());
    let (reading, publishing) = (cluster.client(2), cluster.client(3));
    let mut reader = follow(&reading);
    wait_for_publisher_status(&mut reader, false);
    let publisher = publishing.publisher("md").unwrap();
    wait_for_publisher_status(&mut reader, true);
    for owner in [2, 3] {
        let ownership = cluster.members.lock().unwrap()[&owner].ownership.clone();
        ownership.move_topic("md", owner).unwrap();
        until("the owner has it", || !cluster.node(owner).topic("md").unwrap().logs()[0].is_mirror());
        // A subscriber that starts after the move must also begin with a snapshot.
        let mut joined = follow(&reading);
        let first = joined.next_timeout(PATIENCE).unwrap();
        assert!(matches!(first, Some(Event::Notice(Notice::Snapshot(_)))), "{first:?}");
    }
    cluster.kill(1);
    drop((publisher, publishing));
    wait_for_publisher_status(&mut reader, false);
}

#[test]
fn owner_refuses_relayed_records_that_follow_a_refused_one() {
    let cluster = TestCluster::of(2);
    cluster.create_topic_at(2, "t", TopicConfig::default());
    let url = cluster.urls.lock().unwrap()[&1].clone();
    let node =
        Client::connect(&url, ClientOptions { name: "$node-7".to_owned(), ..patient_options() }).unwrap();
    let record = |text: &str| {
        let (meta, mut frame) = (RecordMeta::default(), Vec::new());
        let encoded = meta.measure(text.len()).unwrap();
        frame.resize(encoded.padded(), 0);
        meta.encode(encoded, 0, text.as_bytes(), &mut frame);
        frame
    };
    let relay_record = |relay: &Relay, text: &str| {
        let (sender, receiver) = mpsc::channel();
        let frames = &record(text)[..];
        let run =
            RelayBatch { partition: 0, frames, count: 1, producer_seq: None, expect_last: None, after: None };
        relay.send(run, Box::new(move |relayed| sender.send(relayed).unwrap()));
        let mut outcome = None;
        until("it is answered", || {
            node.pump(POLL);
            outcome = receiver.try_recv().ok();
            outcome.is_some()
        });
        outcome.unwrap()
    };
    let relay = node.relay("t", None);
    // This node becomes the owner between the arrivals of the first and the second record.
    let returned = relay_record(&relay, "first");
    assert!(matches!(returned, RelayOutcome::NotAccepted(_)), "{returned:?}");
    let ownership = cluster.members.lock().unwrap()[&1].ownership.clone();
    ownership.move_topic("t", 1).unwrap();
    until("it owns the topic", || !cluster.node(1).topic("t").unwrap().logs()[0].is_mirror());
    let returned = relay_record(&relay, "second");
    assert!(matches!(returned, RelayOutcome::NotAccepted(_)), "{returned:?}");
    let relay = node.relay("t", None);
    for (seq, text) in [(1, "first"), (2, "second")] {
        match relay_record(&relay, text) {
            RelayOutcome::Answered(Ok(receipt)) => assert_eq!(receipt.position.seq, seq),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn batch_that_arrives_on_a_replaced_connection_is_not_appended() {
    let cluster = TestCluster::of(2);
    cluster.create_topic_at(1, "t", TopicConfig::default());
    let connect = || {
        let members = cluster.members.lock().unwrap();
        let mut peer = Peer::connect_as(members[&1].server.as_ref().unwrap(), "$node-7");
        peer.open_publisher(1, "t");
        peer
    };
    let is_published = |peer: &mut Peer| {
        peer.next(|message| matches!(message, FromNode::Published(_)).then_some(())).is_some()
    };
    let mut old = connect();
    old.publish(1, 1, &[b"first"]);
    assert!(is_published(&mut old));
    // The forwarding node gives up its connection while the second batch is in transit. It sends the third batch over a
    // new connection.
    let mut new = connect();
    new.publish(1, 1, &[b"third"]);
    assert!(is_published(&mut new));
    old.publish(1, 2, &[b"second"]);
    assert!(!is_published(&mut old), "the connection is closed");
    new.publish(1, 2, &[b"fourth"]);
    assert!(is_published(&mut new));
    let mut reader = cluster.client(2).subscribe("t", start_at(Start::Earliest)).unwrap();
    for text in ["first", "third", "fourth"] {
        let event = reader.next_timeout(PATIENCE).unwrap();
        let is_it = matches!(&event, Some(Event::Record(record)) if record.payload() == text.as_bytes());
        assert!(is_it, "{text}: {event:?}");
    }
}

#[test]
fn returned_records_are_resent_to_the_new_owner_in_order() {
    let cluster = TestCluster::patient(3);
    cluster.create_topic_at(3, "t", TopicConfig::default());
    let mut reader = cluster.node(3).subscribe("t", &start_at(Start::Latest)).unwrap();
    // Node 2 owns the topic now, but does not know it yet. It therefore returns the records that node 1 forwards to it.
    cluster.hold_back_changes(2);
    let ownership = cluster.members.lock().unwrap()[&1].ownership.clone();
    ownership.move_topic("t", 2).unwrap();
    let (of, is_first) = (Arc::downgrade(&cluster), AtomicBool::new(true));
    let forwarding: Forwarding = Arc::new(move |run| {
        let is_second = run.frames.windows(6).any(|bytes| bytes == b"second");
        if !is_second || !is_first.swap(false, Ordering::Relaxed) {
            return;
        }
        // At this moment, node 2 has returned the first record, and node 1 is about to forward the second. Only now,
        // node 2 learns that it is the owner.
        let cluster = of.upgrade().unwrap();
        cluster.node(1).has_subscriber(Subject::parse("behind.the.first").unwrap());
        cluster.release_changes(2);
        until("it owns the topic", || !cluster.node(2).topic("t").unwrap().logs()[0].is_mirror());
    });
    *cluster.forwarding.lock().unwrap() = Some(forwarding);
    for text in ["first", "second", "third"] {
        let draft = Draft { meta: RecordMeta::default(), payload: Payload::Copied(text.as_bytes()) };
        cluster.node(1).topic("t").unwrap().append_drafts(now_ns(), 0, false, [draft].iter()).unwrap();
    }
    let mut texts = Vec::new();
    while texts.len() < 3 {
        match reader.next_timeout(PATIENCE).unwrap() {
            Some(Event::Record(record)) => texts.push(String::from_utf8(record.payload().to_vec()).unwrap()),
            Some(Event::Notice(_)) => {}
            None => panic!("nothing after {texts:?}"),
        }
    }
    assert_eq!(texts, ["first", "second", "third"]);
}

/// A publisher that states after which record it continues. There is a variant for each way to publish: over TCP,
/// inside a node's process, over HTTP, and over gRPC.
enum StatePublisher {
    Tcp(dunlin_client::Publisher),
    Inside(dunlin::topic::Publisher),
    Http(std::net::SocketAddr, Option<String>),
    Grpc(std::net::SocketAddr, Option<v1::LastPosition>),
}

/// The result of a publish: the record's position and whether the epoch has changed, or the name of the error.
type Outcome = Result<(Position, bool), String>;

impl StatePublisher {
    fn all_protocols(cluster: &TestCluster, id: u64) -> Vec<StatePublisher> {
        vec![
            StatePublisher::Tcp(cluster.client(id).publisher("md").unwrap()),
            StatePublisher::Inside(cluster.node(id).publisher("md").unwrap()),
            StatePublisher::Http(cluster.address(id, Protocol::Http), None),
            StatePublisher::Grpc(cluster.address(id, Protocol::Grpc), None),
        ]
    }

    fn publish_once(&mut self, payload: &[u8]) -> Outcome {
        let to_outcome = |receipt: dunlin::topic::Receipt| (receipt.position, receipt.new_epoch);
        let refused = |error: PublishError| match error {
            PublishError::StateLost(_) => "STATE_LOST".to_owned(),
            other => other.to_string(),
        };
        match self {
            StatePublisher::Tcp(publisher) => publisher.publish(payload).map(to_outcome).map_err(refused),
            StatePublisher::Inside(publisher) => publisher.publish(payload).map(to_outcome).map_err(refused),
            StatePublisher::Http(address, last) => {
                let headers: Vec<_> =
                    last.iter().map(|last| ("dunlin-last-position", last.as_str())).collect();
                let response =
                    HttpPeer::connect(*address).request("POST", "/v1/topics/md", &headers, payload);
                if response.status >= 400 {
                    *last = last.take().filter(|_| response.code() != "STATE_LOST");
                    return Err(response.code());
                }
                let body = response.json();
                let position = body["position"].as_str().unwrap();
                *last = Some(position.to_owned());
                Ok((position.parse().unwrap(), body["new_epoch"].as_bool().unwrap()))
            }
            StatePublisher::Grpc(address, last) => {
                let request = v1::PublishRequest { last_position: *last, ..grpc::publish("md", payload) };
                let mut response = None;
                grpc::run(async {
                    let channel =
                        tonic::transport::Endpoint::from_shared(format!("http://{address}")).unwrap();
                    let mut client = grpc::GrpcClient::new(channel.connect().await.unwrap());
                    response = Some(client.publish(request).await);
                });
                match response.unwrap() {
                    Ok(response) => {
                        let receipt = response.into_inner().receipt.unwrap();
                        let v1::Receipt { epoch, seq, new_epoch, .. } = receipt;
                        *last = Some(v1::LastPosition { epoch, seq });
                        Ok((Position { epoch, seq }, new_epoch))
                    }
                    Err(status) if status.code() == tonic::Code::DataLoss => {
                        *last = None;
                        Err("STATE_LOST".to_owned())
                    }
                    Err(status) => Err(format!("{status:?}")),
                }
            }
        }
    }

    /// Publishes a level. Tries again while the owner cannot be reached.
    fn publish(&mut self, number: i64) -> Outcome {
        let mut outcome = Err(String::new());
        until("the owner has answered", || {
            outcome = self.publish_once(&level(number));
            outcome.as_ref().map_or_else(|error| error == "STATE_LOST", |_| true)
        });
        outcome
    }
}

#[test]
fn each_publisher_is_refused_once_after_a_state_loss() {
    let cluster = TestCluster::of(3);
    cluster.create_topic_at(2, "md", book());
    let last = || cluster.node(2).topic("md").unwrap().logs()[0].last();
    let mut publishers: Vec<StatePublisher> =
        [1, 3].into_iter().flat_map(|id| StatePublisher::all_protocols(&cluster, id)).collect();
    for (number, publisher) in (1..).zip(&mut publishers) {
        assert_eq!(publisher.publish(number).unwrap().0.seq, number as u64);
    }
    let before = last();
    // The owner is stopped and started again before its lease ends. It still owns the topic, but has lost the records.
    cluster.stop_with_lease(2);
    cluster.start(2);
    for publisher in &mut publishers {
        assert_eq!(publisher.publish(20), Err("STATE_LOST".to_owned()));
    }
    assert_eq!(last().seq, 0, "nothing was appended to a state that has begun with nothing");
    assert!(last().epoch > before.epoch);
    for (number, publisher) in (1..).zip(&mut publishers) {
        let (position, new_epoch) = publisher.publish(number).unwrap();
        assert_eq!((position.seq, position.epoch), (number as u64, last().epoch));
        let is_tcp = matches!(publisher, StatePublisher::Tcp(_));
        assert_eq!(new_epoch, is_tcp);
    }
}

#[test]
fn waiting_records_are_refused_if_the_owner_lost_its_state() {
    let cluster = TestCluster::of(3);
    cluster.create_topic_at(2, "md", book());
    let client = cluster.client(1);
    let mut publisher = client.publisher("md").unwrap();
    publisher.publish(&level(1)[..]).unwrap();
    cluster.stop_with_lease(2);
    // These records must wait until the owner runs again.
    for number in 2..=50 {
        publisher.send(&level(number)[..]).unwrap();
    }
    cluster.start(2);
    let mut refused = 0;
    until("all have their answer", || match publisher.flush() {
        Ok(_) => true,
        Err(PublishError::StateLost(_)) => {
            refused += 1;
            true
        }
        Err(PublishError::Unknown(_)) => false,
        Err(other) => panic!("{other}"),
    });
    assert_eq!(refused, 1);
    let last = || cluster.node(2).topic("md").unwrap().logs()[0].last();
    assert_eq!(last().seq, 0);
    let receipt = publisher.publish(&level(1)[..]).unwrap();
    assert_eq!((receipt.position, receipt.new_epoch), (Position { seq: 1, ..last() }, true));
}

#[test]
fn publishers_continue_when_the_new_owner_has_the_whole_state() {
    let cluster = TestCluster::of(3);
    cluster.create_topic_at(2, "md", book());
    let mut publishers: Vec<StatePublisher> =
        [1, 3].into_iter().flat_map(|id| StatePublisher::all_protocols(&cluster, id)).collect();
    for (number, publisher) in (1..).zip(&mut publishers) {
        publisher.publish(number).unwrap();
    }
    let count = publishers.len() as u64;
    // The topic first moves to a node that has no part of the state.
    for owner in [3, 1, 2] {
        let ownership = cluster.members.lock().unwrap()[&owner].ownership.clone();
        ownership.move_topic("md", owner).unwrap();
        until("the owner has it", || !cluster.node(owner).topic("md").unwrap().logs()[0].is_mirror());
        // The first publisher does not publish here. It therefore knows only the state of the first owner.
        for publisher in &mut publishers[1..] {
            publisher.publish(1).unwrap();
        }
    }
    // Node 3 reads the whole state, and then becomes the owner.
    let mirror = cluster.node(3).topic("md").unwrap();
    let client = cluster.client(3);
    let _reader = follow(&client);
    let last = cluster.node(2).topic("md").unwrap().logs()[0].last();
    assert_eq!(last.seq, count + 3 * (count - 1));
    until("node 3 has read all of it", || mirror.logs()[0].last() == last);
    cluster.kill(2);
    let mut beyond = StatePublisher::Http(
        cluster.address(1, Protocol::Http),
        Some(Position { seq: last.seq + 1, ..last }.to_string()),
    );
    let mut with_the_last = StatePublisher::Http(cluster.address(1, Protocol::Http), Some(last.to_string()));
    assert_eq!(beyond.publish(1), Err("STATE_LOST".to_owned()), "the owner that died had acknowledged more");
    assert!(with_the_last.publish(1).unwrap().1);
    for publisher in &mut publishers {
        publisher.publish(1).unwrap();
    }
    assert_eq!(cluster.owner("md"), 3);
}

/// The topic is deleted and created again. The publishers' node still has relays for the deleted topic; a relay
/// forwards a topic's records to its owner.
#[test]
fn recreated_topic_accepts_records_through_another_node() {
    let cluster = TestCluster::of(2);
    cluster.create_topic_at(1, "md", TopicConfig::default());
    let mut publishers = StatePublisher::all_protocols(&cluster, 2);
    publishers.retain(|publisher| !matches!(publisher, StatePublisher::Inside(_)));
    let mut nats = cluster.nats(2);
    let appended = || cluster.node(1).topic("md").unwrap().logs()[0].last().seq;
    for publisher in &mut publishers {
        publisher.publish_once(b"before").unwrap();
    }
    let count = publishers.len() as u64;
    nats.publish("md", "before");
    until("the owner has all records", || appended() == count + 1);
    cluster.node(1).delete_topic("md").unwrap();
    cluster.create_topic_at(1, "md", TopicConfig::default());
    for publisher in &mut publishers {
        if let StatePublisher::Tcp(_) = publisher {
            // A publisher of Dunlin's own protocol must learn once that its topic was deleted, just as at the owner's
            // node.
            assert_eq!(publisher.publish_once(b"lost"), Err(PublishError::Closed.to_string()));
        }
        publisher.publish_once(b"after").unwrap();
    }
    assert_eq!(appended(), count);
    nats.publish("md", "after");
    until("the owner has the last record", || appended() == count + 1);
}

#[test]
fn publish_request_during_topic_deletion_recreates_the_topic() {
    let owner_wait_max = Duration::from_secs(600);
    let cluster = TestCluster::with(2, OwnershipLimits { owner_wait_max, ..OwnershipLimits::default() });
    let publishers: [fn(std::net::SocketAddr) -> StatePublisher; 2] =
        [|address| StatePublisher::Http(address, None), |address| StatePublisher::Grpc(address, None)];
    for (protocol, publisher) in [Protocol::Http, Protocol::Grpc].into_iter().zip(publishers) {
        cluster.create_topic_at(2, "md", TopicConfig::default());
        let address = cluster.address(1, protocol);
        publisher(address).publish_once(b"before").unwrap();
        cluster.hold_back_changes(1);
        cluster.node(2).delete_topic("md").unwrap();
        let (sender, forwarded) = mpsc::channel();
        let forwarding: Forwarding = Arc::new(move |_| sender.send(()).unwrap_or_default());
        *cluster.forwarding.lock().unwrap() = Some(forwarding);
        let publishing = thread::spawn(move || publisher(address).publish_once(b"after"));
        // When node 1 forwards the record, it does not know yet that the topic was deleted.
        forwarded.recv_timeout(PATIENCE).expect("the record is forwarded");
        cluster.release_changes(1);
        let outcome = publishing.join().unwrap();
        assert!(outcome.is_ok(), "{outcome:?}");
        *cluster.forwarding.lock().unwrap() = None;
        cluster.node(1).delete_topic("md").unwrap();
    }
}

/// When node 1 forwards the records, it does not know yet that the topic was deleted.
#[test]
fn nats_records_keep_their_order_while_their_topic_is_recreated() {
    let owner_wait_max = Duration::from_secs(600);
    let cluster = TestCluster::with(2, OwnershipLimits { owner_wait_max, ..OwnershipLimits::default() });
    cluster.create_topic_at(2, "md", TopicConfig::default());
    let mut nats = cluster.nats(1);
    nats.publish("md", "before");
    until("the owner has the first record", || {
        cluster.node(2).topic("md").unwrap().logs()[0].last().seq == 1
    });
    cluster.hold_back_changes(1);
    cluster.node(2).delete_topic("md").unwrap();
    let (sender, forwarded) = mpsc::channel();
    let forwarding: Forwarding = Arc::new(move |_| sender.send(()).unwrap_or_default());
    *cluster.forwarding.lock().unwrap() = Some(forwarding);
    let texts = ["1", "2", "3", "4"];
    for text in &texts[..3] {
        nats.publish("md", text);
        nats.ping();
    }
    forwarded.recv_timeout(PATIENCE).expect("a record is forwarded");
    *cluster.forwarding.lock().unwrap() = None;
    cluster.release_changes(1);
    nats.publish("md", texts[3]);
    let has_all = |id: &u64| {
        let topic = cluster.node(*id).topic("md");
        topic.is_some_and(|topic| !topic.logs()[0].is_mirror() && topic.logs()[0].last().seq == 4)
    };
    until("the new topic has all records", || [1, 2].iter().any(has_all));
    let mut reader = cluster.client(2).subscribe("md", start_at(Start::Earliest)).unwrap();
    for text in texts {
        let event = reader.next_timeout(PATIENCE).unwrap();
        let is_it = matches!(&event, Some(Event::Record(record)) if record.payload() == text.as_bytes());
        assert!(is_it, "{text}: {event:?}");
    }
    nats.ping();
}

/// When node 1 forwards the record "1", it does not know yet that the topic was deleted.
#[test]
fn publish_stream_keeps_its_order_while_its_topic_is_recreated() {
    let owner_wait_max = Duration::from_secs(600);
    let cluster = TestCluster::with(2, OwnershipLimits { owner_wait_max, ..OwnershipLimits::default() });
    cluster.create_topic_at(2, "md", TopicConfig::default());
    let message = |subject: &str, text: &'static str| v1::PublishStreamRequest {
        subject: subject.to_owned(),
        records: vec![v1::Draft { payload: text.into(), ..Default::default() }],
        ..Default::default()
    };
    grpc::run(async {
        let address = format!("http://{}", cluster.address(1, Protocol::Grpc));
        let channel = tonic::transport::Endpoint::from_shared(address).unwrap().connect().await.unwrap();
        let mut client = grpc::GrpcClient::new(channel);
        let (messages, received) = tokio::sync::mpsc::channel(8);
        messages.send(message("md", "before")).await.unwrap();
        let stream = tokio_stream::wrappers::ReceiverStream::new(received);
        let mut answers = client.publish_stream(stream).await.unwrap().into_inner();
        assert_eq!(answers.message().await.unwrap().unwrap().through, 1);
        cluster.hold_back_changes(1);
        cluster.node(2).delete_topic("md").unwrap();
        let (sender, mut forwarded) = tokio::sync::mpsc::unbounded_channel();
        let forwarding: Forwarding = Arc::new(move |_| sender.send(()).unwrap_or_default());
        *cluster.forwarding.lock().unwrap() = Some(forwarding);
        messages.send(message("", "1")).await.unwrap();
        forwarded.recv().await.expect("the record is forwarded");
        *cluster.forwarding.lock().unwrap() = None;
        cluster.release_changes(1);
        messages.send(message("", "2")).await.unwrap();
        drop(messages);
        let mut through = 1;
        while let Some(response) = answers.message().await.unwrap() {
            assert!(response.refused.is_empty(), "{:?}", response.refused);
            through = response.through;
        }
        assert_eq!(through, 3);
    });
    let mut reader = cluster.client(2).subscribe("md", start_at(Start::Earliest)).unwrap();
    for text in ["1", "2"] {
        let event = reader.next_timeout(PATIENCE).unwrap();
        let is_it = matches!(&event, Some(Event::Record(record)) if record.payload() == text.as_bytes());
        assert!(is_it, "{text}: {event:?}");
    }
}
