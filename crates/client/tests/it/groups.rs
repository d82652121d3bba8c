//! Tests of group members, with a real node over TCP.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use dunlin::journal::FakeDisk;
use dunlin_client::topic::{
    DurableOptions, Notice, Position, Publish, ReliableOptions, Retention, Start, Subscribe, SubscribeError,
    SubscribeOptions, TopicConfig,
};
use dunlin_client::{Client, DeadLetterTarget, Group, GroupEvent, GroupKind, GroupOptions, Member};
use dunlin_wait::{Deadline, PATIENCE, until};

use crate::running_node::{RunningNode, on_disk};

const JOBS: Group<'static> = Group { topic: "jobs", name: "g" };

/// The values of a record or notice that the tests compare.
#[derive(Debug, Clone, PartialEq, Eq)]
enum MemberEvent {
    Record { token: u64, position: Position, attempt: u32, number: u64 },
    Notice(Notice),
}

fn next(member: &mut Member, timeout: Duration) -> Result<Option<MemberEvent>, SubscribeError> {
    Ok(member.next_timeout(timeout)?.map(|claimed| match claimed {
        GroupEvent::Record { token, position, attempt, frame, .. } => {
            let number = u64::from_le_bytes(frame.payload().try_into().unwrap());
            MemberEvent::Record { token, position, attempt, number }
        }
        GroupEvent::Notice(notice) => MemberEvent::Notice(notice),
    }))
}

/// Waits for the next record. Returns the token, the number of the attempt, and the number in the payload.
fn next_record(member: &mut Member) -> (u64, u32, u64) {
    match next(member, PATIENCE).unwrap() {
        Some(MemberEvent::Record { token, attempt, number, .. }) => (token, attempt, number),
        other => panic!("no record but {other:?}"),
    }
}

fn share_options() -> GroupOptions {
    GroupOptions { start: Start::Earliest, ..GroupOptions::default() }
}

fn work_options() -> GroupOptions {
    GroupOptions { kind: GroupKind::Work, ..share_options() }
}

fn to_graves() -> DeadLetterTarget {
    DeadLetterTarget::Subject("graves".to_owned())
}

fn start(topic: TopicConfig) -> (RunningNode, Client) {
    let running = RunningNode::start();
    let client = running.client();
    client.create_topic("jobs", &topic, false).unwrap();
    (running, client)
}

fn publish(client: &Client, numbers: impl IntoIterator<Item = u64>) {
    let mut publisher = client.publisher("jobs").unwrap();
    for number in numbers {
        publisher.send(&number.to_le_bytes()).unwrap();
    }
    publisher.flush().unwrap();
}

#[test]
fn each_record_of_a_share_group_goes_to_one_member() {
    const RECORDS: u64 = 20_000;
    let (running, client) = start(TopicConfig::default());
    let read = Arc::new(AtomicU64::new(0));
    let subscribers: Vec<_> = (0..3)
        .map(|_| {
            let mut member = running.client().join(JOBS, share_options()).unwrap();
            let read = Arc::clone(&read);
            thread::spawn(move || {
                let mut numbers = Vec::new();
                let deadline = Deadline::new();
                // Each member stays until all records are read: if a member left earlier, the records that were
                // delivered to it would be lost.
                while read.load(Ordering::SeqCst) < RECORDS && !deadline.is_over() {
                    if let Some(MemberEvent::Record { number, .. }) =
                        next(&mut member, Duration::from_millis(50)).unwrap()
                    {
                        numbers.push(number);
                        read.fetch_add(1, Ordering::SeqCst);
                    }
                }
                numbers
            })
        })
        .collect();
    publish(&client, 0..RECORDS);
    let all: Vec<_> = subscribers.into_iter().flat_map(|subscriber| subscriber.join().unwrap()).collect();
    assert_eq!(all.len() as u64, RECORDS);
    assert_eq!(all.into_iter().collect::<HashSet<_>>().len() as u64, RECORDS);
}

#[test]
fn lost_records_of_a_share_group_are_reported_as_a_gap() {
    let retention = Retention { bytes: 64 << 10, ..Retention::default() };
    let (_running, client) = start(TopicConfig { retention, ..TopicConfig::default() });
    let mut member = client.join(JOBS, GroupOptions { start: Start::Latest, ..share_options() }).unwrap();
    // Publish more records than the member requests in advance, and more than the log retains.
    publish(&client, 0..50_000);
    let (mut received, mut lost) = (0, 0);
    while received + lost < 50_000 {
        match next(&mut member, PATIENCE).unwrap() {
            Some(MemberEvent::Record { .. }) => received += 1,
            Some(MemberEvent::Notice(Notice::Gap(gap))) => lost += gap.records(),
            Some(MemberEvent::Notice(_)) => {}
            None => panic!("{received} seen, {lost} lost, and the rest in silence"),
        }
    }
    assert_eq!(received + lost, 50_000);
    assert!(lost > 0);
}

#[test]
fn member_that_leaves_loses_only_its_unread_records() {
    let (_running, client) = start(TopicConfig::default());
    publish(&client, 0..10);
    let mut first = client.join(JOBS, share_options()).unwrap();
    let delivered = (0..3).map(|_| next_record(&mut first).2).collect::<Vec<_>>();
    first.leave();
    let mut second = client.join(JOBS, share_options()).unwrap();
    // Records 4 to 10 were delivered to the first member, which left without reading them, so the group reports a gap.
    // Records 1 to 3 were read before.
    let Some(MemberEvent::Notice(Notice::Gap(gap))) = next(&mut second, PATIENCE).unwrap() else {
        panic!("no gap")
    };
    assert_eq!((delivered, gap.first, gap.last), (vec![0, 1, 2], 4, 10));
}

#[test]
fn returned_record_is_delivered_again_after_its_delay() {
    let (_running, client) = start(TopicConfig::default());
    publish(&client, 0..3);
    let mut member = client.join(JOBS, work_options()).unwrap();
    // The member has not requested records yet. When the response to this `ack` arrives, the node has handled all
    // earlier messages of the member.
    assert_eq!(member.ack(&[99]).unwrap().settled, 0);
    assert_eq!(next(&mut member, Duration::ZERO).unwrap(), None, "the member has not requested records");
    member.claim(3);
    let [first, second, third] = [0, 1, 2].map(|_| next_record(&mut member));
    assert_eq!(
        [first, second, third].map(|(_, attempt, number)| (attempt, number)),
        [(1, 0), (1, 1), (1, 2)]
    );
    assert_eq!(member.ack(&[first.0, third.0]).unwrap().settled, 2);
    let began = Instant::now();
    assert_eq!(member.nack(&[(second.0, Duration::from_millis(200))]).unwrap().settled, 1);
    assert_eq!(member.ack(&[second.0]).unwrap().stale, [second.0]);
    member.claim(1);
    let again = next_record(&mut member);
    assert_eq!((again.1, again.2), (2, 1));
    assert!(began.elapsed() >= Duration::from_millis(200));
    assert_eq!(member.ack(&[again.0]).unwrap().settled, 1);
}

/// Returns how long four deliveries of a record take, with a delay of 50 ms after each.
fn four_delays(client: &Client, number: u64) -> Duration {
    publish(client, [number]);
    let mut member = client.join(JOBS, work_options()).unwrap();
    let began = Instant::now();
    for attempt in 1..=4 {
        member.claim(1);
        let (token, delivered_attempt, _) = next_record(&mut member);
        assert_eq!(delivered_attempt, attempt);
        member.nack(&[(token, Duration::from_millis(50))]).unwrap();
    }
    member.claim(1);
    let token = next_record(&mut member).0;
    let elapsed = began.elapsed();
    assert_eq!(member.ack(&[token]).unwrap().settled, 1);
    elapsed
}

#[test]
fn retry_delay_ends_without_waiting_for_housekeeping() {
    let (_running, client) = start(TopicConfig::default());
    // Pauses of the machine make only some rounds slow. A node that checked the delays once a second would make all
    // rounds slow.
    let (deadline, mut elapsed) = (Deadline::new(), Vec::new());
    while elapsed.last().is_none_or(|elapsed| *elapsed > Duration::from_millis(2_500)) {
        deadline.check(format_args!("four delays of 50 ms took {elapsed:?}"));
        elapsed.push(four_delays(&client, elapsed.len() as u64));
    }
}

#[test]
fn expired_claim_goes_to_another_member_and_late_ack_is_stale() {
    let (running, client) = start(TopicConfig::default());
    publish(&client, [7]);
    let options = GroupOptions { claim: Some(Duration::from_millis(200)), ..work_options() };
    let mut slow = client.join(JOBS, options).unwrap();
    let mut quick = running.client().join(JOBS, work_options()).unwrap();
    slow.claim(1);
    let late = next_record(&mut slow);
    quick.claim(1);
    let again = next_record(&mut quick);
    assert_eq!((late.1, again.1, again.2), (1, 2, 7));
    let refused = slow.ack(&[late.0]).unwrap();
    assert_eq!((refused.settled, refused.stale), (0, vec![late.0]));
    assert_eq!(quick.ack(&[again.0]).unwrap().settled, 1);
}

#[test]
fn record_without_attempts_left_goes_to_the_dead_letters() {
    let (running, client) = start(TopicConfig::default());
    running.node.create_topic("graves", TopicConfig::default(), false).unwrap();
    publish(&client, [7]);
    let options = GroupOptions { attempts_max: 2, dead_letters: to_graves(), ..work_options() };
    let mut member = client.join(JOBS, options).unwrap();
    for attempt in 1..=2 {
        member.claim(1);
        let (token, delivered_attempt, _) = next_record(&mut member);
        assert_eq!(delivered_attempt, attempt);
        member.nack(&[(token, Duration::ZERO)]).unwrap();
    }
    let graves = running.node.topic("graves").unwrap();
    assert_eq!(graves.logs()[0].last().seq, 1);
    let described = client.describe_topic("jobs").unwrap();
    assert_eq!((described.groups.len(), described.groups[0].waiting), (1, 0));
}

#[test]
fn dead_letters_are_dropped_only_on_request() {
    let (running, client) = start(TopicConfig::default());
    publish(&client, [7]);
    let fail = |name, dead_letters| {
        let options = GroupOptions { attempts_max: 1, dead_letters, ..work_options() };
        let mut member = client.join(Group { name, ..JOBS }, options).unwrap();
        member.claim(1);
        let (token, ..) = next_record(&mut member);
        member.nack(&[(token, Duration::ZERO)]).unwrap();
    };
    fail("drops", DeadLetterTarget::Drop);
    assert!(running.node.topic("dead.jobs").is_none());
    running.node.create_topic("dead.jobs", TopicConfig::default(), false).unwrap();
    fail("publishes", DeadLetterTarget::default());
    assert_eq!(running.node.topic("dead.jobs").unwrap().logs()[0].last().seq, 1);
    let dead_letters = DeadLetterTarget::Subject(String::new());
    let refused = client.join(JOBS, GroupOptions { dead_letters, ..work_options() });
    assert!(matches!(refused, Err(SubscribeError::Subject(_))), "{refused:?}");
}

#[test]
fn group_description_shows_how_many_dead_letters_wait_and_why() {
    let (running, client) = start(TopicConfig::default());
    let full = TopicConfig {
        retention: Retention { bytes: 16 << 10, ..Retention::default() },
        reliable: Some(ReliableOptions { wait_max: Duration::from_millis(1), ..ReliableOptions::default() }),
        ..TopicConfig::default()
    };
    running.node.create_topic("graves", full, false).unwrap();
    let registered =
        SubscribeOptions { registered: true, start: Start::Earliest, ..SubscribeOptions::default() };
    let mut graves = running.node.subscribe("graves", &registered).unwrap();
    let mut filler = running.node.publisher("graves").unwrap();
    assert!((0..10_000_u64).any(|n| filler.publish(&n.to_le_bytes()).is_err()), "the topic is full");

    publish(&client, [7]);
    let options = GroupOptions { attempts_max: 1, dead_letters: to_graves(), ..work_options() };
    let mut member = client.join(JOBS, options).unwrap();
    member.claim(1);
    let (token, ..) = next_record(&mut member);
    member.nack(&[(token, Duration::ZERO)]).unwrap();
    let described_group = || client.describe_topic("jobs").unwrap().groups.remove(0);
    let group = described_group();
    assert_eq!(group.pending_dead_letters, 1);
    let error = group.dead_letter_error.expect("the reason is shown");
    assert!(error.starts_with("FULL: history is full"), "{error}");
    until("the dead letter is stored", || {
        graves.drain(100, |_| ()).unwrap();
        described_group().pending_dead_letters == 0
    });
}

#[test]
fn clients_of_a_work_group_process_each_record_once() {
    const RECORDS: u64 = 3_000;
    let (running, client) = start(TopicConfig { partitions: 4, ..TopicConfig::default() });
    publish(&client, 0..RECORDS);
    let done_count = Arc::new(AtomicU64::new(0));
    let workers: Vec<_> = (0..3)
        .map(|_| {
            let mut member = running.client().join(JOBS, work_options()).unwrap();
            let done_count = Arc::clone(&done_count);
            thread::spawn(move || {
                let mut done = Vec::new();
                let deadline = Deadline::new();
                member.claim(10);
                while done_count.load(Ordering::SeqCst) < RECORDS && !deadline.is_over() {
                    if let Some(MemberEvent::Record { token, number, .. }) =
                        next(&mut member, Duration::from_millis(50)).unwrap()
                    {
                        assert_eq!(member.ack(&[token]).unwrap().settled, 1);
                        done.push(number);
                        done_count.fetch_add(1, Ordering::SeqCst);
                        member.claim(1);
                    }
                }
                done
            })
        })
        .collect();
    let mut all: Vec<_> = workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect();
    all.sort_unstable();
    assert_eq!(all, (0..RECORDS).collect::<Vec<_>>());
}

#[test]
fn member_ends_after_a_restart_if_its_topic_is_lost() {
    for topic_comes_back in [true, false] {
        let (running, client) = start(TopicConfig::default());
        publish(&client, [1]);
        let mut member = client.join(JOBS, work_options()).unwrap();
        member.claim(5);
        let claimed = next_record(&mut member);
        let waiting = thread::spawn(move || {
            let mut received = Vec::new();
            let deadline = Deadline::new();
            loop {
                match next(&mut member, PATIENCE) {
                    Ok(Some(MemberEvent::Record { number, token, .. })) => {
                        return Ok((number, token, member, received));
                    }
                    Ok(Some(MemberEvent::Notice(notice))) => received.push(notice),
                    // The next call tries again. The calls together may not wait longer than the deadline.
                    Err(SubscribeError::Connection(_)) => deadline.check("the node is back"),
                    Err(ended) => return Err(ended),
                    Ok(None) => panic!("neither a record nor an error"),
                }
            }
        });
        let config = TopicConfig::default();
        let running = running.restart_with(|node| {
            if topic_comes_back {
                node.create_topic("jobs", config, false).unwrap();
            }
        });
        if topic_comes_back {
            let publisher = running.client();
            until("the member is back", || {
                !running.node.groups(&running.node.topic("jobs").unwrap()).is_empty()
            });
            publish(&publisher, [2]);
            let (number, token, mut member, received) = waiting.join().unwrap().unwrap();
            assert_eq!(number, 2);
            assert!(matches!(received[..], [Notice::EpochChanged(_)]), "{received:?}");
            let settlement = member.ack(&[claimed.0, token]).unwrap();
            assert_eq!(
                (settlement.settled, settlement.stale),
                (1, vec![claimed.0]),
                "that claim was of the old node"
            );
        } else {
            let ended = waiting.join().unwrap().err();
            assert!(matches!(ended, Some(SubscribeError::NoTopic(_))), "{ended:?}");
        }
    }
}

#[test]
fn share_group_continues_at_its_position_after_a_restart() {
    for start in [Start::Earliest, Start::Latest] {
        let disk = FakeDisk::new(52);
        let running = RunningNode::with_node(on_disk(&disk));
        let client = running.client();
        let durable = TopicConfig { durable: Some(DurableOptions::default()), ..TopicConfig::default() };
        client.create_topic("jobs", &durable, false).unwrap();
        let mut member = client.join(JOBS, GroupOptions { start, ..share_options() }).unwrap();
        publish(&client, [1, 2]);
        assert_eq!([next_record(&mut member).2, next_record(&mut member).2], [1, 2]);
        let _running = running.crash(&disk, |node| {
            node.publisher("jobs").unwrap().publish(&3_u64.to_le_bytes()[..]).unwrap();
        });
        let number = loop {
            match next(&mut member, PATIENCE) {
                Ok(Some(MemberEvent::Record { number, .. })) => break number,
                Ok(Some(MemberEvent::Notice(_))) | Err(SubscribeError::Connection(_)) => {}
                other => panic!("{start:?}: {other:?}"),
            }
        };
        assert_eq!(number, 3, "{start:?}");
    }
}

#[test]
fn reconnected_member_receives_its_claimed_records_again() {
    let (mut running, client) = start(TopicConfig::default());
    publish(&client, 1..=3);
    let mut member = client.join(JOBS, work_options()).unwrap();
    member.claim(5);
    let claimed = [0, 1, 2].map(|_| next_record(&mut member));
    assert_eq!(member.ack(&[claimed[0].0]).unwrap().settled, 1);
    running.cut();
    let mut again = Vec::new();
    let deadline = Deadline::new();
    while again.len() < 2 {
        deadline.check(format_args!("{again:?}"));
        // The node delivers again the records that the member had requested on the old connection.
        if let Ok(Some(MemberEvent::Record { token, attempt, number, .. })) = next(&mut member, PATIENCE) {
            assert_eq!(attempt, 2);
            again.push((token, number));
        }
    }
    assert_eq!(again.iter().map(|(_, number)| *number).collect::<Vec<_>>(), [2, 3]);
    let tokens: Vec<_> = again.iter().map(|(token, _)| *token).collect();
    assert_eq!(member.ack(&tokens).unwrap().settled, 2);
    assert_eq!(member.ack(&[claimed[1].0]).unwrap().stale, [claimed[1].0], "the claim of before is over");
}
