//! Runs a node inside this program. One thread publishes records, and another thread subscribes to them.

use dunlin::{Config, Node};
use dunlin_topic::{Event, Publish, Start, Subscribe, SubscribeOptions};

fn main() -> anyhow::Result<()> {
    let node = Node::start(Config::default())?;
    let options = SubscribeOptions { start: Start::Earliest, ..Default::default() };
    let mut ticks = node.subscribe("ticks", &options)?;

    let mut publisher = node.publisher("ticks")?;
    let thread = std::thread::spawn(move || -> anyhow::Result<()> {
        for n in 1..=3 {
            publisher.publish(format!("tick {n}").as_str())?;
        }
        Ok(())
    });

    for _ in 0..3 {
        match ticks.next()? {
            Event::Record(r) => println!("{} {}", r.position, String::from_utf8_lossy(r.payload())),
            Event::Notice(notice) => println!("{notice:?}"),
        }
    }
    thread.join().expect("the publisher does not panic")
}
