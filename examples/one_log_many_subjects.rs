//! A topic that owns a pattern has one log, in which the records of all its subjects have one order. For a subscription
//! to only some of the subjects, the node skips the records of the other subjects.

use dunlin::{Config, Node};
use dunlin_topic::{Event, Publish, Start, Subscribe, SubscribeOptions, TopicConfig};

fn main() -> anyhow::Result<()> {
    let node = Node::start(Config::default())?;
    node.create_topic(
        "orders",
        TopicConfig { pattern: Some("orders.>".into()), ..Default::default() },
        false,
    )?;
    let options = SubscribeOptions { start: Start::Earliest, ..Default::default() };
    let mut all = node.subscribe("orders.>", &options)?;
    let mut european = node.subscribe("orders.eu.*", &options)?;

    for (subject, order) in [("orders.eu.1", "a"), ("orders.us.2", "b"), ("orders.eu.3", "c")] {
        node.publisher(subject)?.publish(order)?;
    }
    for (name, subscriber) in [("all", &mut all), ("european", &mut european)] {
        subscriber.drain(10, |event| {
            if let Event::Record(record) = event {
                println!("{name}: {} {}", record.seq(), record.subject());
            }
        })?;
    }
    Ok(())
}
