//! A publisher that numbers its records can safely send a record a second time: the topic's owner recognizes the
//! repeated record and does not append it again.

use dunlin::{Config, Node};
use dunlin_topic::{ProducerMark, Publish, PublishError};

fn main() -> anyhow::Result<()> {
    let node = Node::start(Config::default())?;
    let mark = ProducerMark { producer: 7, producer_epoch: 1, producer_seq: 1 };

    let first = node.publisher("payments")?.with_producer(mark).publish("10 EUR")?;
    let retry = node.publisher("payments")?.with_producer(mark).publish("10 EUR")?;
    println!("first at {}, retry at {}, duplicate: {}", first.position, retry.position, retry.duplicate);
    assert!(retry.duplicate && retry.position == first.position);

    // With `publish_expecting(1, …)`, the owner accepts a record only if the log's last sequence number is 1. The first
    // of these two records makes this number 2, so the owner refuses the second record.
    let mut publisher = node.publisher("payments")?;
    publisher.publish_expecting(1, "20 EUR")?;
    let refused = publisher.publish_expecting(1, "30 EUR");
    assert_eq!(refused, Err(PublishError::SeqMoved { expected: 1, last_seq: 2 }));
    println!("refused: {}", refused.unwrap_err());
    Ok(())
}
