//! Tests of the memory that a topic takes, and of topics that are created for a record and removed because they refuse
//! it.

use dunlin::topic::{Publish, PublishError, Subject, TopicConfig};
use dunlin::{Config, Node, NodeLimits, TopicError};

use crate::{all, from_earliest, node};

fn node_with_memory(memory_bytes_max: u64) -> Node {
    let limits = NodeLimits { memory_bytes_max, idle_bytes_max: 0, ..NodeLimits::default() };
    Node::start(Config { limits, ..Config::default() }).unwrap()
}

fn names(node: &Node) -> Vec<String> {
    node.topics(None, "", 1_000).topics.iter().map(|topic| topic.name().to_owned()).collect()
}

#[test]
fn topic_beyond_the_memory_budget_is_refused() {
    let node = node_with_memory(1 << 20);
    let mut created = 0;
    let refused = loop {
        match node.create_topic(&format!("many.{created}"), TopicConfig::default(), false) {
            Ok(_) => created += 1,
            Err(refused) => break refused,
        }
    };
    assert_eq!(refused, TopicError::Limit { limit: "memory_bytes_max", value: 1 << 20 });
    assert!((300..1_000).contains(&created), "{created}");
    assert!(node.budget().used() <= 1 << 20);
    for n in 0..created {
        node.delete_topic(&format!("many.{n}")).unwrap();
    }
    assert_eq!(node.budget().used(), 0, "deleting topics frees their memory");
}

#[test]
fn partitions_and_topic_names_count_towards_the_memory_budget() {
    let node = node_with_memory(1 << 20);
    node.create_topic("plain", TopicConfig::default(), false).unwrap();
    let plain = node.budget().used();
    node.create_topic(&"long".repeat(60), TopicConfig::default(), false).unwrap();
    let long = node.budget().used() - plain;
    assert!(long > plain + 2 * 240, "{plain} {long}");
    let many = TopicConfig { partitions: 1_000, ..TopicConfig::default() };
    node.create_topic("many", many.clone(), false).unwrap();
    assert!(node.budget().used() > 400_000);
    node.create_topic("more", many.clone(), false).unwrap();
    let refused = node.create_topic("too.many", many, false).err();
    assert_eq!(refused, Some(TopicError::Limit { limit: "memory_bytes_max", value: 1 << 20 }));
}

#[test]
fn refused_first_record_leaves_no_topic_behind() {
    let node = node_with_memory(1 << 20);
    let subject = Subject::parse("new.one").unwrap();
    let too_large = node.owning_topic_for(subject, 9 << 20).err();
    assert!(
        matches!(too_large, Some(TopicError::Record(error)) if matches!(*error, PublishError::RecordTooLarge { .. }))
    );
    let no_room = node.owning_topic_for(subject, 2 << 20).err();
    assert!(
        matches!(no_room, Some(TopicError::Record(error)) if matches!(*error, PublishError::BudgetSpent { .. }))
    );
    let owner = node.owning_topic_for(subject, 10).unwrap();
    assert_eq!(names(&node), ["new.one"]);
    // Drop the topic without publishing. A caller that refuses the record itself does the same.
    drop(owner);
    assert_eq!(names(&node), [""; 0]);
    assert_eq!(node.budget().used(), 0);
}

#[test]
fn auto_created_topic_stays_while_it_is_used_or_has_records() {
    let node = node();
    let owner = node.owning_topic_for(Subject::parse("written").unwrap(), 1).unwrap();
    owner.publisher("written").publish("1").unwrap();
    drop(owner);
    let owner = node.owning_topic_for(Subject::parse("read").unwrap(), 1).unwrap();
    let mut subscriber = node.subscribe("read", &from_earliest()).unwrap();
    drop(owner);
    let owner = node.owning_topic_for(Subject::parse("open").unwrap(), 1).unwrap();
    let publisher = node.publisher("open").unwrap();
    drop(owner);
    assert_eq!(names(&node), ["open", "read", "written"]);
    assert_eq!(all(&mut node.subscribe("written", &from_earliest()).unwrap()), ["written=1"]);
    node.publisher("read").unwrap().publish("2").unwrap();
    assert_eq!(all(&mut subscriber), ["read=2"]);
    drop(publisher);
}

#[test]
fn concurrent_topic_creation_and_deletion_lose_no_record() {
    let node = node();
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let node = node.clone();
            std::thread::spawn(move || {
                let mut accepted = 0;
                for round in 0..2_000 {
                    let owner = node.owning_topic_for(Subject::parse("shared").unwrap(), 1).unwrap();
                    // Publishing fails if another thread has just removed the unused topic.
                    if round % 4 == 0 && owner.publisher("shared").publish("x").is_ok() {
                        accepted += 1;
                    }
                }
                accepted
            })
        })
        .collect();
    let accepted: usize = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
    assert_eq!(all(&mut node.subscribe("shared", &from_earliest()).unwrap()).len(), accepted);
}
