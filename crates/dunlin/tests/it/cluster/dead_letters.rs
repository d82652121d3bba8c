//! Tests of dead letters whose topic belongs to another node than the group's topic.

use dunlin::topic::ReducerError;
use dunlin::{WorkEvent, WorkMember, WorkOptions};

use super::*;

/// A group at node 1 whose records have all failed after one attempt. Node 2 owns the topic for dead letters. Until a
/// test calls [`deliver_letters`](FailedGroup::deliver_letters), the letters do not arrive there, and the test responds
/// to them.
struct FailedGroup {
    cluster: TestCluster,
    member: WorkMember,
}

impl FailedGroup {
    fn of(records: &[&str]) -> FailedGroup {
        let cluster = TestCluster::of(2);
        cluster.create_topic_at(1, "jobs");
        cluster.create_topic_at(2, "dead.jobs");
        let node = cluster.node(1);
        for record in records {
            publish(&node, "jobs", record);
        }
        *cluster.hub.captured.lock().unwrap() = Some(Vec::new());
        let options = WorkOptions { attempts_max: 1, ..WorkOptions::default() };
        let mut member = node.join_work("jobs", "g", &options).unwrap();
        let mut failed = 0;
        until("all attempts have failed", || {
            for event in member.claim(records.len()).unwrap() {
                if let WorkEvent::ClaimedRecord(claimed) = event {
                    member.nack(claimed.token, Duration::ZERO).unwrap();
                    failed += 1;
                }
            }
            failed == records.len()
        });
        FailedGroup { cluster, member }
    }

    /// Waits until the group has sent `N` letters, and returns them.
    fn captured_letters<const N: usize>(&self) -> [InFlightBatch; N] {
        let mut letters = Vec::new();
        until("the letters are sent", || {
            self.cluster.node(1).tick();
            letters.append(self.cluster.hub.captured.lock().unwrap().as_mut().unwrap());
            letters.len() >= N
        });
        letters.try_into().unwrap()
    }

    /// Delivers `letters` to node 2. Later letters are delivered, too.
    fn deliver_letters(&self, letters: impl IntoIterator<Item = InFlightBatch>) {
        *self.cluster.hub.captured.lock().unwrap() = None;
        let hub = Arc::downgrade(&self.cluster.hub);
        letters.into_iter().for_each(|letter| deliver(&hub, 1, 2, letter));
    }

    /// Appends a letter at node 2, but does not respond to the group.
    fn append_without_response(&self, letter: &InFlightBatch) {
        let append = BatchAppend {
            batch: CheckedBatch::check(&letter.frames, letter.count, 1 << 20).unwrap(),
            partition: letter.partition,
            mark: letter.mark,
            expect_last: None,
            claim: None,
            evict: false,
            relayed: true,
        };
        self.dead_topic().append_batch(now_ns(), append).unwrap();
    }

    fn dead_topic(&self) -> Arc<dunlin::topic::Topic> {
        self.cluster.node(2).topic("dead.jobs").unwrap()
    }

    fn until_stored(&self, letters: u64) {
        until("the letters are stored", || {
            self.cluster.node(1).tick();
            self.dead_topic().logs()[0].last().seq == letters
        });
    }

    /// The payloads of all letters that node 2 has stored.
    fn stored_letters(&self) -> Vec<String> {
        let count = self.dead_topic().logs()[0].last().seq as usize;
        let mut subscriber = self.cluster.node(2).subscribe("dead.jobs", &from(Start::Earliest)).unwrap();
        next_events(&mut subscriber, count)
    }
}

fn full() -> PublishError {
    PublishError::Full { subscriber: "s".to_owned(), needed: 1, waited: Duration::ZERO }
}

#[test]
fn dead_letter_refused_by_the_topic_owner_is_resent_in_order() {
    let mut group = FailedGroup::of(&["1", "2"]);
    let [first, second] = group.captured_letters();
    let mark = first.mark;
    first.complete(Err(full()));
    second.complete(Err(PublishError::ProducerGap { producer_seq: 2, last: 0 }));
    let again: [InFlightBatch; 1] = group.captured_letters();
    assert_eq!(again[0].mark, mark, "the letter keeps its number");
    group.deliver_letters(again);
    group.until_stored(2);
    assert_eq!(group.stored_letters(), ["1", "2"]);
    group.member.claim(1).unwrap();
    assert_eq!(group.member.lost(), 0);
}

#[test]
fn repeatedly_refused_dead_letter_stays_before_newer_ones() {
    let group = FailedGroup::of(&["1", "2", "3"]);
    let letters: [InFlightBatch; 3] = group.captured_letters();
    let mark = letters[0].mark;
    letters.into_iter().for_each(|letter| letter.complete(Err(full())));
    let [again]: [InFlightBatch; 1] = group.captured_letters();
    again.complete(Err(full()));
    let again: [InFlightBatch; 1] = group.captured_letters();
    assert_eq!(again[0].mark, mark);
    group.deliver_letters(again);
    group.until_stored(3);
    assert_eq!(group.stored_letters(), ["1", "2", "3"]);
}

#[test]
fn dead_letters_are_renumbered_if_the_owner_refuses_a_number() {
    let group = FailedGroup::of(&["1", "2"]);
    let letters: [InFlightBatch; 2] = group.captured_letters();
    let mark = letters[0].mark.unwrap();
    letters.into_iter().for_each(|letter| letter.complete(Err(full())));
    let [again]: [InFlightBatch; 1] = group.captured_letters();
    again.complete(Err(PublishError::DuplicateForgotten { producer_seq: 1, remembered_from: 2 }));
    let again: [InFlightBatch; 1] = group.captured_letters();
    assert!(again[0].mark.unwrap().producer_epoch > mark.producer_epoch);
    group.deliver_letters(again);
    group.until_stored(2);
    assert_eq!(group.stored_letters(), ["1", "2"]);
}

#[test]
fn permanently_refused_dead_letter_is_reported_as_a_gap() {
    let mut group = FailedGroup::of(&["1", "2"]);
    let [first, second] = group.captured_letters();
    let mark = second.mark.unwrap();
    first.complete(Err(PublishError::Reducer { record: 0, why: ReducerError("unfit".to_owned()) }));
    second.complete(Err(PublishError::ProducerGap { producer_seq: 2, last: 0 }));
    let again: [InFlightBatch; 1] = group.captured_letters();
    assert!(again[0].mark.unwrap().producer_epoch > mark.producer_epoch, "its number follows no other");
    group.deliver_letters(again);
    group.until_stored(1);
    assert_eq!(group.stored_letters(), ["2"]);
    until("the member receives the gap", || {
        group.member.claim(1).unwrap();
        group.member.lost() == 1
    });
}

#[test]
fn dead_letter_with_a_lost_response_is_stored_once() {
    let group = FailedGroup::of(&["1"]);
    let [first] = group.captured_letters();
    let mark = first.mark;
    group.append_without_response(&first);
    first.complete(Err(PublishError::Unknown("the response was lost".to_owned())));
    let again: [InFlightBatch; 1] = group.captured_letters();
    assert_eq!(again[0].mark, mark);
    group.deliver_letters(again);
    assert_eq!(publish(&group.cluster.node(1), "dead.jobs", "after").seq, 2);
    assert_eq!(group.stored_letters(), ["1", "after"]);
}

struct WakeCount(AtomicU64);

impl Wake for WakeCount {
    fn wake(self: Arc<WakeCount>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn housekeeping_is_woken_when_a_dead_letter_is_delivered() {
    let group = FailedGroup::of(&["1"]);
    let mut letters = Vec::new();
    // Wait without an operation of the group, which would take the letter's outcome.
    until("the letter is sent", || {
        letters.append(group.cluster.hub.captured.lock().unwrap().as_mut().unwrap());
        !letters.is_empty()
    });
    let woken = Arc::new(WakeCount(AtomicU64::new(0)));
    let waker = Waker::from(Arc::clone(&woken));
    assert_eq!(group.cluster.node(1).handle_deadlines(&waker), None);
    group.deliver_letters(letters);
    assert_eq!(woken.0.load(Ordering::SeqCst), 1);
    assert_eq!(group.cluster.node(1).handle_deadlines(&waker), None, "the outcome was taken");
}

#[test]
fn pending_dead_letters_survive_the_move_of_their_topic() {
    let group = FailedGroup::of(&["1", "2"]);
    let letters: [InFlightBatch; 2] = group.captured_letters();
    letters.into_iter().for_each(|letter| letter.complete(Err(full())));
    group.cluster.ownership(1).move_topic("jobs", 2).unwrap();
    group.cluster.until_owned_by("jobs", 2);
    let jobs = group.cluster.node(1).topic("jobs").unwrap();
    until("the group has ended", || group.cluster.node(1).groups(&jobs).is_empty());
    group.deliver_letters([]);
    group.until_stored(2);
    assert_eq!(group.stored_letters(), ["1", "2"]);
    assert_eq!(group.cluster.node(1).dropped_dead_letters(), 0);
}

#[test]
fn lost_dead_letter_is_not_replaced_by_a_newer_record() {
    let group = FailedGroup::of(&["1"]);
    let [letter] = group.captured_letters();
    letter.complete(Err(full()));
    // The next owner has none of the topic's records, so that it numbers new records from 1 again.
    let cluster = &group.cluster;
    let state = cluster.hub.state.lock().unwrap().clone();
    let now = state.placement(b"jobs").unwrap();
    let next = Placement { owner: 2, epoch: now.epoch + 1, from: 0, ..now };
    for id in [2, 1] {
        cluster.ownership(id).apply_placement("jobs", &next).unwrap();
    }
    assert_eq!(publish(&cluster.node(2), "jobs", "other").seq, 1);
    let _reader = cluster.node(1).subscribe("jobs", &from(Start::Earliest)).unwrap();
    let jobs = cluster.node(1).topic("jobs").unwrap();
    until("the record has replaced the letter's", || {
        jobs.logs()[0].read(1, |record| record.payload() == b"other") == Some(true)
    });
    until("the letter is dropped", || {
        cluster.node(1).tick();
        cluster.node(1).dropped_dead_letters() == 1
    });
    assert!(cluster.hub.captured.lock().unwrap().as_ref().unwrap().is_empty(), "no other record is sent");
}
