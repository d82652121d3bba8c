use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::Duration;

use dunlin::topic::{
    Event, LogLimits, Notice, Publish, PublishError, ReliableOptions, Retention, Subscribe, SubscribeOptions,
    TopicConfig,
};
use dunlin::{Config, Node, ShareOptions, WorkOptions};
use dunlin_wait::{POLL, until};

use super::{SOON, await_claim, claim, number, publish, share_from_start, work_from_start};
use crate::node;

#[derive(Default)]
struct Wakes(AtomicU32);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

fn wakes() -> (Arc<Wakes>, Waker) {
    let wakes = Arc::new(Wakes::default());
    (Arc::clone(&wakes), Waker::from(wakes))
}

#[test]
fn each_publish_wakes_exactly_one_waiting_member() {
    let node = node();
    let mut members: Vec<_> =
        (0..10).map(|_| (node.join_share("jobs", "g", &share_from_start()).unwrap(), wakes())).collect();
    for (member, (_, waker)) in &mut members {
        assert!(member.poll_ready(&mut Context::from_waker(waker)).is_pending());
    }
    let woken = |members: &Vec<(_, (Arc<Wakes>, Waker))>| -> u32 {
        members.iter().map(|(_, (wakes, _))| wakes.0.load(Ordering::SeqCst)).sum()
    };
    for n in 1..=10 {
        publish(&node, "jobs", [u64::from(n)]);
        assert_eq!(woken(&members), n);
        let (member, _) = &mut members[n as usize - 1];
        assert!(
            matches!(member.try_next().unwrap(), Some(Event::Record(_))),
            "the first that waits is woken"
        );
    }
}

#[test]
fn earlier_deadline_in_a_group_wakes_the_housekeeping() {
    let node = node();
    publish(&node, "jobs", [1, 2]);
    let mut member = node.join_work("jobs", "g", &work_from_start()).unwrap();
    let (woken, housekeeper) = wakes();
    assert_eq!(node.handle_deadlines(&housekeeper), None, "nothing is claimed");
    let (first, second) = (claim(&mut member).unwrap(), claim(&mut member).unwrap());
    assert_eq!(woken.0.load(Ordering::SeqCst), 1, "the first deadline wakes, the later one does not");
    assert_eq!(node.handle_deadlines(&housekeeper), Some(first.deadline_ns));
    member.nack(second.token, Duration::from_millis(20)).unwrap();
    assert_eq!(woken.0.load(Ordering::SeqCst), 2, "a delay that ends before the deadline wakes");

    let (member_wakes, waker) = wakes();
    assert!(member.poll_ready(&mut Context::from_waker(&waker)).is_pending());
    until("the delay is over", || node.handle_deadlines(&housekeeper) == Some(first.deadline_ns));
    assert_eq!(member_wakes.0.load(Ordering::SeqCst), 1, "the record is available again");
    assert_eq!(claim(&mut member).unwrap().attempt, 2);
}

#[test]
fn empty_share_group_blocks_a_publisher_for_at_most_wait_max() {
    let node = node();
    let wait_max = Duration::from_millis(300);
    let reliable = Some(ReliableOptions { wait_max, ..ReliableOptions::default() });
    let retention = Retention { bytes: 64 << 10, ..Retention::default() };
    node.create_topic("jobs", TopicConfig { retention, reliable, ..TopicConfig::default() }, false).unwrap();
    let options = ShareOptions { registered: true, ..share_from_start() };
    drop(node.join_share("jobs", "g", &options).unwrap());
    let housekeeper = node.clone();
    thread::spawn(move || {
        for _ in 0..30_000 {
            housekeeper.handle_deadlines(Waker::noop());
            thread::sleep(POLL);
        }
    });
    // Publish far more records than the history retains. No publish call may be refused.
    publish(&node, "jobs", 1..=10_000);
    let mut back = node.join_share("jobs", "g", &options).unwrap();
    let Some(Event::Notice(Notice::Gap(gap))) = back.try_next().unwrap() else { panic!("no gap") };
    assert_eq!(gap.first, 1);
    assert!(matches!(back.try_next().unwrap(), Some(Event::Record(first)) if first.seq() == gap.last + 1));

    // The group has a member again, so publishers have to wait for it.
    let mut publisher = node.publisher("jobs").unwrap();
    let refused = (0..10_000_u64).find_map(|n| publisher.publish(&n.to_le_bytes()).err());
    assert!(matches!(refused, Some(PublishError::Full { .. })), "{refused:?}");
}

#[test]
fn busy_member_does_not_block_waiting_members() {
    let node = node();
    let mut busy = node.join_work("jobs", "g", &work_from_start()).unwrap();
    publish(&node, "jobs", [1]);
    assert_eq!(await_claim(&mut busy).record().seq(), 1);
    let mut waits = node.join_work("jobs", "g", &work_from_start()).unwrap();
    let (wakes, waker) = wakes();
    assert!(waits.poll_ready(&mut Context::from_waker(&waker)).is_pending());
    publish(&node, "jobs", [2]);
    assert_eq!(wakes.0.load(Ordering::SeqCst), 1);
    assert_eq!(claim(&mut waits).unwrap().record().seq(), 2);
}

#[test]
fn record_wakes_a_waiting_member_after_another_gave_up() {
    let node = node();
    let mut gives_up = node.join_work("jobs", "g", &work_from_start()).unwrap();
    let mut stays = node.join_work("jobs", "g", &work_from_start()).unwrap();
    assert!(!gives_up.wait(Some(Duration::from_millis(10))));
    let (wakes, waker) = wakes();
    assert!(stays.poll_ready(&mut Context::from_waker(&waker)).is_pending());
    publish(&node, "jobs", [1]);
    assert_eq!(wakes.0.load(Ordering::SeqCst), 1);
    assert!(claim(&mut stays).is_some());
}

#[test]
fn group_without_members_delays_no_subscriber() {
    let node = node();
    let mut member = node.join_work("jobs", "g", &work_from_start()).unwrap();
    let (_, waker) = wakes();
    assert!(member.poll_ready(&mut Context::from_waker(&waker)).is_pending());
    let (reads, waker) = wakes();
    let mut subscriber = node.subscribe("jobs", &SubscribeOptions::default()).unwrap();
    assert!(subscriber.poll_ready(&mut Context::from_waker(&waker)).is_pending());
    drop(member);
    publish(&node, "jobs", [1]);
    assert_eq!(reads.0.load(Ordering::SeqCst), 1);
}

#[test]
fn housekeeping_wakes_an_async_member_when_a_claim_expires() {
    // On a slow machine, a short claim may expire before the second member waits. Then try a longer claim.
    assert!([10, 500, 25_000].into_iter().any(check_wake_by_tick));
}

/// Checks that the end of a claim wakes a second member, which waits for a record. Returns `false`, without a check, if
/// the claim had expired before the second member began to wait.
fn check_wake_by_tick(claim_ms: u64) -> bool {
    let node = node();
    publish(&node, "jobs", [1]);
    let options = WorkOptions { claim: Duration::from_millis(claim_ms), ..work_from_start() };
    let mut holds = node.join_work("jobs", "g", &options).unwrap();
    let mut waits = node.join_work("jobs", "g", &work_from_start()).unwrap();
    let held = claim(&mut holds).unwrap();
    let (wakes, waker) = wakes();
    if waits.poll_ready(&mut Context::from_waker(&waker)).is_ready() {
        return false;
    }
    until("the deadline is over", || {
        node.tick();
        wakes.0.load(Ordering::SeqCst) == 1
    });
    assert_eq!(claim(&mut waits).unwrap().attempt, 2);
    assert!(holds.ack(held.token).is_err());
    true
}

#[test]
fn ack_wakes_a_member_that_waits_at_the_claim_limit() {
    let mut config = Config::default();
    config.limits.topic = LogLimits { work_member_claims_max: 2, work_claims_max: 3, ..LogLimits::default() };
    let node = Node::start(config).unwrap();
    publish(&node, "jobs", 1..=6);
    let mut first = node.join_work("jobs", "g", &work_from_start()).unwrap();
    let mut second = node.join_work("jobs", "g", &work_from_start()).unwrap();
    let held = [claim(&mut first), claim(&mut first)].map(Option::unwrap);
    assert!(claim(&mut first).is_none());
    assert_eq!(number(claim(&mut second).unwrap().record().payload()), 3);
    assert!(claim(&mut second).is_none(), "the group is at its limit");
    let (wakes, waker) = wakes();
    assert!(second.poll_ready(&mut Context::from_waker(&waker)).is_pending());
    first.ack(held[0].token).unwrap();
    assert_eq!(wakes.0.load(Ordering::SeqCst), 1);
    assert_eq!(number(claim(&mut second).unwrap().record().payload()), 4);
    assert_eq!(second.poll_ready(&mut Context::from_waker(&waker)), Poll::Pending);
}

#[test]
fn waiting_members_wake_when_the_topic_is_deleted() {
    let node = node();
    let mut waiting: Vec<_> = (0..5)
        .map(|_| {
            let (mut member, (wakes, waker)) =
                (node.join_share("jobs", "g", &share_from_start()).unwrap(), wakes());
            assert!(member.poll_ready(&mut Context::from_waker(&waker)).is_pending());
            (member, wakes)
        })
        .collect();
    node.stop();
    for (member, wakes) in &mut waiting {
        assert_eq!(wakes.0.load(Ordering::SeqCst), 1);
        assert!(member.try_next().unwrap().is_some());
    }
}

#[test]
fn concurrent_members_leave_no_record_unclaimed() {
    const RECORDS: u64 = 3_000;
    let node = node();
    let members: Vec<_> = (0..6)
        .map(|_| {
            let mut member = node.join_work("jobs", "g", &work_from_start()).unwrap();
            thread::spawn(move || {
                let mut done = 0;
                // This wait also ends when the node stops.
                while let Ok(Some(dunlin::WorkEvent::ClaimedRecord(claimed))) = member.claim_one(SOON) {
                    member.ack(claimed.token).unwrap();
                    done += 1;
                }
                done
            })
        })
        .collect();
    let mut publisher = node.publisher("jobs").unwrap();
    let topic = node.topic("jobs").unwrap();
    for n in 0..RECORDS {
        publisher.publish(&n.to_le_bytes()).unwrap();
        if n % 70 == 0 {
            // Now all members wait for records again.
            until("all records are settled: no wake was lost", || node.groups(&topic)[0].waiting == 0);
        }
    }
    until("all records are settled: no wake was lost", || node.groups(&topic)[0].waiting == 0);
    node.stop();
    let done: u64 = members.into_iter().map(|member| member.join().unwrap()).sum();
    assert_eq!(done, RECORDS);
}
