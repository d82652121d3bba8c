//! Tests in which connections are cut and nodes end while clients use them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use dunlin_client::topic::{
    Event, Notice, Publish, Retention, Subscribe, SubscribeError, SubscribeOptions, TopicConfig,
};
use dunlin_client::{Client, ClientLimits, ClientOptions};
use dunlin_wait::{Deadline, PATIENCE, POLL, until};

use crate::peer::event_text;
use crate::running_node::{RunningNode, from_earliest, patient};

#[test]
fn node_restart_is_delivered_as_a_new_epoch() {
    let running = RunningNode::start();
    let client = running.client();
    client.create_topic("t", &TopicConfig::default(), false).unwrap();
    let mut subscriber = client.subscribe("t", from_earliest()).unwrap();
    let mut publisher = client.publisher("t").unwrap();
    publisher.publish("before").unwrap();
    assert!(event_text(&subscriber.next().unwrap()).ends_with("-1 before"));
    let running = running.restart();
    running.node.create_topic("t", TopicConfig::default(), false).unwrap();
    running.node.publisher("t").unwrap().publish("after").unwrap();
    let mut events = Vec::new();
    while !events.last().is_some_and(|last: &String| last.ends_with("-1 after")) {
        let event = subscriber.next_timeout(PATIENCE).unwrap();
        events.push(event_text(&event.unwrap_or_else(|| panic!("stuck after {events:?}"))));
    }
    assert!(events.len() == 2 && events[0].starts_with("epoch "), "{events:?}");
    assert!(publisher.publish("again").unwrap().position.seq >= 1);
}

#[test]
fn killed_connections_lose_and_duplicate_no_record() {
    const RECORDS: u64 = 60_000;
    let running = RunningNode::start();
    let retention = Retention { bytes: 64 << 20, ..Retention::default() };
    running.node.create_topic("t", TopicConfig { retention, ..TopicConfig::default() }, false).unwrap();
    let proxy = Proxy::start(running.address);
    let url = format!("dunlin://{}", proxy.address);
    let publishing = {
        let client = Client::connect(&url, patient()).unwrap();
        thread::spawn(move || {
            let mut publisher = client.publisher("t").unwrap();
            for number in 1..=RECORDS {
                publisher.send(&number.to_le_bytes()).unwrap();
                if number % 100 == 0 {
                    publisher.flush().unwrap();
                }
            }
            publisher.flush().unwrap();
            client.connections()
        })
    };
    let client = Client::connect(&url, patient()).unwrap();
    let mut subscriber = client.subscribe("t", from_earliest()).unwrap();
    let mut read = 0;
    while read < RECORDS {
        assert!(subscriber.wait(Some(PATIENCE)).unwrap(), "stuck after {read}");
        subscriber
            .drain(1000, |event| match event {
                Event::Record(record) => {
                    read += 1;
                    assert_eq!((record.seq(), record.payload()), (read, &read.to_le_bytes()[..]));
                }
                Event::Notice(Notice::Lagging(_)) => {}
                Event::Notice(notice) => panic!("{notice:?}"),
            })
            .unwrap();
    }
    let cuts = publishing.join().unwrap() + client.connections();
    assert!(cuts > 4, "only {cuts} connections: the proxy cut too little");
}

/// A proxy that forwards bytes between clients and a node, and cuts each connection after some ten thousand bytes.
pub struct Proxy {
    pub address: SocketAddr,
    ended: Arc<AtomicBool>,
}

impl Proxy {
    pub fn start(node: SocketAddr) -> Proxy {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let ended = Arc::new(AtomicBool::new(false));
        let is_ended = Arc::clone(&ended);
        thread::spawn(move || {
            for (client, number) in listener.incoming().zip(0..) {
                if is_ended.load(Ordering::Relaxed) {
                    return;
                }
                let client = client.unwrap();
                let node = std::net::TcpStream::connect(node).unwrap();
                let cut_after = 40_000 + (number * 7919) % 90_000;
                for (from, to) in [(&client, &node), (&node, &client)] {
                    let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    thread::spawn(move || forward_until_cut(from, to, cut_after));
                }
            }
        });
        Proxy { address, ended }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        let _ = std::net::TcpStream::connect(self.address);
    }
}

fn forward_until_cut(mut from: std::net::TcpStream, mut to: std::net::TcpStream, cut_after: usize) {
    use std::io::{Read, Write};
    let (mut chunk, mut forwarded) = ([0; 4096], 0);
    while forwarded < cut_after {
        match from.read(&mut chunk) {
            Ok(read) if read > 0 => {
                // Forward only a part of the last chunk, so that the connection ends in the middle of a message.
                let len = read.min(cut_after - forwarded);
                forwarded += len;
                if to.write_all(&chunk[..len]).is_err() {
                    break;
                }
            }
            _ => break,
        }
    }
    for stream in [from, to] {
        let _ = stream.shutdown(std::net::Shutdown::Both);
    }
}

#[test]
fn client_with_option_connects_once_never_reconnects() {
    let mut running = RunningNode::start();
    let limits = ClientLimits { backoff_base_ms: 1, backoff_max_ms: 1, ..patient().limits };
    let connect = |connects_once| {
        let options = ClientOptions { connects_once, limits, ..patient() };
        Client::connect(&running.url(), options).unwrap()
    };
    let (once, again) = (connect(true), connect(false));
    running.cut();
    until("the other client is connected again", || {
        [&once, &again].into_iter().for_each(|client| _ = client.pump(POLL));
        again.connections() == 2
    });
    for _ in 0..20 {
        once.pump(POLL);
    }
    assert!(!once.is_up() && once.connections() == 1);
}

#[test]
fn dropped_client_still_delivers_the_records_it_has_sent() {
    const RECORDS: u64 = 20_000;
    let running = RunningNode::start();
    let retention = Retention { bytes: 16 << 20, ..Retention::default() };
    running.node.create_topic("t", TopicConfig { retention, ..TopicConfig::default() }, false).unwrap();
    let client = running.client();
    let mut publisher = client.publisher("t").unwrap();
    for number in 1..=RECORDS {
        publisher.send(&number.to_le_bytes()).unwrap();
    }
    drop((publisher, client));
    let last = || running.node.topic("t").unwrap().logs()[0].last().seq;
    until("all arrived", || last() == RECORDS);
}

#[test]
fn client_skips_dead_addresses_on_connect_and_reconnect() {
    let mut running = RunningNode::start();
    let dead = "dunlin://127.0.0.1:9";
    let url = format!("{dead},unix://{},{}", running.unix.display(), running.url());
    let client = Client::connect(&url, patient()).unwrap();
    client.create_topic("t", &TopicConfig::default(), false).unwrap();
    let mut subscriber = client.subscribe("t", from_earliest()).unwrap();
    let mut publisher = client.publisher("t").unwrap();
    let mut read = || {
        loop {
            match subscriber.next_timeout(PATIENCE).unwrap() {
                Some(Event::Record(record)) => return record.payload().to_vec(),
                Some(Event::Notice(_)) => {}
                None => panic!("no record"),
            }
        }
    };
    publisher.publish("before").unwrap();
    assert_eq!(read(), b"before");
    // From now on, the node has no Unix socket.
    running.cut();
    publisher.publish("after").unwrap();
    assert_eq!(read(), b"after");
    client.kv().put("key", "value").unwrap();
    assert_eq!(client.topics("").unwrap().len(), 1);
    assert!(client.connections() > 1);
}

#[test]
fn simultaneously_disconnected_clients_resume_without_loss() {
    const CLIENTS: usize = 400;
    let mut running = RunningNode::start();
    running.node.create_topic("t", TopicConfig::default(), false).unwrap();
    let clients: Vec<Client> = (0..CLIENTS).map(|_| running.client()).collect();
    let mut subscribers: Vec<_> =
        clients.iter().map(|client| client.subscribe("t", SubscribeOptions::default()).unwrap()).collect();
    let mut publisher = running.node.publisher("t").unwrap();
    publisher.publish("1").unwrap();
    running.cut();
    publisher.publish("2").unwrap();
    let deadline = Deadline::new();
    let mut events = vec![Vec::new(); CLIENTS];
    while events.iter().any(|events| events.len() < 2) {
        deadline.check("all are back");
        for (subscriber, events) in subscribers.iter_mut().zip(&mut events) {
            match subscriber.try_next() {
                Ok(Some(event)) => events.push(event_text(&event).split_once('-').unwrap().1.to_owned()),
                Ok(None) | Err(SubscribeError::Connection(_)) => {}
                Err(error) => panic!("{error}"),
            }
        }
    }
    assert!(events.iter().all(|events| *events == ["1 1", "2 2"]));
}
