//! Publishers and subscribers of a state that another node owns.

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
    let options = SubscribeOptions { on_gap: OnGap::Snapshot, ..from(Start::Snapshot) };
    client.subscribe("md", options).unwrap()
}

/// Reads until a notice reports that publishers are connected, or that none is.
fn until_told(reader: &mut dunlin_client::Subscriber, connected: bool) {
    loop {
        match reader.next_timeout(PATIENCE).unwrap() {
            Some(Event::Notice(Notice::Publishers(told))) if told.connected == connected => return,
            Some(_) => {}
            None => panic!("it is not told that connected is {connected}"),
        }
    }
}

/// A level of a book. A negative size is refused.
fn level(number: i64) -> Vec<u8> {
    let size = if number % 100 == 0 { -1 } else { number };
    [&[1, 1, 0, 0, 0, 0, 0, 0][..], &number.to_le_bytes(), &size.to_le_bytes()].concat()
}

#[test]
fn refused_remote_record_does_not_fail_other_records() {
    let hall = TestCluster::of(3);
    hall.topic_at(1, "md", book());
    let log = || hall.node(1).topic("md").unwrap().logs()[0].state_info().unwrap();
    let client = hall.client(2);
    let mut publisher = client.publisher("md").unwrap();
    let mut left_out = 0;
    let mut told = |outcome: Result<(), PublishError>| match outcome {
        Ok(()) => true,
        Err(PublishError::LeftOut { more, .. }) => {
            left_out += 1 + more;
            false
        }
        Err(other) => panic!("{other}"),
    };
    for number in 1..=1_000 {
        told(publisher.send(&level(number)[..]).map(drop));
    }
    while !told(publisher.flush().map(drop)) {}
    assert_eq!((left_out, log().0.seq, log().1.entries), (10, 990, 990));

    let mut peer = hall.nats(3);
    let mut burst = Vec::new();
    for number in 1_001..=2_000 {
        burst.extend_from_slice(b"PUB md 24\r\n");
        burst.extend_from_slice(&level(number));
        burst.extend_from_slice(b"\r\n");
    }
    burst.extend_from_slice(b"PING\r\n");
    peer.send(&burst);
    // The owner responds asynchronously, so `PONG` may arrive before the refusals.
    let (pongs, refused): (Vec<_>, Vec<_>) = (0..11).map(|_| peer.line()).partition(|line| line == "PONG");
    assert_eq!(pongs.len(), 1, "{refused:?}");
    refused
        .iter()
        .for_each(|line| assert!(line.starts_with("-ERR") && line.contains("state refuses it"), "{line}"));
    assert_eq!((log().0.seq, log().1.entries), (1_980, 1_980));

    grpc::run(async {
        let (through, refused) = stream_levels(&hall, 2_001..=3_000).await;
        assert_eq!(through, 1_000);
        let expected: Vec<u64> = (1..=10).map(|of| 100 * of - 1).collect();
        assert_eq!(refused, expected, "each by its own number, and the stream went on");
    });
    assert_eq!((log().0.seq, log().1.entries), (2_970, 2_970));
}

/// Publishes levels through node 3 in one stream. Returns the number of answered records, and the refused
/// ones.
async fn stream_levels(hall: &TestCluster, numbers: std::ops::RangeInclusive<i64>) -> (u64, Vec<u64>) {
    let address = format!("http://{}", hall.address(3, Protocol::Grpc));
    let channel = tonic::transport::Endpoint::from_shared(address).unwrap().connect().await.unwrap();
    let messages: Vec<_> = numbers
        .map(|number| v1::PublishStreamRequest {
            subject: "md".to_owned(),
            records: vec![v1::Draft { payload: level(number).into(), ..Default::default() }],
            ..Default::default()
        })
        .collect();
    let mut client = grpc::Dunlin::new(channel);
    let mut answers = client.publish_stream(tokio_stream::iter(messages)).await.unwrap().into_inner();
    let (mut through, mut refused) = (0, Vec::new());
    while let Some(answer) = answers.message().await.unwrap() {
        through = answer.through;
        refused.extend(answer.refused.iter().map(|refused| refused.index));
    }
    (through, refused)
}

#[test]
fn publisher_status_of_any_node_reaches_all_subscribers() {
    let hall = TestCluster::of(3);
    hall.topic_at(1, "md", book());
    let clients = [1, 2, 3].map(|id| hall.client(id));
    let mut readers = clients.each_ref().map(follow);
    readers.iter_mut().for_each(|reader| until_told(reader, false));
    for id in [1, 2, 3] {
        let publishing = hall.client(id);
        let publisher = publishing.publisher("md").unwrap();
        readers.iter_mut().for_each(|reader| until_told(reader, true));
        drop((publisher, publishing));
        readers.iter_mut().for_each(|reader| until_told(reader, false));
    }
}

#[test]
fn moved_state_topic_keeps_its_publishers() {
    let hall = TestCluster::of(3);
    hall.topic_at(1, "md", book());
    let (reading, publishing) = (hall.client(2), hall.client(3));
    let mut reader = follow(&reading);
    until_told(&mut reader, false);
    let publisher = publishing.publisher("md").unwrap();
    until_told(&mut reader, true);
    for owner in [2, 3] {
        let ownership = hall.members.lock().unwrap()[&owner].ownership.clone();
        ownership.move_topic("md", owner).unwrap();
        until("the owner has it", || !hall.node(owner).topic("md").unwrap().logs()[0].is_mirror());
        // After the move, a new subscriber must also start with a snapshot.
        let mut joined = follow(&reading);
        let first = joined.next_timeout(PATIENCE).unwrap();
        assert!(matches!(first, Some(Event::Notice(Notice::Snapshot(_)))), "{first:?}");
    }
    hall.kill(1);
    drop((publisher, publishing));
    until_told(&mut reader, false);
}

#[test]
fn owner_refuses_relayed_records_that_follow_a_refused_one() {
    let hall = TestCluster::of(2);
    hall.topic_at(2, "t", TopicConfig::default());
    let url = hall.urls.lock().unwrap()[&1].clone();
    let node = Client::connect(&url, ClientOptions { name: "$node-7".to_owned(), ..unhurried() }).unwrap();
    let record = |text: &str| {
        let (meta, mut frame) = (Meta::default(), Vec::new());
        let encoded = meta.measure(text.len()).unwrap();
        frame.resize(encoded.padded(), 0);
        meta.encode(encoded, 0, text.as_bytes(), &mut frame);
        frame
    };
    let hand_on = |relay: &Relay, text: &str| {
        let (sender, told) = mpsc::channel();
        let frames = &record(text)[..];
        let run =
            RelayBatch { partition: 0, frames, count: 1, producer_seq: None, expect_last: None, after: None };
        relay.send(run, Box::new(move |relayed| sender.send(relayed).unwrap()));
        let mut outcome = None;
        until("it is answered", || {
            node.pump(POLL);
            outcome = told.try_recv().ok();
            outcome.is_some()
        });
        outcome.unwrap()
    };
    let relay = node.relay("t", None);
    // The node becomes the owner after the first record has arrived, but before the later ones arrive.
    let given_back = hand_on(&relay, "first");
    assert!(matches!(given_back, RelayOutcome::NotTaken(_)), "{given_back:?}");
    let ownership = hall.members.lock().unwrap()[&1].ownership.clone();
    ownership.move_topic("t", 1).unwrap();
    until("it owns the topic", || !hall.node(1).topic("t").unwrap().logs()[0].is_mirror());
    let given_back = hand_on(&relay, "second");
    assert!(matches!(given_back, RelayOutcome::NotTaken(_)), "{given_back:?}");
    let relay = node.relay("t", None);
    for (seq, text) in [(1, "first"), (2, "second")] {
        match hand_on(&relay, text) {
            RelayOutcome::Answered(Ok(receipt)) => assert_eq!(receipt.position.seq, seq),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn batch_sent_over_a_replaced_node_connection_is_not_appended() {
    let hall = TestCluster::of(2);
    hall.topic_at(1, "t", TopicConfig::default());
    let connect = || {
        let members = hall.members.lock().unwrap();
        let mut peer = Peer::connect_as(members[&1].server.as_ref().unwrap(), "$node-7");
        peer.open_publisher(1, "t");
        peer
    };
    let is_published =
        |peer: &mut Peer| peer.next(|said| matches!(said, FromNode::Published(_)).then_some(())).is_some();
    let mut old = connect();
    old.publish(1, 1, &[b"first"]);
    assert!(is_published(&mut old));
    // The node gives up the connection while its second batch is being sent. It sends the third batch over another
    // connection.
    let mut new = connect();
    new.publish(1, 1, &[b"third"]);
    assert!(is_published(&mut new));
    old.publish(1, 2, &[b"second"]);
    assert!(!is_published(&mut old), "the connection is closed");
    new.publish(1, 2, &[b"fourth"]);
    assert!(is_published(&mut new));
    let mut reader = hall.client(2).subscribe("t", from(Start::Earliest)).unwrap();
    for text in ["first", "third", "fourth"] {
        let event = reader.next_timeout(PATIENCE).unwrap();
        let is_it = matches!(&event, Some(Event::Record(record)) if record.payload() == text.as_bytes());
        assert!(is_it, "{text}: {event:?}");
    }
}

#[test]
fn record_returned_by_a_node_that_is_no_owner_keeps_its_order() {
    let hall = TestCluster::patient(3);
    hall.topic_at(3, "t", TopicConfig::default());
    let mut reader = hall.node(3).subscribe("t", &from(Start::Latest)).unwrap();
    // Node 2 does not know yet that it owns the topic, so it returns the records that node 1 sends.
    hall.keep_from(2);
    let ownership = hall.members.lock().unwrap()[&1].ownership.clone();
    ownership.move_topic("t", 2).unwrap();
    let (of, is_first) = (Arc::downgrade(&hall), AtomicBool::new(true));
    let forwarding: Forwarding = Arc::new(move |run| {
        let is_second = run.frames.windows(6).any(|bytes| bytes == b"second");
        if !is_second || !is_first.swap(false, Ordering::Relaxed) {
            return;
        }
        // When the first record is returned, the second one is about to be sent, and node 2 learns that it is the
        // owner.
        let hall = of.upgrade().unwrap();
        hall.node(1).is_heard(Subject::parse("behind.the.first").unwrap());
        hall.learn(2);
        until("it owns the topic", || !hall.node(2).topic("t").unwrap().logs()[0].is_mirror());
    });
    *hall.forwarding.lock().unwrap() = Some(forwarding);
    for text in ["first", "second", "third"] {
        let draft = Draft { meta: Meta::default(), payload: Payload::Copied(text.as_bytes()) };
        hall.node(1).topic("t").unwrap().append_drafts(now_ns(), 0, false, [draft].iter()).unwrap();
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

/// A publisher that states the state from which it continues. It publishes over a client's connection, in a node's
/// process, by HTTP requests, or by gRPC calls.
enum GoesOn {
    Tcp(dunlin_client::Publisher),
    Inside(dunlin::topic::Publisher),
    Http(std::net::SocketAddr, Option<String>),
    Grpc(std::net::SocketAddr, Option<v1::LastPosition>),
}

/// The position at which a record was appended, and whether the epoch had changed; or the name of the refusal.
type Outcome = Result<(Position, bool), String>;

impl GoesOn {
    fn all_at(hall: &TestCluster, id: u64) -> Vec<GoesOn> {
        vec![
            GoesOn::Tcp(hall.client(id).publisher("md").unwrap()),
            GoesOn::Inside(hall.node(id).publisher("md").unwrap()),
            GoesOn::Http(hall.address(id, Protocol::Http), None),
            GoesOn::Grpc(hall.address(id, Protocol::Grpc), None),
        ]
    }

    fn once(&mut self, payload: &[u8]) -> Outcome {
        let of_receipt = |receipt: dunlin::topic::Receipt| (receipt.position, receipt.new_epoch);
        let refused = |error: PublishError| match error {
            PublishError::StateLost(_) => "STATE_LOST".to_owned(),
            other => other.to_string(),
        };
        match self {
            GoesOn::Tcp(publisher) => publisher.publish(payload).map(of_receipt).map_err(refused),
            GoesOn::Inside(publisher) => publisher.publish(payload).map(of_receipt).map_err(refused),
            GoesOn::Http(address, last) => {
                let headers: Vec<_> =
                    last.iter().map(|last| ("dunlin-last-position", last.as_str())).collect();
                let answer = HttpPeer::connect(*address).request("POST", "/v1/topics/md", &headers, payload);
                if answer.status >= 400 {
                    *last = last.take().filter(|_| answer.code() != "STATE_LOST");
                    return Err(answer.code());
                }
                let told = answer.json();
                let position = told["position"].as_str().unwrap();
                *last = Some(position.to_owned());
                Ok((position.parse().unwrap(), told["new_epoch"].as_bool().unwrap()))
            }
            GoesOn::Grpc(address, last) => {
                let request = v1::PublishRequest { last_position: *last, ..grpc::publish("md", payload) };
                let mut answer = None;
                grpc::run(async {
                    let channel =
                        tonic::transport::Endpoint::from_shared(format!("http://{address}")).unwrap();
                    let mut client = grpc::Dunlin::new(channel.connect().await.unwrap());
                    answer = Some(client.publish(request).await);
                });
                match answer.unwrap() {
                    Ok(answer) => {
                        let receipt = answer.into_inner().receipt.unwrap();
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

    /// Publishes a level, and retries while the owner cannot be reached.
    fn publish(&mut self, number: i64) -> Outcome {
        let mut outcome = Err(String::new());
        until("the owner has answered", || {
            outcome = self.once(&level(number));
            outcome.as_ref().map_or_else(|error| error == "STATE_LOST", |_| true)
        });
        outcome
    }
}

#[test]
fn publisher_over_any_protocol_is_refused_once_after_state_loss() {
    let hall = TestCluster::of(3);
    hall.topic_at(2, "md", book());
    let last = || hall.node(2).topic("md").unwrap().logs()[0].last();
    let mut publishers: Vec<GoesOn> = [1, 3].into_iter().flat_map(|id| GoesOn::all_at(&hall, id)).collect();
    for (number, publisher) in (1..).zip(&mut publishers) {
        assert_eq!(publisher.publish(number).unwrap().0.seq, number as u64);
    }
    let before = last();
    // The node is killed and restarted before its lease ends. It then owns the topic again, but has none of its
    // records.
    hall.silence(2);
    hall.start(2);
    for publisher in &mut publishers {
        assert_eq!(publisher.publish(20), Err("STATE_LOST".to_owned()));
    }
    assert_eq!(last().seq, 0, "nothing was appended to a state that has begun with nothing");
    assert!(last().epoch > before.epoch);
    for (number, publisher) in (1..).zip(&mut publishers) {
        let (position, new_epoch) = publisher.publish(number).unwrap();
        assert_eq!((position.seq, position.epoch), (number as u64, last().epoch));
        let says_so = matches!(publisher, GoesOn::Tcp(_));
        assert_eq!(new_epoch, says_so);
    }
}

#[test]
fn records_sent_before_a_state_loss_was_known_are_refused() {
    let hall = TestCluster::of(3);
    hall.topic_at(2, "md", book());
    let client = hall.client(1);
    let mut publisher = client.publisher("md").unwrap();
    publisher.publish(&level(1)[..]).unwrap();
    hall.silence(2);
    // The publishers must wait for the owner.
    for number in 2..=50 {
        publisher.send(&level(number)[..]).unwrap();
    }
    hall.start(2);
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
    let last = || hall.node(2).topic("md").unwrap().logs()[0].last();
    assert_eq!(last().seq, 0);
    let receipt = publisher.publish(&level(1)[..]).unwrap();
    assert_eq!((receipt.position, receipt.new_epoch), (Position { seq: 1, ..last() }, true));
}

#[test]
fn publishers_continue_when_the_new_owner_has_the_whole_state() {
    let hall = TestCluster::of(3);
    hall.topic_at(2, "md", book());
    let mut publishers: Vec<GoesOn> = [1, 3].into_iter().flat_map(|id| GoesOn::all_at(&hall, id)).collect();
    for (number, publisher) in (1..).zip(&mut publishers) {
        publisher.publish(number).unwrap();
    }
    let count = publishers.len() as u64;
    // The topic moves to a node that has no part of the state, and then to another node.
    for owner in [3, 1, 2] {
        let ownership = hall.members.lock().unwrap()[&owner].ownership.clone();
        ownership.move_topic("md", owner).unwrap();
        until("the owner has it", || !hall.node(owner).topic("md").unwrap().logs()[0].is_mirror());
        // The first publisher publishes nothing here, so it still knows the first owner's state.
        for publisher in &mut publishers[1..] {
            publisher.publish(1).unwrap();
        }
    }
    // A node that has read the whole state becomes the owner.
    let mirror = hall.node(3).topic("md").unwrap();
    let client = hall.client(3);
    let _reader = follow(&client);
    let last = hall.node(2).topic("md").unwrap().logs()[0].last();
    assert_eq!(last.seq, count + 3 * (count - 1));
    until("node 3 has read all of it", || mirror.logs()[0].last() == last);
    hall.kill(2);
    let mut beyond = GoesOn::Http(
        hall.address(1, Protocol::Http),
        Some(Position { seq: last.seq + 1, ..last }.to_string()),
    );
    let mut with_the_last = GoesOn::Http(hall.address(1, Protocol::Http), Some(last.to_string()));
    assert_eq!(beyond.publish(1), Err("STATE_LOST".to_owned()), "the owner that died had acknowledged more");
    assert!(with_the_last.publish(1).unwrap().1);
    for publisher in &mut publishers {
        publisher.publish(1).unwrap();
    }
    assert_eq!(hall.owner("md"), 3);
}
