//! Tests in which a process is stopped with SIGSTOP. A stopped process keeps its connections, but sends nothing.

use std::time::Duration;

use dunlin_client::topic::{ReliableOptions, Retention, TopicConfig};
use dunlin_client::{Client, ClientOptions};
use dunlin_system_tests::port;
use dunlin_system_tests::seed::SeededRandom;

use crate::processes::{Node, SHORT_HEARTBEAT, SubscriberProcess, Writer, audit_all, url};
use crate::tier;

/// Creates a reliable topic that retains 64 KiB. Its publishers wait for registered subscribers, which therefore never
/// miss a record. Subscribers that are not registered can miss records.
pub fn create_reliable(url: &str, topic: &str) {
    let client = Client::connect(url, ClientOptions::default()).unwrap();
    let retention = Retention { bytes: 64 << 10, ..Retention::default() };
    let reliable = Some(ReliableOptions {
        subscribers_max: 8,
        wait_max: Duration::from_secs(30),
        ..ReliableOptions::default()
    });
    client
        .create_topic(topic, &TopicConfig { retention, reliable, ..TopicConfig::default() }, false)
        .unwrap();
}

#[test]
fn stopped_subscriber_gets_an_exact_gap_and_delays_no_others() {
    for seed in tier::seeds(2) {
        println!("seed {seed}");
        let mut random = SeededRandom::new(seed);
        let node = Node::start_anywhere(&[]);
        create_reliable(&node.url(), "t");
        let neighbours = SubscriberProcess::start(&node.url(), &["a=registered@t", "b=registered@t"]);
        let stopped = SubscriberProcess::start(&node.url(), &["x=slow@t", "y=slow@t"]);
        let mut writer = Writer::start(&node.url(), "t", &[&format!("seed={seed}"), "pause=100"]);
        writer.wait_for_acks(50);
        for _ in 0..2 {
            stopped.process.stop();
            writer.wait_for_acks(random.between(2_000, 4_000) as usize);
            stopped.process.resume();
            writer.wait_for_acks(random.between(1, 500) as usize);
        }
        let ledger = writer.finish();
        assert!(ledger.failures.is_empty(), "the publisher was held up: {:?}", ledger.failures);
        let counts = audit_all(&neighbours.finish(), &ledger);
        for (name, counts) in counts {
            assert_eq!((counts.gaps, counts.records), (0, ledger.attempted), "neighbour {name}");
        }
        for (name, counts) in audit_all(&stopped.finish(), &ledger) {
            println!("stopped {name}: {counts:?}");
            assert!(counts.gaps > 0, "no gap happened: the test tests nothing");
            assert_eq!(
                counts.records + counts.missed,
                ledger.attempted,
                "nothing failed, so all is accounted for"
            );
        }
        node.assert_no_errors();
    }
}

#[test]
fn clients_leave_a_frozen_node_and_reconnect_when_it_resumes() {
    for seed in tier::seeds(2) {
        println!("seed {seed}");
        let address = port::free();
        let node = Node::start_with(address, &[SHORT_HEARTBEAT]);
        let readers = SubscriberProcess::start(
            &url(address),
            &["a=next@t,b=drain@t", "c=poll@*", "d=task@t", "e=slow@t"],
        );
        let mut writer = Writer::start(&url(address), "t", &[&format!("seed={seed}")]);
        writer.wait_for_acks(300);
        for _ in 0..2 {
            node.process.stop();
            // Waits until a call of the writer has failed, because the node did not respond for two heartbeats.
            let failures = writer.ledger.failures.len();
            writer.wait_until(|ledger| ledger.failures.len() > failures);
            node.process.resume();
            writer.wait_for_acks(300);
        }
        let ledger = writer.finish();
        let counts = audit_all(&readers.finish(), &ledger);
        for (name, counts) in &counts {
            println!("{name}: {counts:?}");
            assert_eq!(counts.epochs, 0, "{name} received a new epoch from the same node");
        }
        assert!(!ledger.failures.is_empty(), "the publisher noticed nothing");
        node.assert_no_errors();
    }
}
