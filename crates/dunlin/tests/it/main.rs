//! Tests of a node through the interface that a program which embeds the node uses.

mod attached_workers;
mod cluster;
mod control;
mod crashed_states;
mod durable;
mod groups;
mod inbox_order;
mod lost;
mod memory;
mod publishing_tasks;
mod requests;
mod restored;
mod shards;
mod simulation;
mod space;
mod storing;
mod survey;
mod task_events;
mod topic_files;
mod topics;
mod wildcards;

use dunlin::topic::{Event, Notice, Start, Subscribe, SubscribeOptions, Subscriber};
use dunlin::{Config, Node};

fn node() -> Node {
    Node::start(Config::default()).unwrap()
}

fn from_earliest() -> SubscribeOptions {
    SubscribeOptions { start: Start::Earliest, ..Default::default() }
}

/// All events that are available now, as texts: `subject=payload` for a record, and a description for a notice.
fn all(subscriber: &mut Subscriber) -> Vec<String> {
    let mut seen = Vec::new();
    while let Ok(Some(event)) = subscriber.try_next() {
        seen.push(match event {
            Event::Record(record) => {
                format!("{}={}", record.subject(), String::from_utf8_lossy(record.payload()))
            }
            Event::Notice(Notice::Deleted { log, .. }) => format!("{} deleted", log.topic),
            Event::Notice(notice) => format!("{notice:?}"),
        });
    }
    seen
}
