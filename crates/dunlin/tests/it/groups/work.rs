use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use dunlin::topic::{
    Event, Publish, PublishError, ReducerConfig, ReliableOptions, Retention, Subscribe, SubscribeError,
    TopicConfig,
};
use dunlin::{
    Config, DeadLetterTarget, JoinError, Node, NodeLimits, StaleClaim, TopicError, WorkEvent, WorkOptions,
    steady_ns,
};
use dunlin_wait::until;

use super::{
    SOON, await_claim, claim, gap_of, keyed, number, publish, without_dead_letters, work_from_start,
};
use crate::{from_earliest, node};

#[test]
fn late_ack_of_a_redelivered_record_is_refused() {
    let node = node();
    publish(&node, "jobs", [1]);
    let mut slow = node
        .join_work("jobs", "g", &WorkOptions { claim: Duration::from_millis(50), ..work_from_start() })
        .unwrap();
    let mut quick = node.join_work("jobs", "g", &work_from_start()).unwrap();
    let late = claim(&mut slow).unwrap();
    let again = await_claim(&mut quick);
    assert_eq!((late.attempt, again.attempt), (1, 2));
    assert_eq!(late.record().position, again.record().position);
    assert_eq!(slow.ack(late.token), Err(StaleClaim { token: late.token }));
    assert_eq!(
        slow.ack(again.token),
        Err(StaleClaim { token: again.token }),
        "another member has the record"
    );
    quick.ack(again.token).unwrap();
    assert_eq!(quick.ack(again.token), Err(StaleClaim { token: again.token }));
    assert!(claim(&mut quick).is_none() && claim(&mut slow).is_none());
}

/// The system's time can be set, so deadlines must not depend on it.
#[test]
fn deadlines_of_claims_are_measured_by_the_monotonic_clock() {
    let node = node();
    publish(&node, "jobs", [1]);
    let duration = Duration::from_secs(60);
    let options = WorkOptions { claim: duration, ..work_from_start() };
    let mut member = node.join_work("jobs", "g", &options).unwrap();
    let duration_ns = duration.as_nanos() as u64;
    let before_ns = steady_ns();
    let claimed = claim(&mut member).unwrap();
    let renewed_ns = member.renew(claimed.token).unwrap();
    let after_ns = steady_ns();
    for deadline_ns in [claimed.deadline_ns, renewed_ns] {
        assert!((before_ns..=after_ns).contains(&(deadline_ns - duration_ns)), "{deadline_ns}");
    }
}

#[test]
fn renewed_claim_outlives_its_first_deadline() {
    let in_time = |claim_ms: u64| {
        let node = node();
        publish(&node, "jobs", [1]);
        let options = WorkOptions { claim: Duration::from_millis(claim_ms), ..work_from_start() };
        let mut member = node.join_work("jobs", "g", &options).unwrap();
        let held = claim(&mut member).unwrap();
        for _ in 0..5 {
            thread::sleep(Duration::from_millis(claim_ms / 4));
            let Ok(deadline_ns) = member.renew(held.token) else { return false };
            assert!(deadline_ns > held.deadline_ns);
        }
        member.ack(held.token).is_ok()
    };
    // If the machine pauses for longer than a claim lasts, the claim ends. This is no failure: try a longer claim.
    assert!([600, 3_000, 15_000].into_iter().any(in_time));
}

#[test]
fn nack_delays_only_its_own_record() {
    let node = node();
    publish(&node, "jobs", [1, 2]);
    let mut member = node.join_work("jobs", "g", &work_from_start()).unwrap();
    let first = claim(&mut member).unwrap();
    let began = std::time::Instant::now();
    member.nack(first.token, Duration::from_millis(100)).unwrap();
    assert_eq!(number(await_claim(&mut member).record().payload()), 2);
    let again = await_claim(&mut member);
    assert!(began.elapsed() >= Duration::from_millis(100));
    assert_eq!((number(again.record().payload()), again.attempt), (1, 2));
}

#[test]
fn records_of_a_key_go_to_one_member_at_a_time_in_order() {
    const KEYS: u64 = 7;
    const EACH: u64 = 200;
    let node = node();
    let mut publisher = node.publisher("jobs").unwrap();
    for n in 0..KEYS * EACH {
        publisher.publish(keyed(&(n % KEYS).to_le_bytes(), &n.to_le_bytes())).unwrap();
    }
    let done: Arc<Mutex<HashMap<u64, Vec<u64>>>> = Arc::default();
    let busy: Arc<Mutex<HashMap<u64, bool>>> = Arc::default();
    let workers: Vec<_> = (0..4)
        .map(|worker| {
            let mut member = node.join_work("jobs", "g", &without_dead_letters()).unwrap();
            let (done, busy) = (Arc::clone(&done), Arc::clone(&busy));
            thread::spawn(move || {
                let mut tries = worker;
                while let Ok(Some(event)) = member.claim_one(SOON) {
                    let WorkEvent::ClaimedRecord(claimed) = event else { continue };
                    let n = number(claimed.record().payload());
                    assert_eq!(
                        busy.lock().unwrap().insert(n % KEYS, true),
                        None,
                        "another member has the key"
                    );
                    tries += 1;
                    busy.lock().unwrap().remove(&(n % KEYS));
                    if tries % 5 == 0 && claimed.attempt == 1 {
                        member.nack(claimed.token, Duration::ZERO).unwrap();
                    } else {
                        done.lock().unwrap().entry(n % KEYS).or_default().push(n);
                        member.ack(claimed.token).unwrap();
                    }
                }
            })
        })
        .collect();
    let topic = node.topic("jobs").unwrap();
    until("all is done", || node.groups(&topic)[0].waiting == 0);
    node.stop();
    workers.into_iter().for_each(|worker| worker.join().unwrap());
    for (key, numbers) in done.lock().unwrap().iter() {
        assert_eq!(*numbers, (0..EACH).map(|n| n * KEYS + key).collect::<Vec<_>>());
    }
    assert_eq!(done.lock().unwrap().len() as u64, KEYS);
}

#[test]
fn death_of_a_member_frees_its_claims_and_counts_an_attempt() {
    let node = node();
    publish(&node, "jobs", 1..=3);
    let mut dies = node.join_work("jobs", "g", &work_from_start()).unwrap();
    let mut leaves = node.join_work("jobs", "g", &work_from_start()).unwrap();
    let mut stays = node.join_work("jobs", "g", &work_from_start()).unwrap();
    assert_eq!(claim(&mut dies).unwrap().record().seq(), 1);
    assert_eq!(claim(&mut leaves).unwrap().record().seq(), 2);
    drop(dies);
    leaves.leave();
    let tries: Vec<_> =
        (0..3).map(|_| claim(&mut stays).unwrap()).map(|c| (c.record().seq(), c.attempt)).collect();
    assert_eq!(tries, [(1, 2), (2, 1), (3, 1)]);
}

#[test]
fn work_group_loses_no_record_while_members_keep_dying() {
    const RECORDS: u64 = 500;
    let node = node();
    publish(&node, "jobs", 1..=RECORDS);
    let options = WorkOptions { attempts_max: 0, ..work_from_start() };
    let mut acked = Vec::new();
    for round in 0.. {
        let mut member = node.join_work("jobs", "g", &options).unwrap();
        let events = member.claim(10).unwrap();
        if events.is_empty() {
            break;
        }
        for event in events.into_iter().take(3 + round % 5) {
            let WorkEvent::ClaimedRecord(claimed) = event else { panic!("{event:?}") };
            acked.push(claimed.record().seq());
            member.ack(claimed.token).unwrap();
        }
    }
    acked.sort_unstable();
    assert_eq!(acked, (1..=RECORDS).collect::<Vec<_>>());
}

#[test]
fn dead_letter_contains_the_record_and_names_its_origin() {
    let node = node();
    let config = TopicConfig { pattern: Some("jobs.>".to_owned()), ..Default::default() };
    node.create_topic("jobs", config, false).unwrap();
    node.publisher("jobs.mail").unwrap().publish(keyed(b"k", b"poison")).unwrap();
    let options = WorkOptions { attempts_max: 3, ..work_from_start() };
    let mut dead = node.subscribe("dead.jobs", &from_earliest()).unwrap();
    let mut member = node.join_work("jobs", "g", &options).unwrap();
    for attempt in 1..=3 {
        let claimed = claim(&mut member).unwrap();
        assert_eq!(claimed.attempt, attempt);
        member.nack(claimed.token, Duration::ZERO).unwrap();
    }
    assert!(claim(&mut member).is_none());
    let Some(Event::Record(letter)) = dead.try_next().unwrap() else { panic!("no dead letter") };
    assert_eq!((letter.payload(), letter.frame.key()), (&b"poison"[..], Some(&b"k"[..])));
    let epoch = node.topic("jobs").unwrap().logs()[0].last().epoch;
    let headers: Vec<_> = letter
        .frame
        .headers()
        .map(|(name, value)| format!("{name}={}", String::from_utf8_lossy(value)))
        .collect();
    let expected = [
        "dunlin-dead-subject=jobs.mail".to_owned(),
        format!("dunlin-dead-position=0/{epoch}-1"),
        "dunlin-dead-group=g".to_owned(),
        "dunlin-dead-attempts=3".to_owned(),
        "dunlin-dead-cause=nack".to_owned(),
    ];
    assert_eq!(headers, expected);
}

#[test]
fn group_cannot_send_dead_letters_to_its_own_topic() {
    let node = node();
    publish(&node, "jobs", [1, 2]);
    let once = |dead_letters| WorkOptions { attempts_max: 1, dead_letters, ..work_from_start() };
    let back = node.join_work("jobs", "back", &once(DeadLetterTarget::Subject("jobs".to_owned()))).err();
    assert!(matches!(back, Some(JoinError::DeadLetters { .. })), "{back:?}");
    let mut named =
        node.join_work("jobs", "named", &once(DeadLetterTarget::Subject("graves".to_owned()))).unwrap();
    drop(claim(&mut named).unwrap());
    named.leave();
    let mut drops = node.join_work("jobs", "drops", &once(DeadLetterTarget::Drop)).unwrap();
    drop(claim(&mut drops).unwrap());
    drop(drops);
    let graves = node.topic("graves").unwrap();
    assert_eq!(graves.logs()[0].last().seq, 0, "the attempt of a leaving member does not count");
    let mut named = node.join_work("jobs", "named", &work_from_start()).unwrap();
    drop(claim(&mut named).unwrap());
    drop(named);
    assert_eq!(graves.logs()[0].last().seq, 1, "the first member's options apply");
    assert!(node.topic("dead.jobs").is_none());
}

#[test]
fn claimed_record_dropped_by_the_log_is_reported_as_a_gap() {
    let node = node();
    let retention = Retention { bytes: 64 << 10, ..Default::default() };
    node.create_topic("jobs", TopicConfig { retention, ..Default::default() }, false).unwrap();
    publish(&node, "jobs", [1, 2]);
    let mut member = node.join_work("jobs", "g", &work_from_start()).unwrap();
    let [first, second] = [0, 1].map(|_| claim(&mut member).unwrap());
    publish(&node, "jobs", 3..=10_000);
    member.ack(first.token).unwrap();
    member.nack(second.token, Duration::ZERO).unwrap();
    let mut gaps = Vec::new();
    let mut claims = 0;
    while let Some(event) = member.claim_one(Some(Duration::ZERO)).unwrap() {
        match event {
            WorkEvent::ClaimedRecord(claimed) => {
                claims += 1;
                member.ack(claimed.token).unwrap();
            }
            event => gaps.extend(gap_of(event)),
        }
    }
    assert!(gaps.iter().any(|(first, last)| (*first..=*last).contains(&2)), "{gaps:?}");
    assert_eq!(1 + claims + member.lost(), 10_000, "{gaps:?}");
}

#[test]
fn dead_letter_waits_for_room_in_its_topic() {
    let node = node();
    let small = TopicConfig {
        retention: Retention { bytes: 16 << 10, ..Default::default() },
        reliable: Some(Default::default()),
        ..Default::default()
    };
    node.create_topic("dead.jobs", small, false).unwrap();
    let registered = dunlin::topic::SubscribeOptions { registered: true, ..from_earliest() };
    let mut graves = node.subscribe("dead.jobs", &registered).unwrap();
    publish(&node, "jobs", 1..=1_000);
    let options = WorkOptions { attempts_max: 1, ..work_from_start() };
    let mut member = node.join_work("jobs", "g", &options).unwrap();
    while let Some(claimed) = claim(&mut member) {
        member.nack(claimed.token, Duration::ZERO).unwrap();
    }
    let mut dead_letters = 0;
    for _ in 0..200 {
        dead_letters += graves.drain(100, |_| ()).unwrap();
        node.tick();
    }
    assert_eq!(dead_letters, 1_000);
}

#[test]
fn dead_letter_refused_by_a_reducer_does_not_block_later_ones() {
    let node = node();
    let last = ReducerConfig { kind: "last".to_owned(), ..ReducerConfig::default() };
    node.create_topic("dead.jobs", TopicConfig { reducer: Some(last), ..Default::default() }, false).unwrap();
    let mut publisher = node.publisher("jobs").unwrap();
    // The reducer `last` refuses a record with neither a key nor a payload.
    publisher.publish("").unwrap();
    publisher.publish(keyed(b"k", b"accepted")).unwrap();
    let options = WorkOptions { attempts_max: 1, ..work_from_start() };
    let mut member = node.join_work("jobs", "g", &options).unwrap();
    while let Some(claimed) = claim(&mut member) {
        member.nack(claimed.token, Duration::ZERO).unwrap();
    }
    assert_eq!(member.lost(), 1);
    assert_eq!(node.topic("dead.jobs").unwrap().logs()[0].last().seq, 1);
}

/// Starts a node with a group `g` of the topic `jobs`. The group has no members, and has two dead letters, whose topic
/// does not exist.
fn node_with_pending_dead_letters(limits: NodeLimits) -> Node {
    let node = Node::start(Config { limits, auto_create: false, ..Config::default() }).unwrap();
    node.create_topic("dead.jobs", TopicConfig::default(), false).unwrap();
    node.create_topic("jobs", TopicConfig::default(), false).unwrap();
    publish(&node, "jobs", [1, 2]);
    let options = WorkOptions { attempts_max: 1, ..work_from_start() };
    let mut member = node.join_work("jobs", "g", &options).unwrap();
    node.delete_topic("dead.jobs").unwrap();
    while let Some(claimed) = claim(&mut member) {
        member.nack(claimed.token, Duration::ZERO).unwrap();
    }
    member.leave();
    node
}

#[test]
fn group_info_shows_how_many_dead_letters_wait_and_why() {
    let node = node_with_pending_dead_letters(NodeLimits::default());
    let info = || node.groups(&node.topic("jobs").unwrap()).remove(0);
    assert_eq!(info().pending_dead_letters, 2);
    let error = info().dead_letter_error.expect("the reason is shown");
    assert!(error.starts_with("NO_TOPIC: ") && error.contains("dead.jobs"), "{error}");
    node.create_topic("dead.jobs", TopicConfig::default(), false).unwrap();
    node.tick();
    assert_eq!((info().pending_dead_letters, info().dead_letter_error), (0, None));
    assert_eq!(node.topic("dead.jobs").unwrap().logs()[0].last().seq, 2);
}

#[test]
fn refusal_of_a_join_names_the_overlong_dead_letter_subject() {
    let node = node();
    let topic = "t".repeat(252);
    node.create_topic(&topic, TopicConfig::default(), false).unwrap();
    let refused = node.join_work(&topic, "g", &work_from_start()).map(drop).unwrap_err();
    let text = refused.to_string();
    assert!(matches!(refused, JoinError::DeadLetterSubject { .. }), "{refused:?}");
    assert!(text.contains(&format!("\"dead.{topic}\" of the group's dead letters")), "{text}");
    drop(node.join_work(&topic, "g", &without_dead_letters()).unwrap());
}

#[test]
fn join_without_auto_create_creates_no_dead_letter_topic() {
    let node = Node::start(Config { auto_create: false, ..Config::default() }).unwrap();
    node.create_topic("jobs", TopicConfig::default(), false).unwrap();
    let named = DeadLetterTarget::Subject("graves".to_owned());
    for (dead_letters, subject) in [(DeadLetterTarget::Default, "dead.jobs"), (named, "graves")] {
        let options = WorkOptions { dead_letters, ..work_from_start() };
        let refused = node.join_work("jobs", "g", &options).map(drop).unwrap_err();
        let no_topic = TopicError::NoDeadLetterTopic(subject.to_owned());
        assert_eq!(refused, JoinError::Topic(no_topic));
        assert!(node.topic(subject).is_none() && node.groups(&node.topic("jobs").unwrap()).is_empty());
        node.create_topic(subject, TopicConfig::default(), false).unwrap();
        drop(node.join_work("jobs", "g", &options).unwrap());
        node.delete_topic(subject).unwrap();
        node.delete_topic("jobs").unwrap();
        node.create_topic("jobs", TopicConfig::default(), false).unwrap();
    }
    drop(node.join_work("jobs", "drops", &without_dead_letters()).unwrap());
}

#[test]
fn recreated_topic_has_no_dead_letters_of_the_deleted_topic() {
    let node = node_with_pending_dead_letters(NodeLimits::default());
    node.delete_topic("jobs").unwrap();
    node.create_topic("jobs", TopicConfig::default(), false).unwrap();
    publish(&node, "jobs", [3]);
    node.create_topic("dead.jobs", TopicConfig::default(), false).unwrap();
    let mut member = node.join_work("jobs", "g", &work_from_start()).unwrap();
    node.tick();
    assert_eq!(node.topic("dead.jobs").unwrap().logs()[0].last().seq, 2, "letters of the deleted topic");
    let info = node.groups(&node.topic("jobs").unwrap()).remove(0);
    assert_eq!((info.pending_dead_letters, info.waiting), (0, 1));
    let claimed = claim(&mut member).unwrap();
    assert_eq!((number(claimed.record().payload()), claimed.attempt), (3, 1));
}

#[test]
fn unsent_dead_letters_of_a_deleted_topic_are_reported() {
    let limits = NodeLimits { deleted_age_max: Duration::from_millis(1), ..NodeLimits::default() };
    let node = node_with_pending_dead_letters(limits);
    assert_eq!(node.dropped_dead_letters(), 0);
    node.delete_topic("jobs").unwrap();
    until("the letters are dropped", || {
        node.tick();
        node.dropped_dead_letters() == 2
    });
    let reports = node.take_dropped_dead_letters();
    let [dropped] = &reports[..] else { panic!("{reports:?}") };
    assert_eq!((&dropped.topic[..], &dropped.group[..], dropped.count), ("jobs", "g", 2));
    assert!(!dropped.why.is_empty());
    assert!(node.take_dropped_dead_letters().is_empty());
}

#[test]
fn ended_idle_group_still_sends_its_dead_letters() {
    let limits = NodeLimits { group_idle_max: Duration::from_millis(1), ..NodeLimits::default() };
    let node = node_with_pending_dead_letters(limits);
    until("the group has ended", || {
        node.tick();
        node.groups(&node.topic("jobs").unwrap()).is_empty()
    });
    node.create_topic("dead.jobs", TopicConfig::default(), false).unwrap();
    until("the letters are stored", || {
        node.tick();
        node.topic("dead.jobs").unwrap().logs()[0].last().seq == 2
    });
    assert_eq!(node.dropped_dead_letters(), 0);
}

#[test]
fn reliable_topic_keeps_a_record_until_it_is_a_dead_letter() {
    let node = node();
    let reliable = Some(ReliableOptions { wait_max: Duration::from_millis(1), ..ReliableOptions::default() });
    let of_bytes = |bytes| TopicConfig {
        retention: Retention { bytes, ..Retention::default() },
        reliable,
        ..TopicConfig::default()
    };
    node.create_topic("dead.jobs", of_bytes(16 << 10), false).unwrap();
    node.create_topic("jobs", of_bytes(64 << 10), false).unwrap();
    let registered = dunlin::topic::SubscribeOptions { registered: true, ..from_earliest() };
    let mut graves = node.subscribe("dead.jobs", &registered).unwrap();
    let mut filler = node.publisher("dead.jobs").unwrap();
    let is_full = (0..10_000_u64).any(|n| filler.publish(&n.to_le_bytes()).is_err());
    assert!(is_full);
    let dead_topic = node.topic("dead.jobs").unwrap();
    let filled = dead_topic.logs()[0].last().seq;

    let options = WorkOptions { attempts_max: 1, registered: true, ..work_from_start() };
    let mut member = node.join_work("jobs", "g", &options).unwrap();
    let mut publisher = node.publisher("jobs").unwrap();
    publisher.publish("poison").unwrap();
    let poison = claim(&mut member).unwrap();
    member.nack(poison.token, Duration::ZERO).unwrap();
    let refused = (0..10_000_u64).find_map(|n| {
        let refused = publisher.publish(&n.to_le_bytes()).err();
        while let Some(claimed) = claim(&mut member) {
            member.ack(claimed.token).unwrap();
        }
        refused
    });
    assert!(matches!(refused, Some(PublishError::Full { .. })), "{refused:?}");
    until("the dead letter is stored", || {
        graves.drain(100, |_| ()).unwrap();
        node.tick();
        dead_topic.logs()[0].last().seq > filled
    });
    assert!(claim(&mut member).is_none());
    assert_eq!(member.lost(), 0);
}

#[test]
fn work_group_ends_after_the_last_record_of_a_deleted_topic() {
    let node = node();
    publish(&node, "jobs", [1, 2]);
    let mut member = node.join_work("jobs", "g", &work_from_start()).unwrap();
    let first = claim(&mut member).unwrap();
    node.delete_topic("jobs").unwrap();
    let second = claim(&mut member).unwrap();
    member.ack(second.token).unwrap();
    assert!(member.claim(1).unwrap().is_empty(), "the first member may come back");
    member.nack(first.token, Duration::ZERO).unwrap();
    let again = claim(&mut member).unwrap();
    member.ack(again.token).unwrap();
    assert!(matches!(member.claim_one(SOON).unwrap(), Some(WorkEvent::Notice(_))));
    assert_eq!(member.claim_one(SOON).err(), Some(SubscribeError::Closed));
}

#[test]
fn groups_without_members_end_after_the_maximum_idle_time() {
    let node = |group_idle_max| {
        let limits = NodeLimits { groups_max: 1, group_idle_max, ..Default::default() };
        Node::start(Config { limits, ..Config::default() }).unwrap()
    };
    let full = JoinError::Limit { limit: "groups_max", value: 1 };
    let patient = node(Duration::from_secs(3_600));
    let member = patient.join_work("jobs", "a", &work_from_start()).unwrap();
    assert_eq!(patient.join_work("jobs", "b", &work_from_start()).err(), Some(full.clone()));
    drop(member);
    patient.tick();
    assert_eq!(patient.join_work("jobs", "b", &work_from_start()).err(), Some(full));

    let impatient = node(Duration::from_millis(20));
    drop(impatient.join_work("jobs", "a", &work_from_start()).unwrap());
    until("the member's place is free", || {
        impatient.tick();
        impatient.join_work("jobs", "b", &work_from_start()).is_ok()
    });
}
