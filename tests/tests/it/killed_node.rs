//! Tests that kill a node with SIGKILL while subscribers read and a publisher publishes.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::{Duration, Instant};

use dunlin_system_tests::audit::AuditCounts;
use dunlin_system_tests::port;
use dunlin_system_tests::seed::SeededRandom;

use crate::processes::{Node, SubscriberProcess, Writer, audit_all, url};
use crate::tier;

/// The counts of all tries together.
#[derive(Default)]
struct Total {
    tries: u64,
    kills: u64,
    subscribers: u64,
    attempted: u64,
    acked: u64,
    failed: u64,
    counts: AuditCounts,
}

#[test]
fn killed_node_causes_no_unreported_loss_for_subscribers() {
    kill_nodes(3);
}

mod long {
    #[test]
    fn killed_node_causes_no_unreported_loss_for_subscribers() {
        super::kill_nodes(10);
    }
}

fn kill_nodes(tries: u64) {
    let (mut total, start) = (Total::default(), Instant::now());
    for seed in tier::seeds(tries) {
        let outcome = catch_unwind(AssertUnwindSafe(|| kill_and_restart(seed, &mut total)));
        if let Err(panic) = outcome {
            eprintln!("FAILED: replay with DUNLIN_CHAOS_SEED={seed}");
            resume_unwind(panic);
        }
    }
    let Total { tries, kills, subscribers, attempted, acked, failed, counts } = total;
    println!(
        "SIGKILL of the node: {tries} tries, {kills} kills, {subscribers} subscribers, {:.0} s\n  \
         published: {attempted} attempted, {acked} acknowledged, {failed} calls failed\n  \
         told: {} records, {} gaps of {} records, {} epoch changes, {} warnings, {} times no connection\n  \
         silence: 0, invented: 0, twice in an epoch: 0, out of order: 0, hung: 0",
        start.elapsed().as_secs_f64(),
        counts.records,
        counts.gaps,
        counts.missed,
        counts.epochs,
        counts.lag_warnings,
        counts.disconnects,
    );
    assert!(tries == 0 || counts.epochs > 0, "no epoch changed: the test tests nothing");
    // A subscriber receives a gap only if it falls far behind, and this depends on chance. At least one of ten tries
    // must have a gap.
    assert!(tries < 10 || counts.gaps > 0, "no gap happened: the test tests nothing");
}

/// Runs one try: starts a writer and subscribers of all kinds except `registered`, and then kills the node one to three
/// times while these processes run.
fn kill_and_restart(seed: u64, total: &mut Total) {
    let mut random = SeededRandom::new(seed);
    let address = port::free();
    let mut node = Node::start(address);
    let url = url(address);
    let readers = SubscriberProcess::start(
        &url,
        &["a=next@t,b=drain@t", "c=drain@*", "d=poll@t", "e=task@t", "f=slow@t", "g=slow@>"],
    );
    let mut writer = Writer::start(&url, "t", &[&format!("seed={seed}"), "pause=200"]);
    writer.wait_for_acks(random.between(1, 400) as usize);
    let mut late = None;
    let kills = random.between(1, 3);
    for kill in 0..kills {
        std::thread::sleep(Duration::from_millis(random.between(0, 150)));
        node.kill();
        if kill == 0 && random.between(0, 1) == 1 {
            std::thread::sleep(Duration::from_millis(random.between(0, 700)));
        }
        node = Node::start(address);
        writer.catch_up();
        writer.wait_for_acks(random.between(1, 400) as usize);
        if kill == 0 {
            late = Some(SubscriberProcess::start(&url, &["late=late-next@t"]));
        }
    }
    let ledger = writer.finish();
    let mut traces = readers.finish();
    traces.extend(late.into_iter().flat_map(SubscriberProcess::finish));
    node.kill();
    let counts = audit_all(&traces, &ledger);
    let mut try_counts = AuditCounts::default();
    counts.values().for_each(|counts| try_counts.add(*counts));
    println!("seed {seed}: {kills} kills, {} readers, {try_counts:?}", counts.len());
    total.tries += 1;
    total.kills += kills;
    total.subscribers += counts.len() as u64;
    total.attempted += ledger.attempted;
    total.acked += ledger.acked.len() as u64;
    total.failed += ledger.failures.len() as u64;
    total.counts.add(try_counts);
}
