//! Tests of groups whose topic is owned by the same node.

mod share;
mod skipping;
mod waiting;
mod work;

use std::time::Duration;

use dunlin::topic::{Draft, Notice, Payload, Publish, RecordMeta, Start};
use dunlin::{ClaimedRecord, DeadLetterTarget, Node, ShareOptions, WorkEvent, WorkMember, WorkOptions};

const SOON: Option<Duration> = Some(dunlin_wait::PATIENCE);

fn share_from_start() -> ShareOptions {
    ShareOptions { start: Start::Earliest, ..Default::default() }
}

fn work_from_start() -> WorkOptions {
    WorkOptions { start: Start::Earliest, ..Default::default() }
}

fn publish(node: &Node, topic: &str, payloads: impl IntoIterator<Item = u64>) {
    let mut publisher = node.publisher(topic).unwrap();
    for payload in payloads {
        publisher.publish(&payload.to_le_bytes()).unwrap();
    }
}

fn keyed<'a>(key: &'a [u8], payload: &'a [u8]) -> Draft<'a> {
    Draft { meta: RecordMeta { key: Some(key), ..Default::default() }, payload: Payload::Copied(payload) }
}

/// Claims a record if one is available now.
fn claim(member: &mut WorkMember) -> Option<ClaimedRecord> {
    member.claim(1).unwrap().into_iter().find_map(|event| match event {
        WorkEvent::ClaimedRecord(claimed) => Some(claimed),
        WorkEvent::Notice(_) => None,
    })
}

/// Waits until the member can claim a record, and returns the claimed record.
fn await_claim(member: &mut WorkMember) -> ClaimedRecord {
    match member.claim_one(SOON).unwrap() {
        Some(WorkEvent::ClaimedRecord(claimed)) => claimed,
        other => panic!("{other:?} instead of a claim"),
    }
}

fn number(payload: &[u8]) -> u64 {
    u64::from_le_bytes(payload.try_into().unwrap())
}

fn gap_of(event: WorkEvent) -> Option<(u64, u64)> {
    match event {
        WorkEvent::Notice(Notice::Gap(gap)) => Some((gap.first, gap.last)),
        _ => None,
    }
}

fn without_dead_letters() -> WorkOptions {
    WorkOptions { dead_letters: DeadLetterTarget::Drop, ..work_from_start() }
}
