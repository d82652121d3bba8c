//! The thread that writes: what was handed to it while it wrote becomes one block and one sync.
//!
//! A disk that is full ends nothing. The [`Reserve`] is given up and its room claimed for the journal; [`Room`] says so to those
//! who propose, and they refuse what makes the state grow. When that room is used up as well, what was handed over waits in
//! its order, and is written as soon as there is room. A disk that fails ends the log: nothing is written after that.

use std::collections::VecDeque;
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use dunlin_journal::{AppendError, Journal, Position, Reserve};

use super::room::{Level, Room};
use crate::frames::{self, Frames};

/// Told how a write ended.
pub(super) type Done = Box<dyn FnOnce(io::Result<()>) + Send>;

/// A block is written when it has grown to this, though more is waiting.
const BLOCK_BYTES: usize = 8 << 20;
/// How often a disk that is full is tried.
const RETRY: Duration = Duration::from_millis(50);
/// How often it is looked whether there is room for the reserve.
const LOOK: Duration = Duration::from_millis(200);

pub(super) enum Work {
    Write(Frames, Done),
    /// Nothing before this record is needed.
    Forget(Position),
    /// What follows begins a file, so that those before can be dropped.
    EndFile,
    Close,
}

#[derive(Debug)]
pub(super) struct Writer {
    sender: Sender<Work>,
    thread: Option<JoinHandle<()>>,
}

impl Writer {
    /// Writes on from the record `next` on.
    pub(super) fn start(
        journal: Journal,
        next: Position,
        reserve: Reserve,
        room: Room,
    ) -> io::Result<Writer> {
        let (sender, receiver) = channel();
        let (broken, came, is_closing) = Default::default();
        let looked = Instant::now();
        let mut writing = Writing { journal, next, reserve, room, came, is_closing, looked, broken };
        let run = move || {
            writing.run(&receiver);
            if writing.broken.is_none() {
                // What is written is synced; without the mark the next start looks closer.
                let _ = writing.journal.close();
            }
        };
        let thread = std::thread::Builder::new().name("raft-log".to_owned()).spawn(run)?;
        Ok(Writer { sender, thread: Some(thread) })
    }

    pub(super) fn hand_over(&self, work: Work) {
        // A thread that has ended drops what it is told of, which is an error to those who wait.
        let _ = self.sender.send(work);
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        let _ = self.sender.send(Work::Close);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Writing {
    journal: Journal,
    next: Position,
    reserve: Reserve,
    room: Room,
    /// What came while the disk was full.
    came: VecDeque<Work>,
    /// Nobody waits for room any more.
    is_closing: bool,
    /// When it was looked last whether there is room for the reserve.
    looked: Instant,
    /// What nothing is written after.
    broken: Option<String>,
}

/// Why nothing was written.
enum Unwritten {
    Full(String),
    Broken(String),
}

impl From<AppendError> for Unwritten {
    fn from(error: AppendError) -> Unwritten {
        match error {
            AppendError::Full { .. } => Unwritten::Full(error.to_string()),
            other => Unwritten::Broken(other.to_string()),
        }
    }
}

impl Writing {
    fn run(&mut self, receiver: &Receiver<Work>) {
        while !self.is_closing
            && let Some(first) = self.first(receiver)
        {
            let (mut writes, mut bytes, mut forget) = (Vec::new(), 0, None);
            let mut next = Some(first);
            while let Some(work) = next {
                match work {
                    Work::Write(frames, done) => {
                        bytes += frames.bytes.len();
                        writes.push((frames, done));
                    }
                    Work::Forget(before) => forget = Some(before),
                    Work::EndFile => {
                        self.write(std::mem::take(&mut writes), receiver);
                        self.end_file();
                    }
                    Work::Close => self.is_closing = true,
                }
                next = if bytes < BLOCK_BYTES && !self.is_closing { self.more(receiver) } else { None };
            }
            self.write(writes, receiver);
            if let Some(before) = forget {
                self.forget(before);
            }
        }
    }

    /// The next thing to do, once there is one. Meanwhile the reserve is seen to.
    fn first(&mut self, receiver: &Receiver<Work>) -> Option<Work> {
        loop {
            self.look();
            if let Some(work) = self.came.pop_front() {
                return Some(work);
            }
            if self.is_settled() {
                return receiver.recv().ok();
            }
            match receiver.recv_timeout(LOOK) {
                Ok(work) => return Some(work),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return None,
            }
        }
    }

    fn more(&mut self, receiver: &Receiver<Work>) -> Option<Work> {
        self.came.pop_front().or_else(|| receiver.try_recv().ok())
    }

    /// Nothing is to be seen to.
    fn is_settled(&self) -> bool {
        self.broken.is_some() || !self.reserve.is_lacking() && self.room.level() == Level::Ample
    }

    /// Fills the reserve if there is room for it again; then there is room for everything.
    fn look(&mut self) {
        if self.is_settled() || self.looked.elapsed() < LOOK {
            return;
        }
        match self.reserve.fill() {
            // Without a reserve the next write says whether there is room.
            Ok(true) => self.room.is_ample(),
            Ok(false) => self.is_low("the disk has hardly more room than the reserve takes"),
            Err(error) => self.broken = Some(error.to_string()),
        }
        self.looked = Instant::now();
    }

    fn write(&mut self, writes: Vec<(Frames, Done)>, receiver: &Receiver<Work>) {
        if writes.is_empty() {
            return;
        }
        match self.try_write(&writes.iter().map(|(frames, _)| frames).collect::<Vec<_>>()) {
            // Some of them may find room.
            Err(Unwritten::Full(_)) => {
                for (frames, done) in writes {
                    let written = self.write_or_wait(&frames, receiver);
                    done(written.map_err(io::Error::other));
                }
            }
            other => {
                if let Err(Unwritten::Broken(why)) = other {
                    self.broken = Some(why);
                }
                for (_, done) in writes {
                    done(self.broken.as_ref().map_or(Ok(()), |why| Err(io::Error::other(why.clone()))));
                }
            }
        }
    }

    fn try_write(&mut self, writes: &[&Frames]) -> Result<(), Unwritten> {
        if let Some(why) = &self.broken {
            return Err(Unwritten::Broken(why.clone()));
        }
        let bytes: Vec<&[u8]> = writes.iter().map(|frames| frames.bytes.as_slice()).collect();
        let count = writes.iter().map(|frames| frames.count).sum();
        frames::append(&mut self.journal, self.next.epoch, self.next.seq, count, &bytes)?;
        self.next.seq += u64::from(count);
        self.journal.sync()?;
        Ok(())
    }

    /// Writes them, from the reserve if need be, and waits for room where that is not enough.
    fn write_or_wait(&mut self, frames: &Frames, receiver: &Receiver<Work>) -> Result<(), String> {
        loop {
            match self.try_write(&[frames]) {
                Ok(()) if self.room.level() == Level::Out => {
                    self.room.is_short(Level::Low, self.room.lacking().unwrap_or_default());
                    return Ok(());
                }
                Ok(()) => return Ok(()),
                Err(Unwritten::Broken(why)) => {
                    self.broken = Some(why.clone());
                    return Err(why);
                }
                Err(Unwritten::Full(why)) => {
                    if !self.take_reserve(&why) && !self.wait(receiver, why) {
                        return Err("the log is closed while its disk is full".to_owned());
                    }
                }
            }
        }
    }

    /// Gives up the reserve and keeps its room for the journal; whether there was any.
    fn take_reserve(&mut self, why: &str) -> bool {
        self.is_low(why);
        match self.reserve.release() {
            Ok(there) => {
                self.claim();
                there
            }
            // What cannot be removed is no room.
            Err(_) => false,
        }
    }

    fn is_low(&self, why: &str) {
        if self.room.level() == Level::Ample {
            self.room.is_short(Level::Low, why.to_owned());
        }
    }

    /// Room that others on this disk do not get. What of it is there is kept, though it is not all.
    fn claim(&mut self) {
        if let Err(error @ (AppendError::Ended(_) | AppendError::Disk(_))) =
            self.journal.room(self.reserve.bytes())
        {
            self.broken = Some(error.to_string());
        }
    }

    /// Waits a little for room; false when the log is to be closed.
    fn wait(&mut self, receiver: &Receiver<Work>, why: String) -> bool {
        self.room.is_short(Level::Out, why);
        match receiver.recv_timeout(RETRY) {
            _ if self.is_closing => {}
            Ok(Work::Close) | Err(RecvTimeoutError::Disconnected) => self.is_closing = true,
            Ok(work) => self.came.push_back(work),
            Err(RecvTimeoutError::Timeout) => {}
        }
        !self.is_closing
    }

    /// What cannot be removed takes room, and no more: it is tried again with the next.
    fn forget(&mut self, before: Position) {
        if self.broken.is_none() {
            let _ = self.journal.truncate_before(before);
        }
    }

    fn end_file(&mut self) {
        if self.broken.is_none()
            && let Err(error) = self.journal.end_file()
        {
            self.broken = Some(error.to_string());
        }
    }
}
