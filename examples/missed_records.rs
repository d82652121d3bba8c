//! A subscriber that is too slow receives a gap with the exact range of the missed records.

use dunlin::{Config, Node};
use dunlin_topic::{Event, Notice, Publish, Retention, Start, Subscribe, SubscribeOptions, TopicConfig};

fn main() -> anyhow::Result<()> {
    let node = Node::start(Config::default())?;
    let retention = Retention { bytes: 64 << 10, ..Default::default() };
    node.create_topic("ticks", TopicConfig { retention, ..Default::default() }, false)?;
    let options = SubscribeOptions { start: Start::Earliest, ..Default::default() };
    let mut slow = node.subscribe("ticks", &options)?;

    let mut publisher = node.publisher("ticks")?;
    for n in 0..10_000u64 {
        publisher.send(&n.to_le_bytes())?;
    }

    let (mut received, mut missed) = (0, 0);
    while received + missed < 10_000 {
        match slow.next()? {
            Event::Record(_) => received += 1,
            Event::Notice(Notice::Lagging(l)) => println!("behind {} of {} retained", l.behind, l.retained),
            Event::Notice(Notice::Gap(gap)) => {
                println!("missed {} … {} ({} records)", gap.first, gap.last, gap.records());
                missed += gap.records();
            }
            Event::Notice(other) => println!("{other:?}"),
        }
    }
    println!("{received} seen + {missed} missed = 10000 published");
    Ok(())
}
