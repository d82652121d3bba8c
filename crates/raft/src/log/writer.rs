//! Writes the log's operations to the journal on a separate thread. Operations that arrive during a write form the next
//! block together, with a single sync.
//!
//! When the disk is full, the journal takes over the room of the reserve ([`Margin`]). From then on, commands that make
//! the state larger are refused ([`DiskSpace`]). When the reserve's room is used up too, writes wait, in order. Only a
//! purge may overtake waiting writes, because a purge frees room. It overtakes them only if none of the waiting writes
//! concerns an entry that the purge removes. Some room is kept free for purges. Writes also wait while the process
//! lacks file descriptors or memory for the next file. After any other disk failure, the log writes nothing more.

use std::collections::VecDeque;
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use dunlin_journal::{AppendError, BLOCK_HEADER_BYTES, DiskReserve, Journal, Position};

use super::margin::{FILL_INTERVAL, Margin};
use super::operation::LogOperation;
use super::room::DiskSpace;
use super::synced::SyncedMark;
use crate::error::RaftGroupError;
use crate::frames::{self, EncodedRecords};

pub(super) type WriteCallback = Box<dyn FnOnce(io::Result<()>) + Send>;

/// Maximum size of a block, bytes.
const BLOCK_BYTES: usize = 8 << 20;
/// The pause before a write that lacked room is tried again.
const RETRY: Duration = Duration::from_millis(50);
/// Number of bytes that other writes leave free for a purge. They suffice for the purge's block, and for the new file
/// that this block may need.
const PURGE_BYTES: u64 = 16 << 10;

pub(super) enum WriterCommand {
    Write(Write),
    Purge(Purge),
    Close,
}

/// Operations whose records are to be appended after all earlier records. The writer thread encodes large entries,
/// because encoding them on the calling thread would delay heartbeats.
pub(super) struct Write {
    pub(super) operations: Vec<LogOperation>,
    pub(super) frames: EncodedRecords,
    /// The index of the first entry if all operations append entries; otherwise `None`.
    pub(super) entries_from: Option<u64>,
    pub(super) done: WriteCallback,
}

/// A request to remove the beginning of the log.
pub(super) struct Purge {
    /// The record of the purge, and a record that repeats the vote.
    pub(super) frames: EncodedRecords,
    /// The index of the last entry that is removed.
    pub(super) upto: u64,
    /// Records before this position can be removed once the purge is written.
    pub(super) needed: Position,
    /// Whether to begin a new file first, so that the present file can be removed as well.
    pub(super) begins_file: bool,
}

impl Write {
    fn encode_records(&mut self) -> io::Result<()> {
        self.operations.drain(..).try_for_each(|operation| self.frames.push(&operation))
    }
}

#[derive(Debug)]
pub(super) struct LogWriter {
    sender: Sender<WriterCommand>,
    thread: Option<JoinHandle<()>>,
}

impl LogWriter {
    /// Starts the thread. The first record that it writes gets the position `next`.
    pub(super) fn start(
        journal: Journal,
        mark: SyncedMark,
        next: Position,
        reserve: DiskReserve,
        room: DiskSpace,
    ) -> io::Result<LogWriter> {
        let (sender, receiver) = channel();
        let margin = Margin::open(reserve, room).map_err(io::Error::other)?;
        let (failure, waiting, deferred, is_closing) = Default::default();
        let mut state = WriterState { journal, mark, next, margin, waiting, deferred, is_closing, failure };
        let run = move || {
            state.run(&receiver);
            if state.failure.is_none() {
                // All writes are synced already. If the closing mark cannot be written, the only effect is that the
                // next start has to check more of the log.
                let _ = state.journal.close();
                let _ = state.mark.persist();
            }
        };
        let thread = std::thread::Builder::new().name("raft-log".to_owned()).spawn(run)?;
        Ok(LogWriter { sender, thread: Some(thread) })
    }

    pub(super) fn send(&self, work: WriterCommand) {
        // If the writer thread has ended, the operation is dropped, and with it the callback. A dropped callback
        // reports an error.
        let _ = self.sender.send(work);
    }
}

impl Drop for LogWriter {
    fn drop(&mut self) {
        let _ = self.sender.send(WriterCommand::Close);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct WriterState {
    journal: Journal,
    mark: SyncedMark,
    next: Position,
    margin: Margin,
    /// Writes that wait for room, in order.
    waiting: VecDeque<Write>,
    /// Commands that arrived while writes were waiting for room.
    deferred: VecDeque<WriterCommand>,
    /// Whether the log is closing. Writes then fail instead of waiting for room.
    is_closing: bool,
    /// The error after which the log writes nothing more.
    failure: Option<String>,
}

/// The reason why a write did not succeed.
enum WriteFailure {
    Full(String),
    /// The process or the machine lacks file descriptors or memory.
    LacksResource(String),
    Broken(String),
}

impl From<AppendError> for WriteFailure {
    fn from(error: AppendError) -> WriteFailure {
        match error {
            AppendError::Full { .. } => WriteFailure::Full(error.to_string()),
            AppendError::LacksResource(error) => WriteFailure::LacksResource(error.to_string()),
            other => WriteFailure::Broken(other.to_string()),
        }
    }
}

impl WriterState {
    fn run(&mut self, receiver: &Receiver<WriterCommand>) {
        while !self.is_closing
            && let Some(first) = self.wait_next(receiver)
        {
            let (mut writes, mut bytes, mut purge) = (VecDeque::new(), 0, None);
            let mut next = Some(first);
            while let Some(work) = next {
                match work {
                    WriterCommand::Write(mut write) => {
                        if let Err(error) = write.encode_records() {
                            self.failure.get_or_insert(error.to_string());
                        }
                        bytes += write.frames.bytes.len();
                        writes.push_back(write);
                    }
                    WriterCommand::Purge(next_purge) => purge = Some(next_purge),
                    WriterCommand::Close => self.is_closing = true,
                }
                let continues = bytes < BLOCK_BYTES && purge.is_none() && !self.is_closing;
                next = if continues { self.try_next(receiver) } else { None };
            }
            match purge {
                Some(purge) if writes.is_empty() => self.purge(purge, receiver),
                // If the writes have to wait for room, this purge may overtake them.
                Some(purge) => self.deferred.push_front(WriterCommand::Purge(purge)),
                None => {}
            }
            self.write(writes, receiver);
        }
    }

    /// Waits for the next command and returns it. Returns `None` if no command can arrive any more. During the wait,
    /// fills the reserve and writes the number of the last synced record when each is due.
    fn wait_next(&mut self, receiver: &Receiver<WriterCommand>) -> Option<WriterCommand> {
        loop {
            if self.failure.is_none() {
                self.failure = self.margin.fill_if_due().err().map(|error| error.to_string());
            }
            if let Some(work) = self.deferred.pop_front() {
                return Some(work);
            }
            let fill_pause = (!self.margin.is_settled()).then_some(FILL_INTERVAL);
            let Some(pause) =
                fill_pause.into_iter().chain(self.mark.due()).min().filter(|_| self.failure.is_none())
            else {
                return receiver.recv().ok();
            };
            match receiver.recv_timeout(pause) {
                Ok(work) => return Some(work),
                Err(RecvTimeoutError::Timeout) => self.mark.write_if_due(),
                Err(RecvTimeoutError::Disconnected) => return None,
            }
        }
    }

    fn try_next(&mut self, receiver: &Receiver<WriterCommand>) -> Option<WriterCommand> {
        self.deferred.pop_front().or_else(|| receiver.try_recv().ok())
    }

    /// Writes all of `writes` as one block. If the disk has too little room for this block, writes each of `writes` as
    /// its own block.
    fn write(&mut self, writes: VecDeque<Write>, receiver: &Receiver<WriterCommand>) {
        if writes.is_empty() {
            return;
        }
        let frames: Vec<&EncodedRecords> = writes.iter().map(|write| &write.frames).collect();
        match self.try_write(&frames, PURGE_BYTES) {
            // There may be room for some of the writes, although there is none for all of them.
            Err(WriteFailure::Full(_) | WriteFailure::LacksResource(_)) => {
                self.waiting = writes;
                self.write_waiting(receiver);
            }
            other => {
                self.record_failure(other);
                writes.into_iter().for_each(|write| self.complete(write.done));
            }
        }
    }

    /// Writes the waiting writes one after another. If the disk has too little room for a write, releases the reserve,
    /// or waits for room.
    fn write_waiting(&mut self, receiver: &Receiver<WriterCommand>) {
        while let Some(write) = self.waiting.pop_front() {
            match self.try_write(&[&write.frames], PURGE_BYTES) {
                Err(failure @ (WriteFailure::Full(_) | WriteFailure::LacksResource(_))) => {
                    self.waiting.push_front(write);
                    self.prepare_retry(failure, receiver);
                    if self.is_closing {
                        let why = || io::Error::other("the log was closed before it could write the entries");
                        self.waiting.drain(..).for_each(|write| (write.done)(Err(why())));
                    }
                }
                other => {
                    self.record_failure(other);
                    self.complete(write.done);
                }
            }
        }
    }

    fn record_failure(&mut self, written: Result<(), WriteFailure>) {
        if let Err(WriteFailure::Broken(why)) = written {
            self.failure = Some(why);
        }
    }

    fn complete(&self, done: WriteCallback) {
        done(self.failure.as_ref().map_or(Ok(()), |why| Err(io::Error::other(why.clone()))));
    }

    /// Writes and syncs records, but only if at least `room_after` bytes of room remain after the write.
    fn try_write(&mut self, writes: &[&EncodedRecords], room_after: u64) -> Result<(), WriteFailure> {
        if let Some(why) = &self.failure {
            return Err(WriteFailure::Broken(why.clone()));
        }
        let bytes: Vec<&[u8]> = writes.iter().map(|frames| frames.bytes.as_slice()).collect();
        let count = writes.iter().map(|frames| frames.count).sum();
        if room_after > 0 {
            let need = bytes.iter().map(|bytes| bytes.len() as u64).sum::<u64>() + BLOCK_HEADER_BYTES as u64;
            self.journal.reserve_room(need + room_after)?;
        }
        frames::append(&mut self.journal, self.next.epoch, self.next.seq, count, &bytes)?;
        self.next.seq += u64::from(count);
        self.journal.sync()?;
        self.mark.advance(self.next.seq - 1);
        self.margin.handle_written(&mut self.journal)?;
        Ok(())
    }

    /// Prepares to repeat a failed write: releases the reserve if the disk is full, or waits a little. If repeating is
    /// useless, stores the failure.
    fn prepare_retry(&mut self, failure: WriteFailure, receiver: &Receiver<WriterCommand>) {
        let failure = match failure {
            WriteFailure::Full(why) => match self.margin.release_reserve(&mut self.journal, &why) {
                Ok(true) => return,
                Ok(false) => WriteFailure::Full(why),
                Err(error) => WriteFailure::from(error),
            },
            other => other,
        };
        match failure {
            WriteFailure::Full(why) => self.wait(RaftGroupError::NoRoom(why), receiver),
            WriteFailure::LacksResource(why) => self.wait(RaftGroupError::LacksResource(why), receiver),
            WriteFailure::Broken(why) => self.failure = Some(why),
        }
    }

    fn wait(&mut self, why: RaftGroupError, receiver: &Receiver<WriterCommand>) {
        self.margin.report_out_of_room(why);
        match receiver.recv_timeout(RETRY) {
            Ok(WriterCommand::Close) | Err(RecvTimeoutError::Disconnected) => self.is_closing = true,
            Ok(work) => self.deferred.push_back(work),
            Err(RecvTimeoutError::Timeout) => {}
        }
        self.is_closing |= self.margin.is_ending();
        self.purge_before_waiting();
    }

    /// Writes the first pending purge before the entries that wait for room, provided that the purge removes none of
    /// these entries. The records of the purge then come first in the journal, and the entries get later positions than
    /// the log has stored for them. Because of these positions, the log may keep a file too long, but never removes a
    /// file too early.
    fn purge_before_waiting(&mut self) {
        let Some(at) = self.deferred.iter().position(|work| matches!(work, WriterCommand::Purge(_))) else {
            return;
        };
        let Some(WriterCommand::Purge(purge)) = self.deferred.remove(at) else { return };
        let is_kept = |write: &Write| write.entries_from.is_some_and(|first| first > purge.upto);
        let is_safe = self.waiting.iter().all(is_kept)
            && self
                .deferred
                .iter()
                .take(at)
                .all(|work| matches!(work, WriterCommand::Write(write) if is_kept(write)));
        if is_safe {
            match self.try_purge(&purge) {
                Err(WriteFailure::Full(_) | WriteFailure::LacksResource(_)) => {}
                other => return self.record_failure(other),
            }
        }
        self.deferred.insert(at, WriterCommand::Purge(purge));
    }

    fn purge(&mut self, purge: Purge, receiver: &Receiver<WriterCommand>) {
        match self.try_purge(&purge) {
            Err(failure @ (WriteFailure::Full(_) | WriteFailure::LacksResource(_))) => {
                self.deferred.push_front(WriterCommand::Purge(purge));
                self.prepare_retry(failure, receiver);
            }
            other => self.record_failure(other),
        }
    }

    fn try_purge(&mut self, purge: &Purge) -> Result<(), WriteFailure> {
        if purge.begins_file && self.failure.is_none() {
            self.journal.end_file()?;
            self.margin.forget_claim();
        }
        self.try_write(&[&purge.frames], 0)?;
        // The next purge removes the files that could not be removed now.
        let _ = self.journal.truncate_before(purge.needed);
        Ok(())
    }
}
