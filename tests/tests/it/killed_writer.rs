//! Tests of a publisher that is killed while it waits for the responses to a batch. A second publisher, which uses the
//! first one's identity, then sends the batch again.

use dunlin_system_tests::ledger::Ledger;
use dunlin_system_tests::seed::SeededRandom;
use dunlin_system_tests::trace::TraceLine;

use crate::processes::{Node, SubscriberProcess, Writer, audit_all};
use crate::tier;

/// Kills a publisher while it publishes. Then starts a second publisher, which has the identity of the first one and
/// publishes the first one's records again. Returns the trace of a subscriber, and one ledger for both publishers.
fn kill_and_retry(seed: u64, mode: &str) -> (Vec<TraceLine>, Ledger) {
    let mut random = SeededRandom::new(seed);
    let node = Node::start_anywhere(&["retention=67108864"]);
    let readers = SubscriberProcess::start(&node.url(), &["a=drain@t"]);
    let arguments = |count: u64| {
        let (seed, count) = (format!("seed={seed}"), format!("count={count}"));
        [
            seed,
            count,
            format!("mode={mode}"),
            "producer=77".to_owned(),
            "batch=100".to_owned(),
            "pause=0".to_owned(),
        ]
    };
    let count = 3_000;
    let start = |count| {
        let arguments = arguments(count);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        Writer::start(&node.url(), "t", &arguments)
    };
    // The first publisher publishes until the test kills it.
    let mut killed = start(u64::MAX);
    killed.wait_until(|ledger| ledger.attempted >= 100 * random.clone().between(1, 20));
    std::thread::sleep(std::time::Duration::from_micros(random.between(0, 3_000)));
    let before = killed.kill();
    let mut ledger = start(count.max(before.attempted)).wait_for_end();
    assert!(ledger.failures.is_empty(), "seed {seed}, {mode}: the retry was refused: {:#?}", ledger.failures);
    ledger.acked.extend(before.acked);
    let traces = readers.finish();
    let counts = audit_all(&traces, &ledger);
    println!("seed {seed}, {mode}: killed after {}, {counts:?}", before.attempted);
    node.assert_no_errors();
    (traces.into_values().next().unwrap_or_default(), ledger)
}

#[test]
fn records_resent_for_a_killed_publisher_are_stored_once() {
    retry_for_killed_publishers(2);
}

#[test]
fn batch_of_a_killed_publisher_is_whole_or_absent() {
    kill_publishers_of_batches(2);
}

mod long {
    #[test]
    fn records_resent_for_a_killed_publisher_are_stored_once() {
        super::retry_for_killed_publishers(6);
    }

    #[test]
    fn batch_of_a_killed_publisher_is_whole_or_absent() {
        super::kill_publishers_of_batches(6);
    }
}

fn retry_for_killed_publishers(tries: u64) {
    for seed in tier::seeds(tries) {
        let mode = ["batch", "pipeline"][(seed % 2) as usize];
        let (trace, ledger) = kill_and_retry(seed, mode);
        // The audit has already checked that the records are in order and unique. This check finds out whether records
        // are missing at the end.
        let records: Vec<&TraceLine> =
            trace.iter().filter(|line| matches!(line, TraceLine::Records { .. })).collect();
        let last = records.last().map(|line| match line {
            TraceLine::Records { seqs, ns, .. } => (seqs.1, ns.1),
            _ => (0, 0),
        });
        assert_eq!(last, Some((ledger.attempted, ledger.attempted)), "each record once: {records:?}");
    }
}

fn kill_publishers_of_batches(tries: u64) {
    for seed in tier::seeds(tries) {
        let mut random = SeededRandom::new(seed);
        let node = Node::start_anywhere(&["retention=67108864"]);
        let readers = SubscriberProcess::start(&node.url(), &["a=next@t"]);
        let arguments = ["mode=batch", "batch=50", "pause=0", "producer=5"];
        let mut killed = Writer::start(&node.url(), "t", &arguments);
        killed.wait_for_acks(50 * random.between(1, 30) as usize);
        std::thread::sleep(std::time::Duration::from_micros(random.between(0, 3_000)));
        let before = killed.kill();
        let attempted = before.attempted;
        // Another writer, without this identity, publishes the last record.
        let from = format!("from={}", attempted + 1);
        let count = format!("count={attempted}");
        let mut ledger = Writer::start(&node.url(), "t", &[&from, &count]).finish();
        ledger.acked.extend(before.acked);
        let traces = readers.finish();
        audit_all(&traces, &ledger);
        let appended = traces["a"].iter().filter_map(|line| match line {
            TraceLine::Records { ns, .. } if ns.1 <= attempted => Some(ns.1),
            TraceLine::Records { ns, .. } if ns.0 <= attempted => Some(attempted),
            _ => None,
        });
        let last = appended.max().expect("a record was published");
        println!("seed {seed}: {attempted} attempted, {last} appended");
        assert_eq!(last % 50, 0, "a batch was torn");
        assert!(last + 50 >= attempted, "batches that were acknowledged are missing");
    }
}
