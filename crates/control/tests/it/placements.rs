//! Tests of topics' owners: checks the invariants, and compares the state with a model that does without keys.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

impl TestState {
    fn enlist(&mut self, node: u64, ttl_ms: u64) -> u64 {
        let lease = self.grant(ttl_ms);
        assert!(self.apply(ControlCommand::Enlist { node, lease, value: b"" }).is_ok());
        lease
    }

    fn place(&mut self, topic: &str, node: u64) -> Result<ControlReply, ControlRefusal> {
        self.apply(ControlCommand::Place { request: owner_request(topic, topic, TopicKind::Volatile, node) })
    }

    fn owner(&self, topic: &str) -> Option<(u64, u32)> {
        self.state.placement(topic.as_bytes()).map(|placement| (placement.owner, placement.epoch))
    }
}

fn owner_request<'a>(topic: &'a str, pattern: &'a str, kind: TopicKind, node: u64) -> OwnerRequest<'a> {
    let (topic, pattern) = (topic.as_bytes(), pattern.as_bytes());
    OwnerRequest { topic, pattern, kind, config: b"config", epoch: 7, node, holds: false }
}

fn placed(owner: u64, epoch: u32, created: bool) -> Result<ControlReply, ControlRefusal> {
    Ok(ControlReply::Placed { owner, epoch, created })
}

#[test]
fn new_topic_goes_to_its_requester_or_a_less_loaded_node() {
    let mut test = TestState::default();
    assert_eq!(test.place("early", 1), Err(ControlRefusal::NoNodes));
    for node in [1, 2] {
        test.enlist(node, 1_000);
    }
    assert_eq!(test.place("t", 1), placed(1, 7, true));
    assert_eq!(test.place("t", 2), placed(1, 7, false), "a later request returns the owner");
    for n in 0..40 {
        assert!(test.place(&format!("more.{n}"), 1).is_ok());
    }
    let topics_of = |node| (0..40).filter(|n| test.owner(&format!("more.{n}")).unwrap().0 == node).count();
    assert!(topics_of(2) >= 15 && topics_of(1) >= 15, "{} and {}", topics_of(1), topics_of(2));
    assert_eq!(
        test.place("requested by another node", 9),
        placed(2, 7, true),
        "a node that is not a member owns nothing"
    );
}

#[test]
fn volatile_topic_moves_when_the_lease_of_its_owner_has_ended() {
    let mut test = TestState::default();
    test.enlist(1, 1_000);
    test.enlist(2, 5_000);
    assert_eq!(test.place("t", 1), placed(1, 7, true));
    test.advance(999);
    assert_eq!(test.place("t", 2), placed(1, 7, false));
    test.advance(1_000);
    assert_eq!(test.place("t", 2), placed(2, 8, false));
    test.enlist(1, 1_000);
    assert_eq!(test.place("t", 1), placed(2, 8, false), "a returning node finds another owner");
}

#[test]
fn requester_that_holds_the_records_becomes_the_next_owner() {
    let mut test = TestState::default();
    test.enlist(1, 1_000);
    for node in [2, 3] {
        test.enlist(node, 9_000);
    }
    for n in 0..50 {
        assert!(test.place(&format!("load.{n}"), 3).is_ok());
    }
    assert_eq!(test.place("t", 1), placed(1, 7, true));
    test.advance(1_000);
    let request = OwnerRequest { holds: true, ..owner_request("t", "t", TopicKind::Volatile, 3) };
    assert_eq!(test.apply(ControlCommand::Place { request }), placed(3, 8, false));
}

#[test]
fn durable_topic_stays_with_its_absent_owner() {
    let mut test = TestState::default();
    test.enlist(1, 1_000);
    test.enlist(2, 5_000);
    let durable = owner_request("t", "t", TopicKind::Durable, 1);
    assert_eq!(test.apply(ControlCommand::Place { request: durable }), placed(1, 7, true));
    test.advance(1_000);
    assert!(!test.state.is_alive(1));
    assert_eq!(test.place("t", 2), placed(1, 7, false));
    let moved = ControlCommand::Move { topic: b"t", node: 2, epoch: 0 };
    assert_eq!(test.apply(moved), Err(ControlRefusal::Immovable { owner: 1 }));
}

#[test]
fn topic_moves_only_to_members_and_its_epoch_grows() {
    let mut test = TestState::default();
    for node in [1, 2] {
        test.enlist(node, 1_000);
    }
    assert!(test.place("t", 1).is_ok());
    let move_to = |node| ControlCommand::Move { topic: b"t", node, epoch: 3 };
    assert_eq!(test.apply(move_to(3)), Err(ControlRefusal::NoNode { node: 3 }));
    assert_eq!(test.apply(move_to(2)), placed(2, 8, false));
    assert_eq!(test.state.placement(b"t").unwrap().from, 1, "the node with the records is alive");
    assert_eq!(test.apply(move_to(2)), placed(2, 8, false));
    let later_epoch = ControlCommand::Move { topic: b"t", node: 2, epoch: 9 };
    assert_eq!(
        test.apply(later_epoch),
        placed(2, 9, false),
        "an owner without its records begins another epoch"
    );
    assert_eq!(test.state.placement(b"t").unwrap().from, 0, "there is no previous owner");
    assert_eq!(
        test.apply(ControlCommand::Move { topic: b"u", node: 1, epoch: 0 }),
        Err(ControlRefusal::NoTopic)
    );
}

#[test]
fn reused_topic_name_begins_a_higher_epoch() {
    let mut test = TestState::default();
    for node in [1, 2] {
        test.enlist(node, 1_000);
    }
    assert!(test.place("t", 1).is_ok());
    assert_eq!(test.apply(ControlCommand::Move { topic: b"t", node: 2, epoch: 50 }), placed(2, 50, false));
    assert!(test.apply(ControlCommand::Remove { topic: b"t" }).is_ok());
    assert_eq!(test.owner("t"), None);
    assert_eq!(test.place("t", 1), placed(1, 51, true), "although the requesting node's clock gives 7");
}

#[test]
fn topic_with_an_overlapping_pattern_gets_no_owner() {
    let mut test = TestState::default();
    test.enlist(1, 1_000);
    let mut place = |topic, pattern| {
        test.apply(ControlCommand::Place { request: owner_request(topic, pattern, TopicKind::Volatile, 1) })
            .is_ok()
    };
    assert!(place("a.b", "a.b"));
    assert!(!place("wide", "a.>") && !place("wide", "*.b") && !place("wide", ">"));
    assert!(place("wide", "b.*.c"));
    assert!(!place("b.x.c", "b.x.c") && place("b.x", "b.x") && place("b.x.c.d", "b.x.c.d"));
    assert!(!place("other", "a.b"), "under another name");
    assert!(place("named", "c.d") && !place("c.d", "c.d"));
}

#[test]
fn client_commands_cannot_write_the_keys_of_topics_and_nodes() {
    let mut test = TestState::default();
    for key in [&topic_key(b"t")[..], &node_key(1)] {
        let put = ControlCommand::Put { key, value: b"", lease: 0 };
        assert_eq!(test.apply(put), Err(ControlRefusal::Reserved));
        assert_eq!(test.apply(ControlCommand::Delete { key }), Err(ControlRefusal::Reserved));
    }
}

/// A simple model of topics and nodes that does without keys and leases.
#[derive(Debug, Default)]
struct Model {
    now_ms: u64,
    /// The end of each node's lease.
    nodes: BTreeMap<u64, u64>,
    topics: BTreeMap<u64, (u64, u32, bool)>,
    highest_epochs: BTreeMap<u64, u32>,
}

impl Model {
    fn is_alive(&self, node: u64) -> bool {
        self.nodes.get(&node).is_some_and(|end_ms| *end_ms > self.now_ms)
    }

    /// Checks the owner of `topic`: either the owner is the same as before, or the previous owner is dead and the new
    /// one is alive.
    fn check(&mut self, topic: u64, owner: u64, epoch: u32, created: bool) {
        match self.topics.get(&topic).copied() {
            Some((before, epoch_before, durable)) if durable || self.is_alive(before) => {
                assert_eq!((owner, epoch, created), (before, epoch_before, false));
            }
            Some((_, epoch_before, _)) => assert!(self.is_alive(owner) && epoch > epoch_before && !created),
            None => assert!(created),
        }
        let highest = self.highest_epochs.entry(topic).or_default();
        assert!(epoch >= *highest, "an epoch is never used for two owners");
        *highest = epoch;
    }
}

proptest! {
    #[test]
    fn every_topic_has_one_owner_and_epochs_only_grow(
        steps in prop::collection::vec((0..9_u8, 1..5_u64, 0..6_u64, 0..400_u64), 1..200),
    ) {
        let mut test = TestState::default();
        let mut model = Model::default();
        for (step, node, topic, wait_ms) in steps {
            let name = format!("t{topic}");
            match step {
                0 | 1 => {
                    test.enlist(node, 500);
                    let end_ms = model.now_ms + 500;
                    model.nodes.insert(node, end_ms);
                }
                2 => {
                    model.now_ms += wait_ms;
                    test.advance(model.now_ms);
                }
                3..6 => {
                    let durable = topic == 0;
                    let kind = if durable { TopicKind::Durable } else { TopicKind::Volatile };
                    let request = OwnerRequest { holds: step == 5, ..owner_request(&name, &name, kind, node) };
                    match test.apply(ControlCommand::Place { request }) {
                        Ok(ControlReply::Placed { owner, epoch, created }) => {
                            model.check(topic, owner, epoch, created);
                            model.topics.insert(topic, (owner, epoch, durable));
                        }
                        refused => {
                            prop_assert_eq!(refused, Err(ControlRefusal::NoNodes));
                            prop_assert!((1..5).all(|node| !model.is_alive(node)));
                        }
                    }
                }
                6 | 7 => {
                    let expected = model.topics.get(&topic).copied();
                    // Step 6 requests a higher epoch. Even if the owner stays, a volatile topic then begins this epoch.
                    let requested_epoch =
                        expected.map_or(0, |(_, epoch, _)| if step == 6 { epoch + 2 } else { 0 });
                    let outcome =
                        test.apply(ControlCommand::Move { topic: name.as_bytes(), node, epoch: requested_epoch });
                    match (expected, outcome) {
                        (None, outcome) => prop_assert_eq!(outcome, Err(ControlRefusal::NoTopic)),
                        (Some((owner, epoch, durable)), outcome) if owner == node => {
                            let next = if durable { epoch } else { epoch.max(requested_epoch) };
                            prop_assert_eq!(outcome, placed(owner, next, false));
                            model.topics.insert(topic, (owner, next, durable));
                            let highest = model.highest_epochs.entry(topic).or_default();
                            *highest = (*highest).max(next);
                        }
                        (Some((owner, _, true)), outcome) => {
                            prop_assert_eq!(outcome, Err(ControlRefusal::Immovable { owner }));
                        }
                        (Some(_), outcome) if !model.is_alive(node) => {
                            prop_assert_eq!(outcome, Err(ControlRefusal::NoNode { node }));
                        }
                        (Some((_, epoch, _)), outcome) => {
                            let next = requested_epoch.max(epoch + 1);
                            prop_assert_eq!(outcome, placed(node, next, false));
                            model.topics.insert(topic, (node, next, false));
                            model.highest_epochs.insert(topic, next);
                        }
                    }
                }
                _ => {
                    let existed = model.topics.remove(&topic).is_some();
                    prop_assert_eq!(test.apply(ControlCommand::Remove { topic: name.as_bytes() }).is_ok(), existed);
                    if existed {
                        *model.highest_epochs.entry(topic).or_default() += 1;
                    }
                }
            }
            for topic in 0..6 {
                let expected = model.topics.get(&topic).map(|(owner, epoch, _)| (*owner, *epoch));
                prop_assert_eq!(test.owner(&format!("t{topic}")), expected);
            }
            for node in 1..5 {
                prop_assert_eq!(test.state.is_alive(node), model.is_alive(node));
            }
        }
        // A node that restores a snapshot must make the same decisions as the other nodes.
        let blocks = snapshots::blocks(&test.state);
        let mut restorer = StateRestorer::default();
        blocks.iter().for_each(|block| restorer.read_block(block).unwrap());
        let mut other = TestState { state: restorer.end().unwrap(), ..TestState::default() };
        for topic in 10..14 {
            prop_assert_eq!(other.place(&format!("t{topic}"), 1), test.place(&format!("t{topic}"), 1));
        }
        prop_assert_eq!(snapshots::blocks(&other.state), snapshots::blocks(&test.state));
    }
}
