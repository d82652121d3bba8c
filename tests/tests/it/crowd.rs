//! Tests of thousands of clients that lose their connections at the same time.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use dunlin_client::topic::Publish;
use dunlin_client::{Client, ClientOptions, Publisher};
use dunlin_system_tests::content::TestPayload;
use dunlin_system_tests::process::Process;
use dunlin_system_tests::proxy::Proxy;
use dunlin_system_tests::{limits, port};

use crate::processes::{Node, role, url};
use crate::tier;

/// The time within which all clients must be connected again.
const BACK_MAX: Duration = Duration::from_secs(10);
/// The arguments of a node whose heartbeat interval is as long as in production.
const NODE: [&str; 1] = ["heartbeat=1000"];

struct Crowd {
    process: Process,
    clients: u64,
}

/// The counts that the crowd's process has reported since the previous query.
#[derive(Debug, PartialEq, Eq)]
struct CrowdCounts {
    epochs: u64,
    gaps: u64,
    wrong: u64,
}

impl Crowd {
    fn join(url: &str, clients: u64) -> Crowd {
        let start = Instant::now();
        let mut process = role("crowd", &["crowd", url, "t", &clients.to_string()]);
        while process.line_within(Duration::from_secs(300)).expect("the crowd joins")
            != format!("joined {clients}")
        {}
        println!("{clients} clients joined in {} ms", start.elapsed().as_millis());
        Crowd { process, clients }
    }

    /// Waits until every client has received record `n`. Returns the counts since the previous call.
    fn wait_for_sync(&mut self, n: u64) -> CrowdCounts {
        self.process.write_line(&format!("sync {n}"));
        let line = self.process.line_within(Duration::from_secs(120)).expect("the crowd goes on");
        let numbers: Vec<u64> = line.split(' ').filter_map(|word| word.parse().ok()).collect();
        let [at, epochs, gaps, wrong] = numbers[..] else { panic!("unexpected line of the crowd: {line:?}") };
        assert_eq!(at, n);
        CrowdCounts { epochs, gaps, wrong }
    }
}

fn publisher(address: SocketAddr) -> (Client, Publisher) {
    let client = Client::connect(&url(address), ClientOptions::default()).unwrap();
    let publisher = client.publisher("t").unwrap();
    (client, publisher)
}

fn publish(publisher: &mut Publisher, n: u64) {
    publisher.publish(TestPayload { writer: 1, n, last: false }.encode(100).as_slice()).unwrap();
}

/// Waits until the node reports exactly `readers` subscriptions of the topic `t`.
fn wait_for_readers(client: &Client, readers: u64) {
    let deadline = Instant::now() + Duration::from_secs(120);
    loop {
        let subscriptions = u64::from(client.describe_topic("t").unwrap().subscribers_total.unwrap_or(0));
        if subscriptions == readers {
            return;
        }
        assert!(Instant::now() < deadline, "the node has {subscriptions} subscriptions, the crowd {readers}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn clients_of_a_killed_node_are_up_to_date_within_10_s() {
    kill_the_node_of_a_crowd(200);
}

#[test]
fn clients_with_reset_connections_leave_no_dead_sessions() {
    reset_the_connections_of_a_crowd(100);
}

mod long {
    #[test]
    fn clients_of_a_killed_node_are_up_to_date_within_10_s() {
        super::kill_the_node_of_a_crowd(1_000);
    }

    #[test]
    fn clients_with_reset_connections_leave_no_dead_sessions() {
        super::reset_the_connections_of_a_crowd(500);
    }
}

fn kill_the_node_of_a_crowd(clients: u64) {
    let clients = tier::crowd(clients);
    assert!(limits::raise_open_files() > clients + 100, "`ulimit -n` is too low for {clients} clients");
    let address = port::free();
    let mut node = Node::start_with(address, &NODE);
    let mut crowd = Crowd::join(&url(address), clients);
    let (client, mut first) = publisher(address);
    publish(&mut first, 1);
    assert_eq!(crowd.wait_for_sync(1), CrowdCounts { epochs: 0, gaps: 0, wrong: 0 });
    wait_for_readers(&client, clients);
    for n in 2..=3 {
        node.kill();
        node = Node::start_with(address, &NODE);
        let start = Instant::now();
        let (client, mut publisher) = publisher(address);
        publish(&mut publisher, n);
        assert_eq!(
            crowd.wait_for_sync(n),
            CrowdCounts { epochs: clients, gaps: 0, wrong: 0 },
            "each client receives one epoch change"
        );
        let took = start.elapsed();
        let rss_bytes = node.process.rss_bytes();
        println!(
            "{clients} clients back after {} ms, the node holds {} MB",
            took.as_millis(),
            rss_bytes / 1_000_000
        );
        assert!(took <= tier::at_most(BACK_MAX), "{clients} clients are back after {took:?}");
        assert!(rss_bytes < (64 << 20) + clients * (32 << 10), "the node holds {rss_bytes} bytes");
        wait_for_readers(&client, clients);
    }
    drop(crowd.process);
    let (client, _) = publisher(address);
    wait_for_readers(&client, 0);
    node.assert_no_errors();
}

fn reset_the_connections_of_a_crowd(clients: u64) {
    // The proxy runs in this process, and needs two open files for each connection.
    let clients = tier::crowd(clients).min(limits::raise_open_files() / 3);
    let node = Node::start_anywhere(&NODE);
    let proxy = Proxy::start(node.address);
    let mut crowd = Crowd::join(&url(proxy.address), clients);
    let (client, mut publisher) = publisher(node.address);
    publish(&mut publisher, 1);
    crowd.wait_for_sync(1);
    let rss_before = node.process.rss_bytes();
    for n in 2..=4 {
        let start = Instant::now();
        proxy.cut();
        publish(&mut publisher, n);
        assert_eq!(
            crowd.wait_for_sync(n),
            CrowdCounts { epochs: 0, gaps: 0, wrong: 0 },
            "all continue at their positions"
        );
        println!("{} clients back after {} ms", crowd.clients, start.elapsed().as_millis());
        assert!(start.elapsed() <= tier::at_most(BACK_MAX));
        wait_for_readers(&client, clients);
    }
    let growth = node.process.rss_bytes().saturating_sub(rss_before);
    println!("{} connections in all, the node grew by {} KB", proxy.accepted(), growth / 1_000);
    assert!(growth < 32 << 20, "the node grew by {growth} bytes");
    node.assert_no_errors();
}
