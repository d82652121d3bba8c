//! A topic: a name, the subjects it owns, and its partitions.

use std::sync::Arc;

use crate::checked_run::CheckedRun;
use crate::config::{Clock, ConfigError, TopicConfig};
use crate::event::LogName;
use crate::log::{Append, Log, ProducerMark};
use crate::memory::Budget;
use crate::publish::{Acknowledged, PublishError, Receipt};
use crate::publisher::Publisher;
use crate::wake::Waiter;

/// A log, or several that share the keys among them.
#[derive(Debug)]
pub struct Topic {
    logs: Box<[Arc<Log>]>,
    config: Arc<TopicConfig>,
}

/// A run as it came from a remote publisher.
#[derive(Debug, Clone, Copy)]
pub struct RunAppend<'a> {
    /// Its frames.
    pub run: CheckedRun<'a>,
    /// The partition, which [`Topic::partition_of`] chose by the key of all its records.
    pub partition: usize,
    /// Who published it.
    pub mark: Option<ProducerMark>,
    /// Append only if the log's last record has this sequence.
    pub expect_last: Option<u64>,
    /// Readers of a reliable topic that do not make room lose their place.
    pub evict: bool,
}

impl Topic {
    /// A topic with no records. `epoch` is higher than any that a topic of this name had before.
    pub fn new(
        name: &str,
        config: Arc<TopicConfig>,
        budget: &Arc<Budget>,
        clock: Clock,
        epoch: u32,
    ) -> Result<Topic, ConfigError> {
        config.check()?;
        let pattern = config.pattern.as_deref().unwrap_or(name);
        let subject_prefix = crate::subject::literal_prefix(pattern);
        let log = |partition| {
            let name =
                LogName { topic: name.to_owned(), subject_prefix: subject_prefix.to_owned(), partition };
            Arc::new(Log::new(name, Arc::clone(&config), Arc::clone(budget), clock, epoch))
        };
        Ok(Topic { logs: (0..config.partitions).map(log).collect(), config })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.logs[0].name.topic
    }

    /// The subjects it owns.
    pub fn pattern(&self) -> &str {
        self.config.pattern.as_deref().unwrap_or(self.name())
    }

    /// What it was created with.
    pub fn config(&self) -> &Arc<TopicConfig> {
        &self.config
    }

    /// Its partitions.
    pub fn logs(&self) -> &[Arc<Log>] {
        &self.logs
    }

    /// The partition of a key; records without a key all go to the first.
    #[inline(always)]
    pub fn partition_of(&self, key: Option<&[u8]>) -> usize {
        match key {
            Some(key) if self.logs.len() > 1 => (key_hash(key) % self.logs.len() as u64) as usize,
            _ => 0,
        }
    }

    /// A publisher to `subject`, which this topic owns.
    pub fn publisher(self: &Arc<Topic>, subject: &str) -> Publisher {
        let tail = subject.strip_prefix(self.logs[0].name.subject_prefix.as_str()).unwrap_or("");
        Publisher::new(Arc::clone(self), tail.to_owned())
    }

    /// Appends a run; refused with [`PublishError::Full`] where a publisher in process would wait.
    pub fn append_run(&self, now_ns: u64, append: RunAppend<'_>) -> Result<Receipt, PublishError> {
        let RunAppend { run, partition, mark, expect_last, evict } = append;
        let log = self.logs.get(partition).ok_or(PublishError::Batch("no such partition"))?;
        let appended = log.append_run(Append { now_ns, mark, expect_last, evict }, run)?;
        Ok(Receipt {
            partition: partition as u16,
            position: appended.position,
            duplicate: appended.duplicate,
            acknowledged: Acknowledged::Memory,
        })
    }

    /// Has `waiter` notified when a registered reader of a reliable topic makes room.
    pub fn await_room(&self, partition: usize, waiter: &Arc<Waiter>) {
        if let Some(log) = self.logs.get(partition) {
            log.await_room(waiter);
        }
    }

    /// Housekeeping, to be called a few times a second: gives up records older than the topic keeps, and wakes
    /// readers that another one should have woken but did not.
    pub fn expire(&self, now_ns: u64) {
        self.logs.iter().for_each(|log| log.expire(now_ns));
    }

    /// Ends the topic: publishers are refused, readers get what is left and are told then.
    pub fn close(&self) {
        self.logs.iter().for_each(|log| log.close());
    }
}

/// FNV-1a, 64 bit: fixed for ever, because it decides where a key's records lie.
#[inline(always)]
pub fn key_hash(key: &[u8]) -> u64 {
    key.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}
