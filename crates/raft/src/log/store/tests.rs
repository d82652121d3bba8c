use std::path::Path;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use bytes::Bytes;
use dunlin_journal::FakeDisk;
use dunlin_wait::PATIENCE;
use openraft::EntryPayload;

use super::*;
use crate::limits::RaftLimits;
use crate::log;
use crate::log::SpaceLevel;
use crate::type_config::Proposal;

fn id(index: u64) -> LogId {
    LogId::new(openraft::vote::leader_id_adv::LeaderId { term: 1, node_id: 1 }, index)
}

fn open(disk: &Arc<FakeDisk>, reserve_bytes: u64) -> RaftLog {
    let limits = RaftLimits { reserve_bytes, ..RaftLimits::default() };
    log::open(disk.clone(), Path::new("/raft"), &limits).unwrap()
}

/// Appends an entry of 4 KiB. Returns a channel that receives the outcome of the write.
fn append(log: &RaftLog, index: u64) -> Receiver<io::Result<()>> {
    append_bytes(log, index, 4 << 10)
}

/// Appends an entry of `bytes` bytes. Returns a channel that receives the outcome of the write.
fn append_bytes(log: &RaftLog, index: u64, bytes: usize) -> Receiver<io::Result<()>> {
    let (sender, receiver) = channel();
    let payload = EntryPayload::Normal(Proposal(Bytes::from(vec![7; bytes])));
    let entry = LogEntry { log_id: id(index), payload };
    let mut log_index = log.log_index();
    let at = log_index.next;
    let on_written = move |written| drop(sender.send(written));
    log.write(&mut log_index, vec![LogOperation::Append(entry.clone())], on_written);
    log_index.push(entry, at);
    receiver
}

/// Appends entries until one of them waits for room. Returns the index of this entry, and the channel on which the
/// outcome of this entry's write arrives.
fn fill(log: &RaftLog) -> (u64, Receiver<io::Result<()>>) {
    for index in 1..10_000 {
        let written = append(log, index);
        loop {
            if let Ok(written) = written.recv_timeout(Duration::from_millis(10)) {
                written.unwrap();
                break;
            }
            if log.room().level() == SpaceLevel::Out {
                return (index, written);
            }
        }
    }
    panic!("the disk never fills up");
}

#[tokio::test]
async fn raft_log_can_be_purged_while_entries_wait_for_room() {
    let disk = Arc::new(FakeDisk::new(1));
    let mut log = open(&disk, 64 << 10);
    let vote = Vote::new(3, 2);
    log.save_vote(&vote).await.unwrap();
    disk.set_capacity(disk.used() + (300 << 10));
    let (waiting_index, written) = fill(&log);
    let next_outcome = append(&log, waiting_index + 1);
    assert!(waiting_index > 50, "{waiting_index}");
    log.purge(id(waiting_index - 1)).await.unwrap();
    written.recv_timeout(PATIENCE).expect("the entry was written").unwrap();
    next_outcome.recv_timeout(PATIENCE).expect("the entry was written").unwrap();
    drop(log);
    disk.crash();
    let mut again = open(&disk, 64 << 10);
    let state = again.get_log_state().await.unwrap();
    assert_eq!(
        (state.last_purged_log_id, state.last_log_id),
        (Some(id(waiting_index - 1)), Some(id(waiting_index + 1)))
    );
    assert_eq!(again.read_vote().await.unwrap(), Some(vote));
    assert_eq!(again.log_index().entries.len(), 2);
}

#[tokio::test]
async fn purge_of_unwritten_log_entries_waits_for_their_write() {
    let disk = Arc::new(FakeDisk::new(1));
    let mut log = open(&disk, 0);
    disk.set_capacity(disk.used() + (300 << 10));
    let (waiting_index, written) = fill(&log);
    // After a snapshot from another node, openraft may purge an entry whose write is still waiting.
    log.purge(id(waiting_index)).await.unwrap();
    assert!(written.recv_timeout(Duration::from_millis(300)).is_err(), "there is no room");
    disk.set_capacity(u64::MAX);
    written.recv_timeout(PATIENCE).expect("the entry was written").unwrap();
    drop(log);
    disk.crash();
    let state = open(&disk, 0).get_log_state().await.unwrap();
    assert_eq!(
        (state.last_purged_log_id, state.last_log_id),
        (Some(id(waiting_index)), Some(id(waiting_index)))
    );
}

#[tokio::test]
async fn purge_makes_room_for_a_large_write_queued_before_the_purge() {
    let disk = Arc::new(FakeDisk::new(1));
    let mut log = open(&disk, 0);
    disk.set_capacity(disk.used() + (300 << 10));
    let (waiting_index, written) = fill(&log);
    let large = append_bytes(&log, waiting_index + 1, 100 << 10);
    // The purge must wait for the first entry. The writer then receives the purge together with the large entry.
    log.purge(id(waiting_index)).await.unwrap();
    assert!(written.recv_timeout(Duration::from_millis(300)).is_err(), "there is no room");
    disk.set_capacity(disk.used() + (40 << 10));
    written.recv_timeout(PATIENCE).expect("the entry was written").unwrap();
    large.recv_timeout(PATIENCE).expect("the purge made room for the large entry").unwrap();
}

#[test]
fn log_reports_low_disk_space_as_soon_as_it_is_opened() {
    let disk = Arc::new(FakeDisk::new(1));
    disk.set_capacity(100 << 10);
    assert_eq!(open(&disk, 64 << 10).room().level(), SpaceLevel::Low);
    disk.set_capacity(200 << 10);
    assert_eq!(open(&disk, 64 << 10).room().level(), SpaceLevel::Ample);
}

#[test]
fn idle_log_stores_the_number_of_its_last_synced_record() {
    let disk = Arc::new(FakeDisk::new(1));
    let log = open(&disk, 0);
    for index in 1..=3 {
        append(&log, index).recv_timeout(PATIENCE).unwrap().unwrap();
    }
    // The record's number is 8 bytes after the start of the file's second sector.
    let mark = || disk.content(Path::new("/raft.synced")).map(|bytes| bytes[520]);
    dunlin_wait::until("the mark is written", || mark() == Some(3));
    drop(log);
}
