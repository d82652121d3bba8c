//! A store in memory, for tests of durable topics. It writes and syncs records only when a test requests this.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use dunlin_topic::*;

use crate::fixture::*;

/// The number of bytes that the store grants, unless a test needs less.
pub const PLENTY: u64 = 1 << 30;

#[derive(Debug)]
struct Block {
    epoch: u32,
    first_seq: u64,
    count: u32,
    frames: Vec<u8>,
    last_append_ns: u64,
}

/// A `Store` that keeps its records in memory instead of on a disk.
#[derive(Debug)]
pub struct MemoryStore {
    blocks: Mutex<Vec<Block>>,
    budget: Arc<MemoryBudget>,
    pub signals: AtomicU64,
    pub loads: AtomicU64,
    /// Whether a read returns [`DiskContent::Later`] instead of records.
    pub defers_reads: AtomicBool,
    marks: Mutex<Vec<(u32, StagedProducer)>>,
    loaded: Mutex<Option<LoadedSegment>>,
}

impl MemoryStore {
    pub fn new() -> Arc<MemoryStore> {
        Arc::new(MemoryStore {
            blocks: Mutex::default(),
            budget: budget(),
            signals: AtomicU64::new(0),
            loads: AtomicU64::new(0),
            defers_reads: AtomicBool::new(false),
            marks: Mutex::default(),
            loaded: Mutex::default(),
        })
    }

    /// Opens a topic with the stored records, in the epoch `epoch`.
    pub fn topic(self: &Arc<MemoryStore>, config: TopicConfig, epoch: u32) -> Arc<Topic> {
        self.topic_of(config, &budget(), MANUAL, self.recovered(epoch))
    }

    pub fn topic_of(
        self: &Arc<MemoryStore>,
        config: TopicConfig,
        budget: &Arc<MemoryBudget>,
        clock: Clock,
        recovered: RecoveredLog,
    ) -> Arc<Topic> {
        let store: Arc<dyn Store> = Arc::clone(self) as _;
        let topic = Topic::durable("t", Arc::new(config), budget, clock, vec![(recovered, store)]).unwrap();
        for (epoch, mark) in self.marks.lock().unwrap().iter() {
            topic.logs()[0].restore_producer(mark, *epoch);
        }
        Arc::new(topic)
    }

    /// The stored records, as a durable log needs them when it is opened. If `epoch` is higher than all stored epochs,
    /// a new epoch begins.
    pub fn recovered(&self, epoch: u32) -> RecoveredLog {
        let blocks = self.blocks.lock().unwrap();
        let mut recovered = RecoveredLog::nothing(epoch, PLENTY);
        let Some(first) = blocks.first() else { return recovered };
        recovered.epochs =
            vec![EpochStart { epoch: first.epoch, first_seq: first.first_seq, after_loss: false }];
        recovered.oldest_seq = first.first_seq;
        for block in blocks.iter() {
            if block.epoch > recovered.epochs.last().unwrap().epoch {
                recovered.epochs.push(EpochStart {
                    epoch: block.epoch,
                    first_seq: block.first_seq,
                    after_loss: false,
                });
            }
            recovered.next_seq = block.first_seq + u64::from(block.count);
            recovered.last_append_ns = block.last_append_ns;
        }
        if epoch > recovered.epochs.last().unwrap().epoch {
            recovered.epochs.push(EpochStart { epoch, first_seq: recovered.next_seq, after_loss: false });
        }
        recovered
    }

    /// Stages the log's new records and writes them, without syncing them. `None` if there are none.
    pub fn write(&self, log: &Log) -> Option<StagedRecords> {
        let staged = log.stage()?;
        let mut blocks = self.blocks.lock().unwrap();
        for batch in staged.batches() {
            blocks.push(Block {
                epoch: staged.epoch(),
                first_seq: batch.first_seq(),
                count: batch.count(),
                frames: batch.frames().into_owned(),
                last_append_ns: staged.last_append_ns(),
            });
        }
        let marks = staged.marks().iter().map(|mark| (staged.epoch(), *mark));
        self.marks.lock().unwrap().extend(marks);
        log.mark_written(&staged);
        Some(staged)
    }

    /// Stages, writes and syncs the log's new records. Returns whether there were any.
    pub fn sync(&self, log: &Log) -> bool {
        let staged = self.write(log);
        staged.map(|staged| log.mark_synced(staged, PLENTY)).is_some()
    }

    /// Drops all blocks whose first record is before record `seq`.
    pub fn drop_before(&self, log: &Log, seq: u64) {
        log.drop_stored_before(seq);
        self.blocks.lock().unwrap().retain(|block| block.first_seq >= seq);
    }

    /// Retires the segment that was loaded last. Returns `false` while the segment is being read.
    pub fn retire_loaded(&self) -> bool {
        self.loaded.lock().unwrap().as_ref().is_some_and(LoadedSegment::retire)
    }

    /// Removes the block that contains record `seq`, as if the block could not be read.
    pub fn damage(&self, seq: u64) {
        let holds =
            |block: &Block| (block.first_seq..block.first_seq + u64::from(block.count)).contains(&seq);
        self.blocks.lock().unwrap().retain(|block| !holds(block));
    }
}

impl Store for MemoryStore {
    fn notify_staged(&self) {
        self.signals.fetch_add(1, Ordering::Relaxed);
    }

    fn load(&self, at: Position) -> DiskContent {
        self.loads.fetch_add(1, Ordering::Relaxed);
        if self.defers_reads.load(Ordering::Relaxed) {
            return DiskContent::Later;
        }
        let blocks = self.blocks.lock().unwrap();
        let after = blocks.partition_point(|block| block.first_seq + u64::from(block.count) <= at.seq);
        let Some(block) = blocks.get(after) else { return DiskContent::Lost { through: u64::MAX } };
        if block.first_seq > at.seq {
            return DiskContent::Lost { through: block.first_seq - 1 };
        }
        assert_eq!(block.epoch, at.epoch, "the log knows its epochs");
        let batch = CheckedBatch::check(&block.frames, block.count, 64 << 20).unwrap();
        let loaded = LoadedSegment::new(&self.budget, block.first_seq, batch).unwrap();
        *self.loaded.lock().unwrap() = Some(loaded.clone());
        DiskContent::Segment(loaded)
    }

    fn bytes(&self) -> u64 {
        self.blocks.lock().unwrap().iter().map(|block| block.frames.len() as u64).sum()
    }

    fn seek_time(&self, ns: u64) -> Option<Position> {
        let blocks = self.blocks.lock().unwrap();
        let block = blocks.iter().find(|block| block.last_append_ns >= ns)?;
        Some(Position { epoch: block.epoch, seq: block.first_seq })
    }
}

/// The configuration of a durable topic that keeps little in memory.
pub fn durable(acknowledge: AckLevel) -> TopicConfig {
    let durable = DurableOptions { acknowledge, memory_bytes: 64 << 10 };
    TopicConfig { durable: Some(durable), ..config(1 << 30) }
}
