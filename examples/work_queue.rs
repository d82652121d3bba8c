//! Two workers share the jobs of a topic. One worker dies before it has finished its job. The other worker then does
//! this job too.

use std::time::Duration;

use dunlin::{Config, Node, WorkEvent, WorkMember, WorkOptions};
use dunlin_topic::{Event, Publish, Start, Subscribe, SubscribeOptions};

fn main() -> anyhow::Result<()> {
    let node = Node::start(Config::default())?;
    let mut jobs = node.publisher("jobs")?;
    for job in ["resize a.png", "resize b.png", "no such job", "resize c.png"] {
        jobs.publish(job)?;
    }

    let options = WorkOptions { start: Start::Earliest, attempts_max: 2, ..WorkOptions::default() };
    let mut careless = node.join_work("jobs", "resizers", &options)?;
    careless.claim(1)?;
    drop(careless);

    let mut worker = node.join_work("jobs", "resizers", &options)?;
    while let Some(event) = worker.claim_one(Some(Duration::from_millis(100)))? {
        handle(&mut worker, &event)?;
    }

    let from_earliest = SubscribeOptions { start: Start::Earliest, ..SubscribeOptions::default() };
    let mut dead = node.subscribe("dead.jobs", &from_earliest)?;
    while let Some(Event::Record(record)) = dead.try_next()? {
        println!("dead: {}", String::from_utf8_lossy(record.payload()));
    }
    Ok(())
}

fn handle(worker: &mut WorkMember, event: &WorkEvent) -> anyhow::Result<()> {
    let WorkEvent::ClaimedRecord(claimed) = event else {
        println!("notice: {event:?}");
        return Ok(());
    };
    let record = claimed.record();
    let job = String::from_utf8_lossy(record.payload());
    if job.starts_with("resize") {
        println!("done: {job}, attempt {}", claimed.attempt);
        worker.ack(claimed.token)?;
    } else {
        println!("cannot: {job}, attempt {}", claimed.attempt);
        worker.nack(claimed.token, Duration::from_millis(10))?;
    }
    Ok(())
}
