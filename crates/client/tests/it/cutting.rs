//! Connections and nodes that end while clients use them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use dunlin_client::Client;
use dunlin_client::topic::{
    Event, Notice, Publish, Retention, Subscribe, SubscribeError, SubscribeOptions, TopicConfig,
};
use dunlin_wait::{Deadline, PATIENCE, until};

use crate::peer::word;
use crate::running::{RunningNode, from_the_first, patient};

#[test]
fn node_restart_is_delivered_as_a_new_epoch() {
    let running = RunningNode::start();
    let client = running.client();
    client.create_topic("t", &TopicConfig::default(), false).unwrap();
    let mut subscriber = client.subscribe("t", from_the_first()).unwrap();
    let mut publisher = client.publisher("t").unwrap();
    publisher.publish("before").unwrap();
    assert!(word(&subscriber.next().unwrap()).ends_with("-1 before"));
    let running = running.restart();
    running.node.create_topic("t", TopicConfig::default(), false).unwrap();
    running.node.publisher("t").unwrap().publish("after").unwrap();
    let mut told = Vec::new();
    while !told.last().is_some_and(|last: &String| last.ends_with("-1 after")) {
        let event = subscriber.next_timeout(PATIENCE).unwrap();
        told.push(word(&event.unwrap_or_else(|| panic!("stuck after {told:?}"))));
    }
    assert!(told.len() == 2 && told[0].starts_with("epoch "), "{told:?}");
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
    let mut subscriber = client.subscribe("t", from_the_first()).unwrap();
    let mut seen = 0;
    while seen < RECORDS {
        assert!(subscriber.wait(Some(PATIENCE)).unwrap(), "stuck after {seen}");
        subscriber
            .drain(1000, |event| match event {
                Event::Record(record) => {
                    seen += 1;
                    assert_eq!((record.seq(), record.payload()), (seen, &seen.to_le_bytes()[..]));
                }
                Event::Notice(Notice::Lagging(_)) => {}
                Event::Notice(notice) => panic!("{notice:?}"),
            })
            .unwrap();
    }
    let cuts = publishing.join().unwrap() + client.connections();
    assert!(cuts > 4, "only {cuts} connections: the proxy cut too little");
}

/// A proxy that forwards bytes, and cuts each connection after some ten thousand bytes.
pub struct Proxy {
    pub address: SocketAddr,
    ended: Arc<AtomicBool>,
}

impl Proxy {
    pub fn start(node: SocketAddr) -> Proxy {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let ended = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&ended);
        thread::spawn(move || {
            for (client, number) in listener.incoming().zip(0..) {
                if over.load(Ordering::Relaxed) {
                    return;
                }
                let client = client.unwrap();
                let node = std::net::TcpStream::connect(node).unwrap();
                let cut_after = 40_000 + (number * 7919) % 90_000;
                for (from, to) in [(&client, &node), (&node, &client)] {
                    let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    thread::spawn(move || pass_on(from, to, cut_after));
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

fn pass_on(mut from: std::net::TcpStream, mut to: std::net::TcpStream, cut_after: usize) {
    use std::io::{Read, Write};
    let (mut chunk, mut passed) = ([0; 4096], 0);
    while passed < cut_after {
        match from.read(&mut chunk) {
            Ok(read) if read > 0 => {
                // Cut the last chunk, so that the connection ends in the middle of a message.
                let kept = read.min(cut_after - passed);
                passed += kept;
                if to.write_all(&chunk[..kept]).is_err() {
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
fn records_sent_before_dropping_the_client_arrive() {
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
    let mut told = vec![Vec::new(); CLIENTS];
    while told.iter().any(|told| told.len() < 2) {
        deadline.check("all are back");
        for (subscriber, told) in subscribers.iter_mut().zip(&mut told) {
            match subscriber.try_next() {
                Ok(Some(event)) => told.push(word(&event).split_once('-').unwrap().1.to_owned()),
                Ok(None) | Err(SubscribeError::Connection(_)) => {}
                Err(error) => panic!("{error}"),
            }
        }
    }
    assert!(told.iter().all(|told| *told == ["1 1", "2 2"]));
}
