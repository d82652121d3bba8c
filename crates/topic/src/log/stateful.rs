//! The state that a log keeps. It changes inside the log's lock; snapshots of it are written outside of the lock.
//!
//! Invariants:
//! - The records of an append are written to the segment, but not committed, before the reducer checks them. If the
//!   reducer refuses one of them, all records of the append are removed.
//! - When a snapshot is delivered, the log still retains the records after the snapshot's position.
//! - Inside the lock, the state is only frozen, which takes the same time whatever the state's size. The snapshot's
//!   bytes are written outside of the lock, once for all subscribers that request a snapshot while this one is fresh.
//!
//! Limits: memory by which an append enlarges the state is charged to the budget before the next append. Snapshots are
//! charged even if the budget is exhausted, so that subscribers can recover; the next append is refused instead. A log
//! keeps one fresh snapshot. Older snapshots stay in memory only while subscribers read them.

use std::ops::Range;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use bytes::Bytes;
use dunlin_frame::{FrameLayout, RecordMeta};

use crate::event::{Checksum, Position, Snapshot};
use crate::log::{AppendOptions, Log, LogContents};
use crate::memory::{MemoryBudget, MemoryCharge};
use crate::publish::PublishError;
use crate::reducer::{FrozenState, Reducer, ReducerError};
use crate::segment::{Commit, Segment};

/// A follower with fewer unread bytes than this receives the records, even if the state is smaller.
const BACKLOG_BYTES_MIN: u64 = 64 << 10;
/// A follower receives the state instead of its unread records if these records are more than this many times as large
/// as the state.
const BACKLOG_PER_STATE: u64 = 2;
/// Minimum size of a record, bytes.
const RECORD_BYTES_MIN: u64 = 24;
/// A snapshot is fresh while the bytes that were appended since it was made are at most the snapshot's size divided by
/// this number, or at most [`FRESH_BYTES_MIN`].
const FRESH_PART: u64 = 2;
/// A snapshot is fresh, whatever its size, while at most this many bytes were appended since it was made.
const FRESH_BYTES_MIN: u64 = 1 << 10;

/// The reducer of a log, and the state that the reducer keeps.
#[derive(Debug)]
pub(super) struct ReducerState {
    reducer: Box<dyn Reducer>,
    charged: MemoryCharge,
    applied_bytes: u64,
    event_time_ns: Option<u64>,
    fresh: Option<Arc<FrozenSnapshot>>,
}

/// The size and the checksum of the state that a log keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StateInfo {
    /// Number of entries in the state, such as levels, orders or keys.
    pub entries: u64,
    /// Memory that the state takes, bytes.
    pub bytes: u64,
    /// The checksum: the sum of the hashes of all entries.
    pub checksum: u64,
}

/// The data that a follower of a log's state lacks: the whole state, or the changes since a position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CatchUpRequest {
    State,
    /// The changes since this position. If these changes are unknown, or larger than the state, the follower receives
    /// the whole state.
    Since(Position),
}

/// The data that a follower of a log's state receives to catch up: a merged record, a snapshot, or nothing.
#[derive(Debug)]
pub(crate) enum CatchUp {
    /// Nothing, because the follower already has all records. It continues at this position.
    Nothing(Position),
    /// One record that merges all changes up to the log's last position.
    MergedRecord(MergedRecord),
    /// A snapshot of the state. The follower then reads the records after the snapshot's position.
    Snapshot(Arc<FrozenSnapshot>),
}

impl CatchUp {
    /// The position of the last record that the follower has after the catch-up.
    pub(crate) fn position(&self) -> Position {
        match self {
            CatchUp::Nothing(next) => Position { seq: next.seq - 1, ..*next },
            CatchUp::MergedRecord(merged) => merged.position,
            CatchUp::Snapshot(frozen) => frozen.position,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Visibility {
    Now,
    /// Subscribers may receive the record once it is stored.
    Later,
    /// Subscribers never receive the record, because it cannot be stored any more.
    Never,
}

/// A record for one follower that merges all changes after the record `since`, up to `position`.
#[derive(Debug)]
pub(crate) struct MergedRecord {
    pub(crate) position: Position,
    pub(crate) since: u64,
    pub(crate) frame: Box<[u8]>,
    /// The segment to which the log's next record will be written, and the length up to which this segment is written.
    pub(crate) tail: Option<(Arc<Segment>, u32)>,
}

/// A snapshot of a state. At first, a snapshot has only the frozen state. Its bytes are written when a subscriber first
/// requests them.
#[derive(Debug)]
pub(crate) struct FrozenSnapshot {
    pub(crate) position: Position,
    checksum: u64,
    /// Total size of the records that the reducer had applied when the state was frozen, bytes.
    applied_bytes: u64,
    estimate: u64,
    frozen: Mutex<Option<Arc<dyn FrozenState>>>,
    bytes: OnceLock<Bytes>,
}

impl FrozenSnapshot {
    /// Returns the snapshot with its bytes. The first caller writes the bytes, and concurrent callers wait for them.
    pub(crate) fn to_snapshot(&self, log: &Log) -> Snapshot {
        let write = || {
            let frozen = self.frozen.lock().unwrap_or_else(PoisonError::into_inner).take();
            let mut bytes = Vec::new();
            if let Some(frozen) = frozen {
                bytes.reserve_exact(self.estimate as usize);
                frozen.write(&mut bytes);
            }
            let charged = MemoryCharge::forced(&log.budget, bytes.capacity());
            Bytes::from_owner(Written { bytes, _charged: charged })
        };
        Snapshot {
            log: Arc::clone(&log.name),
            position: self.position,
            checksum: self.checksum,
            bytes: self.bytes.get_or_init(write).clone(),
        }
    }
}

/// The bytes of a snapshot. They are charged to the budget until no subscriber uses them any more.
struct Written {
    bytes: Vec<u8>,
    _charged: MemoryCharge,
}

impl AsRef<[u8]> for Written {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl ReducerState {
    fn new(reducer: Box<dyn Reducer>, budget: &Arc<MemoryBudget>) -> ReducerState {
        let charged = MemoryCharge::none(budget);
        ReducerState { reducer, charged, applied_bytes: 0, event_time_ns: None, fresh: None }
    }

    fn info(&self) -> StateInfo {
        StateInfo {
            entries: self.reducer.entries(),
            bytes: self.reducer.bytes(),
            checksum: self.reducer.checksum(),
        }
    }

    fn drop_stale_snapshot(&mut self) {
        if self.fresh.as_ref().is_some_and(|fresh| !fresh.is_fresh(self.applied_bytes)) {
            self.fresh = None;
        }
    }

    fn freeze(&mut self, position: Position) -> FrozenSnapshot {
        FrozenSnapshot {
            position,
            checksum: self.reducer.checksum(),
            applied_bytes: self.applied_bytes,
            estimate: self.reducer.snapshot_bytes() as u64,
            frozen: Mutex::new(Some(self.reducer.freeze())),
            bytes: OnceLock::new(),
        }
    }
}

impl FrozenSnapshot {
    fn is_fresh(&self, applied_bytes: u64) -> bool {
        applied_bytes - self.applied_bytes <= (self.estimate / FRESH_PART).max(FRESH_BYTES_MIN)
    }
}

impl Log {
    /// Sets the reducer. Must be called before anything is appended.
    pub(crate) fn set_reducer(&self, reducer: Box<dyn Reducer>) {
        let reducer_state = ReducerState::new(reducer, &self.budget);
        self.lock().rare().reducer = Some(reducer_state);
    }

    /// Whether the log keeps a state.
    pub fn is_stateful(&self) -> bool {
        self.config.reducer.is_some()
    }

    /// The position of the log's last record, and the size and checksum of the state. `None` if the log keeps no state.
    pub fn state_info(&self) -> Option<(Position, StateInfo)> {
        let state = self.lock();
        let reducer_state = state.reducer_state()?;
        Some((state.last(), reducer_state.info()))
    }

    /// A snapshot of the present state; `None` if the log keeps no state.
    pub fn snapshot(&self) -> Option<Snapshot> {
        let frozen = {
            let mut state = self.lock();
            state.reducer_state()?;
            self.fresh_snapshot(&mut state)
        };
        Some(frozen.to_snapshot(self))
    }

    /// Restores the state after record `seq` from a [`snapshot`](Log::snapshot). Afterwards, apply the later records
    /// with [`replay_into_state`](Log::replay_into_state).
    pub fn restore_state(&self, seq: u64, snapshot: &[u8]) -> Result<(), ReducerError> {
        self.with_reducer(|reducer| reducer.restore(seq, snapshot))
    }

    /// Applies record `seq` to the state. The record was read from disk, because it was appended before the log was
    /// opened.
    pub fn replay_into_state(&self, seq: u64, frame: &dunlin_frame::Frame<'_>) -> Result<(), ReducerError> {
        self.with_reducer(|reducer| reducer.apply(seq, frame))
    }

    fn with_reducer(
        &self,
        change: impl FnOnce(&mut dyn Reducer) -> Result<(), ReducerError>,
    ) -> Result<(), ReducerError> {
        self.lock().with_reducer(change)
    }

    /// Applies the records that were written since `from` to the state. If the reducer refuses one of these records,
    /// removes all of them from the segment.
    #[inline(never)]
    pub(super) fn apply_to_state(
        &self,
        state: &mut LogContents,
        from: Commit,
        append: &AppendOptions,
    ) -> Result<(), PublishError> {
        if state.reducer_state().is_none() {
            return Ok(());
        }
        let applied = self.charge_reducer(state, append).and_then(|()| state.apply_pushed(from));
        if applied.is_err()
            && let Some(writer) = &mut state.writer
        {
            writer.rollback(from);
        }
        applied
    }

    fn charge_reducer(&self, state: &mut LogContents, append: &AppendOptions) -> Result<(), PublishError> {
        let grown = |state: &LogContents| {
            let reducer_state = state.reducer_state()?;
            Some(reducer_state.reducer.bytes().saturating_sub(reducer_state.charged.bytes()))
                .filter(|&grown| grown > 0)
        };
        let Some(bytes) = grown(state) else { return Ok(()) };
        while let Err(spent) = self.budget.charge(bytes) {
            self.drop_for_memory(state, spent, append)?;
        }
        if let Some(reducer_state) = state.rare().reducer.as_mut() {
            reducer_state.charged.add_charged(bytes);
        }
        Ok(())
    }

    pub(crate) fn catch_up(&self, request: CatchUpRequest) -> CatchUp {
        let mut state = self.lock();
        if let CatchUpRequest::Since(since) = request
            && since.epoch == state.epoch
        {
            let last = state.last();
            if since.seq >= last.seq {
                return CatchUp::Nothing(Position { seq: last.seq + 1, ..last });
            }
            if let Some(merged) = state.merge(since.seq, self.config.record_bytes_max as usize) {
                drop(state);
                return CatchUp::MergedRecord(merged.encode());
            }
        }
        CatchUp::Snapshot(self.fresh_snapshot(&mut state))
    }

    /// Whether subscribers may receive the record at this position. On a durable log, the state includes records before
    /// they are stored.
    pub(crate) fn visibility(&self, position: Position) -> Visibility {
        if self.config.durable.is_none() {
            return Visibility::Now;
        }
        let state = self.lock();
        if position.epoch != state.epoch || position.seq < state.visible_next() {
            Visibility::Now
        } else if state.has_ended() {
            Visibility::Never
        } else {
            Visibility::Later
        }
    }

    /// Returns the cached snapshot if it is fresh, and if the log will retain the records after it for a while.
    /// Otherwise, makes a new snapshot.
    fn fresh_snapshot(&self, state: &mut LogContents) -> Arc<FrozenSnapshot> {
        let last = state.last();
        let oldest = state.oldest_seq(&self.config);
        let middle = oldest + (state.next_seq - oldest) / 2;
        let reducer_state = state.rare.as_mut().and_then(|rare| rare.reducer.as_mut());
        let reducer_state = reducer_state.expect("the log has a state");
        if let Some(fresh) = &reducer_state.fresh
            && fresh.position.epoch == last.epoch
            && (fresh.position.seq == last.seq || fresh.position.seq >= middle)
        {
            return Arc::clone(fresh);
        }
        let frozen = Arc::new(reducer_state.freeze(last));
        reducer_state.fresh = Some(Arc::clone(&frozen));
        frozen
    }

    /// The checksum of the state, for a follower whose next record is `next`. `None` if the follower has not read
    /// everything.
    pub(crate) fn checksum(&self, next: Position) -> Option<Checksum> {
        let state = self.lock();
        let (reducer_state, last) = (state.reducer_state()?, state.last());
        let caught_up = next == Position { seq: last.seq + 1, ..last };
        caught_up.then(|| Checksum {
            log: Arc::clone(&self.name),
            position: last,
            checksum: reducer_state.reducer.checksum(),
        })
    }
}

/// The parts of a [`MergedRecord`], collected inside the log's lock. The record is encoded later, outside of the lock.
struct Raw {
    position: Position,
    since: u64,
    payload: Vec<u8>,
    encoded: FrameLayout,
    event_time_ns: Option<u64>,
    append_time_ns: u64,
    tail: Option<(Arc<Segment>, u32)>,
}

impl Raw {
    fn meta(event_time_ns: Option<u64>) -> RecordMeta<'static> {
        RecordMeta { event_time_ns, ..RecordMeta::default() }
    }

    fn encode(self) -> MergedRecord {
        let mut frame = vec![0; self.encoded.padded()].into_boxed_slice();
        Raw::meta(self.event_time_ns).encode(self.encoded, self.append_time_ns, &self.payload, &mut frame);
        MergedRecord { position: self.position, since: self.since, frame, tail: self.tail }
    }
}

impl LogContents {
    /// Passes the reducer to `change`, which may change the state, and drops the cached snapshot.
    pub(super) fn with_reducer(
        &mut self,
        change: impl FnOnce(&mut dyn Reducer) -> Result<(), ReducerError>,
    ) -> Result<(), ReducerError> {
        let reducer_state = self.rare.as_mut().and_then(|rare| rare.reducer.as_mut());
        let reducer_state =
            reducer_state.ok_or_else(|| ReducerError("the topic keeps no state".to_owned()))?;
        reducer_state.fresh = None;
        change(reducer_state.reducer.as_mut())
    }

    /// Resets the state to the state before the first record.
    pub(super) fn clear_state(&mut self) {
        // The result does not matter: a reducer that refuses the empty snapshot is empty afterwards, too.
        let _ = self.with_reducer(|reducer| reducer.restore(0, &[]));
    }

    pub(super) fn reducer_state(&self) -> Option<&ReducerState> {
        self.rare.as_ref()?.reducer.as_ref()
    }

    pub(super) fn last(&self) -> Position {
        Position { epoch: self.epoch, seq: self.next_seq - 1 }
    }

    fn apply_pushed(&mut self, from: Commit) -> Result<(), PublishError> {
        let LogContents { rare, writer, next_seq, .. } = self;
        let reducer_state = rare.as_mut().and_then(|rare| rare.reducer.as_mut());
        let (Some(reducer_state), Some(writer)) = (reducer_state, writer) else { return Ok(()) };
        let mut checked_count = 0;
        let mut frames = writer.frames_since(from).map(|entry| entry.frame).inspect(|_| checked_count += 1);
        let checked = reducer_state.reducer.check(&mut frames);
        drop(frames);
        if let Err(why) = checked {
            let record = if writer.frames_since(from).nth(1).is_some() { checked_count } else { 0 };
            return Err(PublishError::Reducer { record, why });
        }
        for (seq, entry) in (*next_seq..).zip(writer.frames_since(from)) {
            reducer_state
                .reducer
                .apply(seq, &entry.frame)
                .expect("a reducer applies each record that it accepted");
            reducer_state.event_time_ns = entry.frame.event_time_ns();
            reducer_state.applied_bytes += entry.bytes.len() as u64;
        }
        reducer_state.drop_stale_snapshot();
        Ok(())
    }

    /// Merges all changes after the record `since` into one record of at most `bytes_max` bytes. `None` if this is not
    /// possible, or if the reducer prefers a snapshot because it is smaller.
    fn merge(&self, since: u64, bytes_max: usize) -> Option<Raw> {
        let reducer_state = self.reducer_state()?;
        let mut payload = Vec::new();
        if !reducer_state.reducer.changes_since(since, &mut payload) {
            return None;
        }
        let event_time_ns = reducer_state.event_time_ns;
        let encoded = Raw::meta(event_time_ns).measure(payload.len()).ok()?;
        (encoded.padded() <= bytes_max).then(|| Raw {
            position: self.last(),
            since,
            payload,
            encoded,
            event_time_ns,
            append_time_ns: self.last_append_ns,
            tail: self.writer.as_ref().map(|w| (Arc::clone(w.segment()), w.written().bytes)),
        })
    }

    /// Whether a follower should receive the state instead of the records after `since`, because these records are much
    /// larger than the state.
    pub(super) fn is_state_cheaper(&self, since: u64) -> bool {
        // If some of the records are only on disk, their size is not known. Each of them then counts with the minimum
        // size of a record.
        let on_disk = || self.stored().map(|_| (self.next_seq - 1 - since) * RECORD_BYTES_MIN);
        let backlog_bytes = self.bytes_after(since).or_else(on_disk).unwrap_or(0);
        let Some(reducer_state) = self.reducer_state().filter(|_| backlog_bytes > BACKLOG_BYTES_MIN) else {
            return false;
        };
        backlog_bytes > BACKLOG_PER_STATE * reducer_state.reducer.snapshot_bytes() as u64
    }

    /// Estimates the size of the records after `seq`, in bytes; `None` if some of them are not in memory. Assumes that
    /// all records of a segment have the same size.
    fn bytes_after(&self, seq: u64) -> Option<u64> {
        let next = seq.saturating_add(1);
        if next >= self.next_seq {
            return Some(0);
        }
        let tail = self.writer.as_ref().map(|w| (w.segment().first_seq, u64::from(w.written().bytes)));
        let (tail_first, tail_bytes) = tail.unwrap_or((self.next_seq, 0));
        if tail_first <= next {
            return Some(proportional_bytes(tail_bytes, tail_first..self.next_seq, next));
        }
        let at =
            self.retained.partition_point(|retained| retained.segment.first_seq <= next).checked_sub(1)?;
        let after: u64 = self.retained.iter().skip(at + 1).map(|retained| retained.bytes).sum();
        let end = self.retained.get(at + 1).map_or(tail_first, |retained| retained.segment.first_seq);
        let first =
            proportional_bytes(self.retained[at].bytes, self.retained[at].segment.first_seq..end, next);
        Some(first + after + tail_bytes)
    }
}

/// Estimates the size of the record `next` and of all later ones among `records`, in bytes. `bytes` is the size of all
/// `records`. Assumes that all of them have the same size.
fn proportional_bytes(bytes: u64, records: Range<u64>, next: u64) -> u64 {
    let (total, unread) = (records.end - records.start, records.end.saturating_sub(next));
    (u128::from(bytes) * u128::from(unread) / u128::from(total.max(1))) as u64
}
