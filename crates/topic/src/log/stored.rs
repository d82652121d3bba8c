//! How far the records of a durable log are stored on disk, and which publishers wait for this. A record is first
//! staged (handed to the store), then written (handed to the operating system), then synced (safely on disk).
//!
//! Invariants:
//! - `synced` ≤ `written` ≤ the last sequence number. Subscribers receive no record after `synced`, because records are
//!   committed only when the store reports that they are synced.
//! - A segment that has a record after `synced` is not dropped.
//! - After a failure, no records are staged, and `written` and `synced` do not change.
//!
//! Limit: a log appends only as many bytes as the store has granted. If a publisher needs more, it waits, or is refused
//! if the disk is full.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use crate::event::Position;
use crate::log::ack_waiters::AckWaiters;
use crate::log::staged::{StagedBatch, StagedProducer, StagedRecords};
use crate::log::{AppendOptions, Log, LogContents};
use crate::publish::{AckLevel, PublishError, Receipt};
use crate::segment::{Commit, SegmentWriter};
use crate::store::{EpochStart, RecoveredLog, Store};
use crate::wake::Waiter;

/// Bytes that the producer of an append takes on disk.
const MARK_BYTES: u64 = 40;

/// How far the records of a durable log are stored on disk.
#[derive(Debug)]
pub(crate) struct DiskProgress {
    pub(super) store: Arc<dyn Store>,
    /// The known epochs in ascending order; the last one is the present epoch. An epoch without retained records is
    /// forgotten.
    pub(super) epochs: VecDeque<EpochStart>,
    pub(super) oldest_seq: u64,
    /// The sequence number of the next record at the time when the log was opened.
    pub(super) opened_at: u64,
    pub(super) synced: u64,
    written: u64,
    staged: u64,
    /// The number of bytes that were appended since the log was opened.
    appended_bytes: u64,
    /// The number of bytes that were appended since the log was opened and are synced.
    synced_bytes: u64,
    /// The value up to which the store allows `appended_bytes` to grow.
    granted_bytes: u64,
    /// The number of bytes that the store granted when the log was opened. Other files may have taken this room since
    /// then. At its first append, the log therefore asks the store whether there still is room. 0 after this request,
    /// or after another grant.
    unchecked_bytes: u64,
    /// The reason why the disk has no room; `None` while the disk is not full.
    full: Option<Arc<str>>,
    /// The size of an append that was refused because it needs more room than the disk has granted, although all
    /// earlier records are stored. 0 if there is no such append.
    requested_bytes: u64,
    /// Whether the log has already notified the store that `requested_bytes` are needed.
    room_requested: bool,
    failed: Option<Arc<str>>,
    is_notified: bool,
    /// Sealed segments that are not fully synced, oldest first.
    sealed: VecDeque<SegmentWriter>,
    /// The staged length of the segment that is only partly staged.
    staged_to: Commit,
    marks: Vec<StagedProducer>,
    /// How many times the store has allowed deferred reads of subscribers to be repeated.
    pub(super) retries: u64,
    waiting: AckWaiters,
}

/// Whether an appended record has reached the acknowledgement level for which its publisher waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AckProgress {
    /// The record has reached the level.
    Reached,
    /// The record has not reached the level yet. The log notifies the waiter when another call may give a different
    /// result.
    Waiting,
    /// The record can no longer reach the level.
    Failed(PublishError),
    /// The record was forwarded, and the owner at another node has appended it. The value is the owner's receipt.
    ByOwner(Receipt),
}

/// Up to which record a durable log is stored, and how much disk space it uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StorageInfo {
    /// Sequence number of the last record that was handed to the operating system.
    pub written_seq: u64,
    /// Sequence number of the last record that is safely on disk and therefore visible to subscribers.
    pub synced_seq: u64,
    /// Number of bytes that are appended but not stored yet.
    pub unstored_bytes: u64,
    /// Number of bytes that the log takes on disk.
    pub bytes: u64,
    /// The epoch of the oldest retained record.
    pub oldest_epoch: u32,
    /// Whether the disk is full. Publishers are refused until there is room.
    pub full: bool,
    /// Whether the disk has failed. The log then accepts no more records.
    pub failed: bool,
}

impl DiskProgress {
    pub(super) fn new(recovered: &RecoveredLog, store: Arc<dyn Store>) -> DiskProgress {
        let last = recovered.next_seq - 1;
        DiskProgress {
            store,
            epochs: recovered.epochs.iter().copied().collect(),
            oldest_seq: recovered.oldest_seq,
            opened_at: recovered.next_seq,
            synced: last,
            written: last,
            staged: last,
            appended_bytes: 0,
            synced_bytes: 0,
            granted_bytes: 0,
            unchecked_bytes: recovered.granted_bytes,
            full: None,
            requested_bytes: 0,
            room_requested: false,
            failed: None,
            is_notified: false,
            sealed: VecDeque::new(),
            staged_to: Commit::default(),
            marks: Vec::new(),
            retries: 0,
            waiting: AckWaiters::default(),
        }
    }

    pub(super) fn info(&self) -> StorageInfo {
        StorageInfo {
            written_seq: self.written,
            synced_seq: self.synced,
            unstored_bytes: self.appended_bytes - self.synced_bytes,
            bytes: self.store.bytes(),
            oldest_epoch: self.oldest().epoch,
            full: self.full.is_some(),
            failed: self.failed.is_some(),
        }
    }

    pub(super) fn oldest(&self) -> Position {
        Position { epoch: self.epoch_of(self.oldest_seq), seq: self.oldest_seq }
    }

    /// The epoch of the record with this sequence number. For a record that is older than all known epochs, returns the
    /// oldest known epoch.
    pub(super) fn epoch_of(&self, seq: u64) -> u32 {
        let after = self.epochs.partition_point(|start| start.first_seq <= seq);
        self.epochs.get(after.saturating_sub(1)).map_or(0, |start| start.epoch)
    }

    /// The first sequence number of this epoch; `None` if the epoch is not known.
    pub(super) fn first_of(&self, epoch: u32) -> Option<u64> {
        self.epochs.iter().rev().find(|start| start.epoch == epoch).map(|start| start.first_seq)
    }

    /// Position of the first known record in the epochs after `epoch`.
    pub(super) fn first_after(&self, epoch: u32) -> Option<Position> {
        let start = self.epochs.iter().find(|start| start.epoch > epoch)?;
        Some(Position { epoch: start.epoch, seq: start.first_seq })
    }

    /// The last known sequence number of the past epoch to which `next` belongs, and the start of the next known epoch.
    pub(super) fn end_of(&self, next: Position) -> Option<(u64, EpochStart)> {
        let after = self.epochs.partition_point(|start| start.epoch <= next.epoch);
        let (before, begin) = (self.epochs.get(after.checked_sub(1)?)?, *self.epochs.get(after)?);
        let last = begin.first_seq - 1;
        // On disk, an epoch is known only by its first record. If the epoch of `next` is unknown, but an earlier and a
        // later epoch are known, the epoch of `next` had no records.
        (before.epoch == next.epoch || next.seq > last).then_some((last, begin))
    }

    /// Returns `last`, the last known sequence number in the epoch of `next`; `None` if the epoch may have had later
    /// records. `begin` is the start of the next epoch. If a subscriber has read beyond `last`, the files were replaced
    /// by older ones, and lack records.
    pub(super) fn known_through(next: Position, last: u64, begin: &EpochStart) -> Option<u64> {
        (!begin.after_loss && next.seq <= last + 1).then_some(last)
    }

    /// Whether this record is lost: a later epoch began at its sequence number or below. Sequence numbers continue
    /// across epochs.
    pub(super) fn lacks(&self, record: Position) -> bool {
        self.epochs.iter().any(|start| start.epoch > record.epoch && start.first_seq <= record.seq)
    }

    /// Start of the first known epoch after `epoch`. `None` if no later epoch is known, or if `epoch` lies before all
    /// known epochs.
    pub(super) fn after(&self, epoch: u32) -> Option<Position> {
        let at = self.epochs.iter().position(|start| start.epoch > epoch)?;
        let next = self.epochs.get(at)?;
        (at > 0).then_some(Position { epoch: next.epoch, seq: next.first_seq })
    }

    pub(super) fn admit(&mut self, append: &AppendOptions, bytes: u64) -> Result<(), PublishError> {
        if let Some(why) = &self.failed {
            return Err(PublishError::DiskFailed(why.to_string()));
        }
        let bytes = disk_bytes(append, bytes);
        if self.appended_bytes + bytes <= self.granted_bytes {
            return Ok(());
        }
        if let Some(why) = &self.full {
            return Err(PublishError::DiskFull(why.to_string()));
        }
        if self.unchecked_bytes > 0 {
            let granted_bytes = self.unchecked_bytes.min(self.store.free_room());
            self.grant(granted_bytes);
            if self.appended_bytes + bytes <= self.granted_bytes {
                return Ok(());
            }
        }
        let unstored_bytes = self.appended_bytes - self.synced_bytes;
        if unstored_bytes == 0 {
            self.requested_bytes = self.requested_bytes.max(bytes);
        }
        Err(PublishError::DiskBehind { unstored_bytes, waited: Duration::ZERO })
    }

    /// If a publisher waits for room that the log has not requested yet, marks the room as requested and returns the
    /// store. The caller must then notify the store.
    pub(super) fn request_room(&mut self) -> Option<Arc<dyn Store>> {
        let is_wanted = self.requested_bytes > 0 && self.full.is_none();
        (is_wanted && !std::mem::replace(&mut self.room_requested, true)).then(|| Arc::clone(&self.store))
    }

    /// Counts the bytes of an append, and remembers its producer. Returns whether the store must be notified.
    pub(super) fn record_append(
        &mut self,
        append: &AppendOptions,
        first_seq: u64,
        count: u64,
        bytes: u64,
    ) -> bool {
        self.appended_bytes += disk_bytes(append, bytes);
        if let Some(mark) = append.mark {
            self.record_producer(StagedProducer { mark, first_seq, count });
        }
        !std::mem::replace(&mut self.is_notified, true)
    }

    fn record_producer(&mut self, new: StagedProducer) {
        if let Some(last) = self.marks.last_mut()
            && (last.mark.producer, last.mark.producer_epoch) == (new.mark.producer, new.mark.producer_epoch)
            && last.mark.producer_seq + last.count == new.mark.producer_seq
            && last.first_seq + last.count == new.first_seq
        {
            last.count += new.count;
            return;
        }
        self.marks.push(new);
    }

    /// Seals a segment. If some of its records are not synced yet, keeps its writer until they are synced.
    pub(super) fn seal(&mut self, writer: SegmentWriter) {
        let written = writer.written();
        if writer.segment().first_seq + u64::from(written.count) > self.synced + 1 {
            self.sealed.push_back(writer);
        } else {
            writer.seal();
        }
    }

    /// Whether the segment that begins with record `first_seq` is completely stored.
    pub(super) fn is_fully_stored(&self, first_seq: u64) -> bool {
        self.sealed.front().is_none_or(|writer| first_seq < writer.segment().first_seq)
    }

    fn reached(&self, level: AckLevel) -> u64 {
        match level {
            AckLevel::Memory => u64::MAX,
            AckLevel::Written => self.written,
            _ => self.synced,
        }
    }

    /// Removes and returns the waiters whose records are stored, or can no longer be stored.
    fn take_reached(&mut self) -> Vec<(Arc<Waiter>, u32)> {
        if self.failed.is_some() {
            return self.waiting.take_reached(u64::MAX, u64::MAX);
        }
        self.waiting.take_reached(self.written, self.synced)
    }
}

impl LogContents {
    pub(super) fn stored(&self) -> Option<&DiskProgress> {
        self.rare.as_ref()?.stored.as_deref()
    }

    pub(super) fn stored_mut(&mut self) -> Option<&mut DiskProgress> {
        self.rare.as_mut()?.stored.as_deref_mut()
    }

    /// Sequence number of the first record that subscribers cannot receive yet.
    pub(super) fn visible_next(&self) -> u64 {
        self.stored().map_or(self.next_seq, |stored| stored.synced + 1)
    }

    /// Whether the store has allowed deferred reads to be repeated more than `retries` times. Always `true` for a log
    /// that is not durable.
    pub(super) fn has_retried(&self, retries: u64) -> bool {
        self.stored().is_none_or(|stored| stored.retries != retries)
    }

    /// Removes and returns all waiters that no longer have to wait for the disk.
    fn take_stored_waiters(&mut self) -> Vec<(Arc<Waiter>, u32)> {
        let mut woken = self.stored_mut().map(DiskProgress::take_reached).unwrap_or_default();
        if let Some(rare) = &mut self.rare {
            woken.extend(rare.registered.take_publishers().map(|waiter| (waiter, Waiter::ROOM)));
        }
        woken
    }
}

impl Log {
    /// Returns the records that were appended since the last call; `None` if there are none, or after a failure. The
    /// store has to write and sync these records, and must report the outcome before the next call.
    pub fn stage(&self) -> Option<StagedRecords> {
        let mut guard = self.lock();
        let state = &mut *guard;
        let (epoch, next_seq, last_append_ns) = (state.epoch, state.next_seq, state.last_append_ns);
        let stored = state.rare.as_mut()?.stored.as_deref_mut()?;
        stored.is_notified = false;
        if stored.failed.is_some() || stored.staged + 1 == next_seq {
            return None;
        }
        let mut batches = Vec::new();
        for writer in stored.sealed.iter().chain(&state.writer) {
            let written = writer.written();
            let first_seq = writer.segment().first_seq;
            if first_seq + u64::from(written.count) <= stored.staged + 1 {
                continue;
            }
            let from = if first_seq <= stored.staged { stored.staged_to } else { Commit::default() };
            batches.push(StagedBatch { pinned: writer.pin_written(), from, by_ref: writer.has_by_ref() });
            stored.staged_to = written;
        }
        stored.staged = next_seq - 1;
        let marks = std::mem::take(&mut stored.marks);
        let appended_bytes = stored.appended_bytes;
        Some(StagedRecords { epoch, batches, marks, last_append_ns, appended_bytes })
    }

    /// Reports that the staged records were handed to the operating system.
    pub fn mark_written(&self, staged: &StagedRecords) {
        let woken = {
            let mut state = self.lock();
            let Some(stored) = state.stored_mut() else { return };
            stored.written = stored.written.max(staged.last_seq());
            stored.take_reached()
        };
        woken.into_iter().for_each(|(waiter, token)| waiter.notify(token));
    }

    /// Reports that the staged records are safely on disk. They become visible, and publishers that wait for them are
    /// notified.
    ///
    /// From now on, at most `granted_bytes` bytes may be appended but not synced. Bytes that are appended but not
    /// synced already count towards this limit.
    pub fn mark_synced(&self, staged: StagedRecords, granted_bytes: u64) {
        let mut ended = Vec::new();
        let (woken, armed) = {
            let mut guard = self.lock();
            let state = &mut *guard;
            let Some(stored) = state.rare.as_mut().and_then(|rare| rare.stored.as_deref_mut()) else {
                return;
            };
            if stored.failed.is_some() {
                return;
            }
            stored.synced_bytes = staged.appended_bytes;
            for batch in &staged.batches {
                commit(&mut stored.sealed, state.writer.as_ref(), batch);
            }
            stored.synced = stored.synced.max(staged.last_seq());
            stored.written = stored.written.max(stored.synced);
            stored.grant(granted_bytes);
            let woken = state.take_stored_waiters();
            if state.has_ended() {
                ended = state.take_all_sleepers();
            }
            (woken, state.sleepers.take_first())
        };
        drop(staged);
        ended.into_iter().for_each(|armed| armed.waiter.notify(armed.token));
        woken.into_iter().for_each(|(waiter, token)| waiter.notify(token));
        if let Some(armed) = armed {
            self.wake(armed);
        }
    }

    /// Sets how many bytes may be appended but not synced. Bytes that are already appended but not synced count towards
    /// `bytes`. If the disk is full, `full` is the reason.
    pub fn grant(&self, bytes: u64, full: Option<&str>) {
        let woken = {
            let mut state = self.lock();
            let Some(stored) = state.stored_mut() else { return };
            stored.grant(bytes);
            stored.full = full.map(Arc::from);
            stored.room_requested = false;
            if full.is_none() {
                stored.requested_bytes = 0;
            }
            state.take_stored_waiters()
        };
        woken.into_iter().for_each(|(waiter, token)| waiter.notify(token));
    }

    /// Size of an append that was refused although all earlier records are stored; 0 if there is none. The store must
    /// grant at least this many bytes, or report that the disk is full.
    pub fn requested_bytes(&self) -> u64 {
        self.lock().stored().map_or(0, |stored| stored.requested_bytes)
    }

    /// Reports that the disk has failed. All publishers are refused, including those that wait. Stored records stay
    /// readable, and records that are not stored never become visible.
    pub fn fail(&self, why: &str) {
        let ended;
        let woken = {
            let mut state = self.lock();
            state.seal();
            let Some(stored) = state.stored_mut() else { return };
            stored.failed.get_or_insert_with(|| why.into());
            stored.sealed.drain(..).for_each(SegmentWriter::seal_committed);
            ended = if state.has_ended() { state.take_all_sleepers() } else { Vec::new() };
            state.take_stored_waiters()
        };
        ended.into_iter().for_each(|armed| armed.waiter.notify(armed.token));
        woken.into_iter().for_each(|(waiter, token)| waiter.notify(token));
    }

    /// Lets subscribers repeat reads for which the store returned [`DiskContent::Later`](crate::DiskContent::Later).
    /// The store must be ready for these reads before it calls this method.
    pub fn retry_reads(&self) {
        let armed = {
            let mut state = self.lock();
            let Some(stored) = state.stored_mut() else { return };
            stored.retries += 1;
            state.sleepers.take_first()
        };
        if let Some(armed) = armed {
            self.wake(armed);
        }
    }

    /// Whether [`retry_reads`](Log::retry_reads) was called more than `retries` times.
    pub(crate) fn has_retried(&self, retries: u64) -> bool {
        self.lock().has_retried(retries)
    }

    /// Reports that the disk has dropped, or will drop, all records before `oldest_seq`.
    pub fn drop_stored_before(&self, oldest_seq: u64) {
        let mut guard = self.lock();
        let state = &mut *guard;
        let Some(stored) = state.rare.as_mut().and_then(|rare| rare.stored.as_deref_mut()) else { return };
        if oldest_seq <= stored.oldest_seq {
            return;
        }
        stored.oldest_seq = oldest_seq.min(stored.synced + 1);
        while stored.epochs.len() > 1 && stored.epochs[1].first_seq <= stored.oldest_seq {
            stored.epochs.pop_front();
        }
        state.has_dropped = true;
        self.update_warn_position(state);
    }

    /// Returns, without blocking, whether the record at `at` has reached `level`. This process has appended the record,
    /// or forwarded it to the owner. After [`AckProgress::Waiting`], the log notifies `waiter` with `token` when the
    /// result may have changed.
    pub fn poll_ack(&self, at: Position, level: AckLevel, waiter: &Arc<Waiter>, token: u32) -> AckProgress {
        if level == AckLevel::ByOwner
            && let Some(upstream) = self.upstream.get()
        {
            return upstream.outcome(at.seq, waiter, token);
        }
        let mut state = self.lock();
        let epoch = state.epoch;
        let Some(stored) = state.stored_mut() else { return AckProgress::Reached };
        if at.epoch != epoch || at.seq <= stored.reached(level) {
            return AckProgress::Reached;
        }
        if let Some(why) = &stored.failed {
            return AckProgress::Failed(PublishError::DiskFailed(why.to_string()));
        }
        stored.waiting.add(waiter, token, level, at.seq);
        AckProgress::Waiting
    }

    /// Stores all staged records on the caller's thread, if the store supports this. Intended for a caller that waits
    /// for its own records.
    pub(crate) fn store_staged(&self) {
        let store = self.lock().stored().map(|stored| Arc::clone(&stored.store));
        if let Some(store) = store {
            store.store_staged();
        }
    }

    /// Removes a waiter that was passed to [`poll_ack`](Log::poll_ack).
    pub fn remove_ack_waiter(&self, waiter: &Arc<Waiter>) {
        if let Some(upstream) = self.upstream.get() {
            upstream.leave(waiter);
        }
        if let Some(stored) = self.lock().stored_mut() {
            stored.waiting.remove(waiter);
        }
    }
}

impl DiskProgress {
    fn grant(&mut self, bytes: u64) {
        self.granted_bytes = self.synced_bytes + bytes;
        self.unchecked_bytes = 0;
    }
}

/// Maximum number of bytes that an append of `bytes` bytes takes on disk.
fn disk_bytes(append: &AppendOptions, bytes: u64) -> u64 {
    if append.mark.is_some() { bytes + MARK_BYTES } else { bytes }
}

fn commit(sealed: &mut VecDeque<SegmentWriter>, writer: Option<&SegmentWriter>, batch: &StagedBatch) {
    let length = batch.pinned.length();
    let first_seq = batch.pinned.first_seq();
    let Some(front) = sealed.front().filter(|front| front.segment().first_seq == first_seq) else {
        if let Some(writer) = writer.filter(|writer| writer.segment().first_seq == first_seq) {
            writer.commit_to(length);
        }
        return;
    };
    if front.written().count > length.count {
        front.commit_to(length);
    } else if let Some(stored) = sealed.pop_front() {
        stored.seal();
    }
}
