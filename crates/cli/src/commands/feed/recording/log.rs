//! Writes the log of one topic of a recording.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use dunlin_journal::{AppendBatch, AppendError, Journal, JournalConfig, RealDisk};
use dunlin_topic::frame::RecordMeta;
use dunlin_topic::{Frame, Reducer, ReducerConfig};

use super::{END, PATTERN, RecordCounts, STATE, SUM, reducer_text, topic_dir};
use crate::outcome::CommandRefusal;
use crate::progress::bytes_in;
use crate::state::State;

/// When the buffer has at least this many bytes, it is written to the file.
const BATCH_BYTES: usize = 1 << 20;

/// A log of a recording, to which the records of one topic are written.
pub struct RecordedLog {
    topic: String,
    /// The pattern of the topic's subjects; `None` if the topic's name is its only subject.
    pattern: Option<String>,
    /// The topic's reducer; `None` before the first state.
    reducer: Option<ReducerConfig>,
    dir: PathBuf,
    journal: Journal,
    next_seq: u64,
    counts: RecordCounts,
    last_time_ns: u64,
    first_time_ns: u64,
    count: u32,
    frames: Vec<u8>,
}

impl RecordedLog {
    /// Creates the log of a new topic. `pattern` is the pattern of the topic's subjects; `None` if the topic's name is
    /// its only subject.
    pub fn create(recording: &Path, topic: &str, pattern: Option<String>) -> Result<RecordedLog> {
        let dir = topic_dir(recording, topic);
        let opened = Journal::open(Arc::new(RealDisk), &dir, topic, JournalConfig::default());
        let (journal, _) =
            opened.with_context(|| format!("cannot create the recorded log in {}", dir.display()))?;
        let topic = topic.to_owned();
        let frames = Vec::new();
        let counts = RecordCounts::default();
        Ok(RecordedLog {
            topic,
            pattern,
            reducer: None,
            dir,
            journal,
            next_seq: 1,
            counts,
            last_time_ns: 0,
            first_time_ns: 0,
            count: 0,
            frames,
        })
    }

    /// The pattern of the topic's subjects; `None` if the topic's name is its only subject.
    pub fn pattern(&self) -> Option<&str> {
        self.pattern.as_deref()
    }

    /// The number of the topic's records in the log so far, and the number of complete states.
    pub fn counts(&self) -> RecordCounts {
        self.counts
    }

    /// The number of all records in the log so far, including those that the recorder added.
    pub fn records(&self) -> u64 {
        self.next_seq - 1
    }

    /// Appends a record of the topic unchanged.
    pub fn append_frame(&mut self, frame: &Frame<'_>) -> Result<()> {
        frame.append_to(&mut self.frames);
        self.counts.records += 1;
        self.after_append(frame.append_time_ns())
    }

    /// Appends a complete state. Fails if the state's reducer differs from the reducer of the log's first state,
    /// because a replay publishes all states to one topic.
    pub fn append_state(&mut self, state: &State) -> Result<()> {
        let config = state.config();
        if self.reducer.as_ref().is_some_and(|first| *first != config) {
            let why = "was created again with another reducer, so the recording ends here";
            return Err(CommandRefusal(format!("topic {:?} {why}", self.topic)).into());
        }
        self.counts.states += 1;
        let (reducer, pattern) = (reducer_text(&config), self.pattern.clone());
        self.reducer = Some(config);
        let mut headers = vec![(STATE, reducer.as_bytes())];
        headers.extend(pattern.as_ref().map(|pattern| (PATTERN, pattern.as_bytes())));
        self.append_own(&headers, &state.encode_snapshot())
    }

    /// Appends a record with the checksum of `state`.
    pub fn append_checksum(&mut self, state: &State) -> Result<()> {
        self.append_own(&[(SUM, format!("{:016x}", state.checksum()).as_bytes())], b"")
    }

    /// Appends a record that marks the topic's deletion.
    pub fn append_end(&mut self) -> Result<()> {
        self.append_own(&[(END, &b""[..])], b"")
    }

    /// Sets the earliest append time of the next record. A state at the beginning of a log has no time of its own, so
    /// call `set_min_time` before `append_state`.
    pub fn set_min_time(&mut self, time_ns: u64) {
        self.last_time_ns = self.last_time_ns.max(time_ns);
    }

    fn append_own(&mut self, headers: &[(&str, &[u8])], payload: &[u8]) -> Result<()> {
        let meta = RecordMeta { headers, ..RecordMeta::default() };
        encode(&meta, self.last_time_ns, payload, &mut self.frames)?;
        self.after_append(self.last_time_ns)
    }

    fn after_append(&mut self, time_ns: u64) -> Result<()> {
        self.last_time_ns = self.last_time_ns.max(time_ns);
        if self.count == 0 {
            self.first_time_ns = self.last_time_ns;
        }
        self.count += 1;
        self.next_seq += 1;
        if self.frames.len() < BATCH_BYTES {
            return Ok(());
        }
        self.write().map_err(|error| self.append_error(error))
    }

    fn write(&mut self) -> Result<(), AppendError> {
        if self.count == 0 {
            return Ok(());
        }
        let batch = AppendBatch {
            epoch: 1,
            first_seq: self.next_seq - u64::from(self.count),
            count: self.count,
            first_time_ns: self.first_time_ns,
            last_time_ns: self.last_time_ns,
            frames: &[&self.frames],
        };
        self.journal.append(&batch)?;
        self.count = 0;
        self.frames.clear();
        Ok(())
    }

    /// Syncs the log to disk.
    pub fn sync(&mut self) -> Result<()> {
        let result = self.write().and_then(|()| self.journal.sync().map(drop));
        result.map_err(|error| self.append_error(error))
    }

    /// Closes the log. Returns its size on disk.
    pub fn close(mut self) -> Result<u64> {
        let written = self.write();
        let RecordedLog { topic, dir, journal, .. } = self;
        // Close the log even if the write failed. A full disk still has room for the end mark.
        let closed = journal.close();
        written.and(closed).map_err(|error| append_error(&topic, error))?;
        Ok(bytes_in(&dir))
    }

    fn append_error(&self, error: AppendError) -> anyhow::Error {
        append_error(&self.topic, error)
    }
}

/// Encodes a record as a frame, and appends the frame to `out`.
pub fn encode(meta: &RecordMeta<'_>, append_time_ns: u64, payload: &[u8], out: &mut Vec<u8>) -> Result<()> {
    let measured = meta.measure(payload.len()).context("cannot encode a record of the recording")?;
    let at = out.len();
    out.resize(at + measured.padded(), 0);
    meta.encode(measured, append_time_ns, payload, &mut out[at..]);
    Ok(())
}

fn append_error(topic: &str, error: AppendError) -> anyhow::Error {
    let full = matches!(error, AppendError::Full { .. });
    let error = anyhow::Error::from(error).context(format!("cannot record topic {topic}"));
    if full { error.context("the disk is full; the records written so far stay readable") } else { error }
}
