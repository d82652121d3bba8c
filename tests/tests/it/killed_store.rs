//! Tests that kill a node with SIGKILL while records are published to its durable topic. Afterwards, every record that
//! the node acknowledged must be in the topic once, intact and in order.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use dunlin::journal::RealDisk;
use dunlin::topic::{Event, Notice, Start, Subscribe, SubscribeOptions};
use dunlin::{Config, Node as Embedded};
use dunlin_system_tests::content::TestPayload;
use dunlin_system_tests::ledger::Ledger;
use dunlin_system_tests::port;
use dunlin_system_tests::seed::SeededRandom;

use crate::processes::{Node, SubscriberProcess, Writer, audit_all, url};
use crate::tier;

#[derive(Debug, Default)]
struct Total {
    kills: u64,
    records: u64,
    acked: u64,
    epochs: u64,
    read: u64,
}

#[test]
fn killed_node_loses_and_duplicates_no_synced_record() {
    kill_nodes(1);
}

mod long {
    #[test]
    fn killed_node_loses_and_duplicates_no_synced_record() {
        super::kill_nodes(4);
    }
}

fn kill_nodes(tries: u64) {
    let (mut total, start) = (Total::default(), Instant::now());
    for seed in tier::seeds(tries) {
        let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
            .join(format!("killed-store-{}-{seed}", std::process::id()));
        let outcome = catch_unwind(AssertUnwindSafe(|| kill_repeatedly(seed, &dir, &mut total)));
        if let Err(panic) = outcome {
            eprintln!("FAILED: replay with DUNLIN_CHAOS_SEED={seed}; its files are in {}", dir.display());
            resume_unwind(panic);
        }
        std::fs::remove_dir_all(&dir).unwrap();
    }
    println!("SIGKILL of a node with a durable topic, {:.0} s: {total:?}", start.elapsed().as_secs_f64());
    assert!(total.kills == 0 || total.epochs > 0, "no epoch changed: the test tests nothing");
}

/// Starts a node with the directory `dir`, and kills it two or three times while records are published. Then checks the
/// records.
fn kill_repeatedly(seed: u64, dir: &Path, total: &mut Total) {
    let _ = std::fs::remove_dir_all(dir);
    let mut random = SeededRandom::new(seed);
    let address = port::free();
    let data = format!("data={}", dir.display());
    let start = || Node::start_with(address, &[&data]);
    let mut node = start();
    let url = url(address);
    let readers = SubscriberProcess::start(&url, &["a=next@t,b=drain@t", "c=drain@*", "d=slow@t"]);
    let mut writer = Writer::start(&url, "t", &[&format!("seed={seed}"), "pause=100"]);
    writer.wait_for_acks(random.between(1, 400) as usize);
    for _ in 0..random.between(2, 3) {
        std::thread::sleep(Duration::from_millis(random.between(0, 100)));
        node.kill();
        node = start();
        total.kills += 1;
        writer.catch_up();
        writer.wait_for_acks(random.between(1, 400) as usize);
    }
    let ledger = writer.finish();
    let traces = readers.finish();
    node.kill();
    total.kills += 1;
    for (reader, counts) in audit_all(&traces, &ledger) {
        assert_eq!(counts.gaps, 0, "reader {reader} lost records of a durable topic");
        total.read += counts.records;
        total.epochs += counts.epochs;
    }
    let stored = read_stored(dir);
    check(&stored, &ledger);
    total.records += stored.len() as u64;
    total.acked += ledger.acked.len() as u64;
}

/// Reads all records from the disk in order, and checks their bytes. Returns three numbers for each record: its epoch,
/// its sequence number, and its number in the writer's ledger.
fn read_stored(dir: &Path) -> Vec<(u32, u64, u64)> {
    let (node, _) = Embedded::open(Config::default(), Arc::new(RealDisk), dir).unwrap();
    let options = SubscribeOptions { start: Start::Earliest, ..SubscribeOptions::default() };
    let mut subscriber = node.subscribe("t", &options).unwrap();
    let mut stored = Vec::new();
    while let Some(event) = subscriber.try_next().unwrap() {
        match event {
            Event::Record(record) => {
                let content = TestPayload::decode(record.payload()).expect("the payload is the writer's");
                stored.push((record.position.epoch, record.seq(), content.n));
            }
            Event::Notice(Notice::EpochChanged(changed)) => {
                assert_eq!(changed.known_through, Some(changed.last_seen), "{changed:?}");
            }
            Event::Notice(Notice::Lagging(_)) => {}
            Event::Notice(notice) => panic!("{notice:?}"),
        }
    }
    stored
}

fn check(stored: &[(u32, u64, u64)], ledger: &Ledger) {
    for pair in stored.windows(2) {
        assert!(pair[0].2 < pair[1].2, "in the writer's order and once: {pair:?}");
        assert_eq!(pair[0].1 + 1, pair[1].1, "no sequence is missing: {pair:?}");
    }
    for (n, position) in &ledger.acked {
        let found = stored.binary_search_by_key(n, |&(_, _, n)| n);
        let (epoch, seq, _) =
            stored[found.unwrap_or_else(|_| panic!("record {n} was acknowledged and is missing"))];
        if let Some(acked) = position {
            assert_eq!((epoch, seq), *acked, "record {n} stands elsewhere");
        }
    }
}
