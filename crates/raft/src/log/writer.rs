//! The thread that writes: what was handed to it while it wrote becomes one block and one sync.

use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use dunlin_journal::{Journal, Position};

use crate::frames::{self, Frames};

/// Told how a write ended.
pub(super) type Done = Box<dyn FnOnce(io::Result<()>) + Send>;

/// A block is written when it has grown to this, though more is waiting.
const BLOCK_BYTES: usize = 8 << 20;

pub(super) enum Work {
    Write(Frames, Done),
    /// Nothing before this record is needed.
    Forget(Position),
    Close,
}

#[derive(Debug)]
pub(super) struct Writer {
    sender: Sender<Work>,
    thread: Option<JoinHandle<()>>,
}

impl Writer {
    /// Writes on from the record `next` on.
    pub(super) fn start(journal: Journal, next: Position) -> io::Result<Writer> {
        let (sender, receiver) = channel();
        let mut writing = Writing { journal, next, broken: None };
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
    /// What nothing is written after.
    broken: Option<String>,
}

impl Writing {
    fn run(&mut self, receiver: &Receiver<Work>) {
        while let Ok(first) = receiver.recv() {
            let (mut writes, mut bytes, mut forget) = (Vec::new(), 0, None);
            let mut next = Some(first);
            let mut is_closing = false;
            while let Some(work) = next {
                match work {
                    Work::Write(frames, done) => {
                        bytes += frames.bytes.len();
                        writes.push((frames, done));
                    }
                    Work::Forget(before) => forget = Some(before),
                    Work::Close => is_closing = true,
                }
                next = if bytes < BLOCK_BYTES && !is_closing { receiver.try_recv().ok() } else { None };
            }
            self.write(writes);
            if let Some(before) = forget {
                self.forget(before);
            }
            if is_closing {
                return;
            }
        }
    }

    fn write(&mut self, writes: Vec<(Frames, Done)>) {
        if writes.is_empty() {
            return;
        }
        if self.broken.is_none() {
            let frames: Vec<&[u8]> = writes.iter().map(|(frames, _)| frames.bytes.as_slice()).collect();
            let count = writes.iter().map(|(frames, _)| frames.count).sum();
            let appended = frames::append(&mut self.journal, self.next.epoch, self.next.seq, count, &frames);
            let written = appended.and_then(|()| self.journal.sync());
            self.next.seq += u64::from(count);
            self.broken = written.err().map(|error| error.to_string());
        }
        for (_, done) in writes {
            done(self.broken.as_ref().map_or(Ok(()), |why| Err(io::Error::other(why.clone()))));
        }
    }

    /// What cannot be removed takes room, and no more: it is tried again with the next.
    fn forget(&mut self, before: Position) {
        if self.broken.is_none() {
            let _ = self.journal.truncate_before(before);
        }
    }
}
