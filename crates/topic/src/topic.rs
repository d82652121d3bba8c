//! Topics. A topic has a name, a pattern of the subjects that it owns, and a log for each partition.

use std::borrow::Borrow;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use crate::checked_batch::CheckedBatch;
use crate::claim::StateClaim;
use crate::config::{Clock, ConfigError, Retention, TopicConfig};
use crate::event::{LogName, Position};
use crate::log::{
    AppendOptions, AppendOutcome, BATCH_BYTES_MAX, Log, ProducerMark, PublisherCount, PublisherKind,
};
use crate::memory::MemoryBudget;
use crate::progress::SubscriberInfo;
use crate::publish::{AckLevel, Draft, PublishError, Receipt};
use crate::publisher::Publisher;
use crate::reducer::{Reducer, ReducerConfig, ReducerError};
use crate::store::{RecoveredLog, Store};
use crate::upstream::{ForwardedBatch, Upstream};
use crate::wake::Waiter;
use dunlin_frame::FrameError;

/// The longest time that a publisher waits for a slow disk.
const DISK_WAIT_MAX: Duration = Duration::from_secs(5);

/// A topic in this process: one log for each partition.
#[derive(Debug)]
pub struct Topic {
    logs: Box<[Arc<Log>]>,
    config: Arc<TopicConfig>,
    ack_level: AckLevel,
    publishers: Arc<PublisherCount>,
}

/// The registration of one publisher at a topic. Dropping this value ends the registration.
#[derive(Debug)]
pub struct PublisherRegistration {
    topic: Arc<Topic>,
    counted: Option<PublisherKind>,
}

/// A batch of records to append to a topic, which a publisher in another process sent.
#[derive(Debug, Clone, Copy)]
pub struct BatchAppend<'a> {
    /// The frames.
    pub batch: CheckedBatch<'a>,
    /// The partition. [`Topic::partition_of`] selects it by the key of the records.
    pub partition: usize,
    /// The publisher's identity and the number of its first record.
    pub mark: Option<ProducerMark>,
    /// The condition of the append, if any: the sequence number that the log's last record must have.
    pub expect_last: Option<u64>,
    /// The publisher's claim on the partition's state, if the topic keeps one.
    pub claim: Option<&'a Arc<StateClaim>>,
    /// Whether the append unregisters subscribers of a reliable topic that do not make room.
    pub evict: bool,
    /// Whether another node has forwarded the batch because it considers this node the owner.
    pub relayed: bool,
}

impl Topic {
    /// Creates a topic without records. `epoch` is higher than any earlier epoch of this topic name.
    ///
    /// # Errors
    /// [`ConfigError`] if the configuration is invalid or durable.
    pub fn new(
        name: &str,
        config: Arc<TopicConfig>,
        budget: &Arc<MemoryBudget>,
        clock: Clock,
        epoch: u32,
    ) -> Result<Topic, ConfigError> {
        if config.durable.is_some() {
            return Err(ConfigError::Unfit("a durable topic needs a disk"));
        }
        Topic::with_logs(name, config, budget, clock, epoch, no_reducer, |log| log)
    }

    /// Like [`Topic::new`], but with a state for each partition. `reducer` makes the reducer that the
    /// configuration names.
    pub fn stateful(
        name: &str,
        config: Arc<TopicConfig>,
        budget: &Arc<MemoryBudget>,
        clock: Clock,
        epoch: u32,
        reducer: impl Fn(&ReducerConfig) -> Result<Box<dyn Reducer>, ReducerError>,
    ) -> Result<Topic, ConfigError> {
        if config.durable.is_some() {
            return Err(ConfigError::Unfit("a durable topic needs a disk"));
        }
        Topic::with_logs(name, config, budget, clock, epoch, reducer, |log| log)
    }

    /// Opens a durable topic with the records on its disks, one disk for each partition.
    pub fn durable(
        name: &str,
        config: Arc<TopicConfig>,
        budget: &Arc<MemoryBudget>,
        clock: Clock,
        disks: Vec<(RecoveredLog, Arc<dyn Store>)>,
    ) -> Result<Topic, ConfigError> {
        Topic::durable_stateful(name, config, budget, clock, disks, no_reducer)
    }

    /// Like [`Topic::durable`], but with a state for each partition. `reducer` makes a reducer with an empty state.
    /// Before records are published, the caller brings each state up to the end of its log with [`Log::restore_state`]
    /// and [`Log::replay_into_state`].
    pub fn durable_stateful(
        name: &str,
        config: Arc<TopicConfig>,
        budget: &Arc<MemoryBudget>,
        clock: Clock,
        disks: Vec<(RecoveredLog, Arc<dyn Store>)>,
        reducer: impl Fn(&ReducerConfig) -> Result<Box<dyn Reducer>, ReducerError>,
    ) -> Result<Topic, ConfigError> {
        if config.durable.is_none() || disks.len() != usize::from(config.partitions) {
            return Err(ConfigError::Unfit("a durable topic needs one disk for each partition"));
        }
        let mut disks = disks.into_iter();
        Topic::with_logs(name, config, budget, clock, 0, reducer, |log| match disks.next() {
            Some((recovered, store)) => log.durable(&recovered, store),
            None => log,
        })
    }

    /// Creates a topic whose logs are [mirrors](crate::Log::is_mirror) until they are [taken
    /// over](crate::Log::take_over). `upstream` forwards records to the owner and feeds the mirrors.
    pub fn mirrored(
        name: &str,
        config: Arc<TopicConfig>,
        budget: &Arc<MemoryBudget>,
        clock: Clock,
        epoch: u32,
        reducer: impl Fn(&ReducerConfig) -> Result<Box<dyn Reducer>, ReducerError>,
        upstream: &Arc<dyn Upstream>,
    ) -> Result<Topic, ConfigError> {
        let owner_is_durable = config.durable.is_some();
        let bytes = config.memory_bytes();
        let retention = Retention { bytes, ..config.retention };
        let log_config = TopicConfig { durable: None, retention, ..(*config).clone() };
        let log_config = if owner_is_durable { Arc::new(log_config) } else { Arc::clone(&config) };
        let mut topic = Topic::with_logs(name, log_config, budget, clock, epoch, reducer, |log| {
            log.set_upstream(Arc::clone(upstream));
            log.hand_over(owner_is_durable, None);
            if bytes < config.retention.bytes {
                log.set_owner_retains_more();
            }
            log
        })?;
        topic.ack_level = config.durable.map_or(AckLevel::Memory, |durable| durable.acknowledge);
        topic.config = config;
        Ok(topic)
    }

    fn with_logs(
        name: &str,
        config: Arc<TopicConfig>,
        budget: &Arc<MemoryBudget>,
        clock: Clock,
        epoch: u32,
        reducer: impl Fn(&ReducerConfig) -> Result<Box<dyn Reducer>, ReducerError>,
        mut finish: impl FnMut(Log) -> Log,
    ) -> Result<Topic, ConfigError> {
        config.check()?;
        let pattern = config.pattern.as_deref().unwrap_or(name);
        let subject_prefix = crate::subject::literal_prefix(pattern);
        let publishers = Arc::default();
        let mut log = |partition| {
            let name =
                LogName { topic: name.to_owned(), subject_prefix: subject_prefix.to_owned(), partition };
            let log =
                finish(Log::new(name, Arc::clone(&config), Arc::clone(budget), clock, epoch, &publishers));
            if let Some(reducer_config) = &config.reducer {
                let reducer = reducer(reducer_config).map_err(|error| ConfigError::Reducer {
                    kind: reducer_config.kind.clone(),
                    why: error.to_string(),
                })?;
                log.set_reducer(reducer);
            }
            Ok(Arc::new(log))
        };
        let logs = (0..config.partitions).map(&mut log).collect::<Result<_, ConfigError>>()?;
        let ack_level = config.durable.map_or(AckLevel::Memory, |durable| durable.acknowledge);
        Ok(Topic { logs, config, ack_level, publishers })
    }

    /// The topic's name.
    pub fn name(&self) -> &str {
        &self.logs[0].name.topic
    }

    /// The pattern of the subjects that the topic owns.
    pub fn pattern(&self) -> &str {
        self.config.pattern.as_deref().unwrap_or(self.name())
    }

    /// The configuration that the topic was created with.
    pub fn config(&self) -> &Arc<TopicConfig> {
        &self.config
    }

    /// The logs of the topic, one for each partition.
    pub fn logs(&self) -> &[Arc<Log>] {
        &self.logs
    }

    /// The partition that the key selects. Records without a key go to partition 0.
    #[inline(always)]
    pub fn partition_of(&self, key: Option<&[u8]>) -> usize {
        match key {
            Some(key) if self.logs.len() > 1 => (key_hash(key) % self.logs.len() as u64) as usize,
            _ => 0,
        }
    }

    /// Creates a publisher to `subject`, which this topic owns.
    pub fn publisher(self: &Arc<Topic>, subject: &str) -> Publisher {
        let tail = subject.strip_prefix(self.logs[0].name.subject_prefix.as_str()).unwrap_or("");
        Publisher::new(self.register_publisher(), tail.to_owned())
    }

    /// Registers a publisher of a listener.
    pub fn register_publisher(self: &Arc<Topic>) -> PublisherRegistration {
        self.register(PublisherKind::Local)
    }

    /// Registers, at the topic's owner, another node that has publishers. The other node counts its own publishers.
    pub fn register_publishing_node(self: &Arc<Topic>) -> PublisherRegistration {
        self.register(PublisherKind::Node)
    }

    fn register(self: &Arc<Topic>, counted: PublisherKind) -> PublisherRegistration {
        if self.publishers.add(counted) {
            self.notify_publisher_change();
        }
        PublisherRegistration { topic: Arc::clone(self), counted: Some(counted) }
    }

    /// The registration of a publisher that this node does not count. The node that forwards the publisher's records
    /// counts the publisher.
    pub fn uncounted_publisher(self: &Arc<Topic>) -> PublisherRegistration {
        PublisherRegistration { topic: Arc::clone(self), counted: None }
    }

    /// Number of publishers that have the topic open at this node.
    pub fn publishers(&self) -> u32 {
        self.publishers.local()
    }

    /// Notifies followers of the state when the first publisher has connected or the last one has left. If another node
    /// owns the topic, also notifies the owner.
    pub fn notify_publisher_change(&self) {
        if self.config.reducer.is_none() {
            return;
        }
        self.logs.iter().for_each(|log| log.handle_publisher_change());
        if let Some(upstream) = self.logs[0].upstream.get() {
            upstream.publishers_changed();
        }
    }

    /// Appends a batch. On a durable topic, the receipt may be sent only when [`Log::poll_ack`] reports that the
    /// acknowledgement level is reached.
    ///
    /// # Errors
    /// [`PublishError::Full`] or [`PublishError::DiskBehind`] where a publisher in process would wait.
    pub fn append_batch(&self, now_ns: u64, append: BatchAppend<'_>) -> Result<Receipt, PublishError> {
        let BatchAppend { batch, partition, mark, expect_last, claim, evict, relayed } = append;
        // The node that forwarded the batch has already checked the reply fields of the batch.
        if !relayed {
            batch.check_replies()?;
        }
        let log = self.logs.get(partition).ok_or(PublishError::Batch("the partition does not exist"))?;
        let after = self.last_claimed(claim)?;
        let options = AppendOptions { now_ns, mark, expect_last, after, evict, as_owner: false };
        match log.append_batch(options, batch) {
            Err(PublishError::Elsewhere) => self.append_or_forward(now_ns, append),
            appended => self.receipt(partition, appended, claim),
        }
    }

    /// Creates claims for a new publisher, one for each partition; empty if the topic keeps no state.
    pub fn claims(&self) -> Box<[Arc<StateClaim>]> {
        let count = if self.config.reducer.is_some() { self.logs.len() } else { 0 };
        (0..count).map(|_| Arc::default()).collect()
    }

    fn last_claimed(&self, claim: Option<&Arc<StateClaim>>) -> Result<Option<Position>, PublishError> {
        claim.map_or(Ok(None), |claim| claim.last(self.name()))
    }

    /// Makes the receipt of a local append and updates the publisher's claim.
    fn receipt(
        &self,
        partition: usize,
        appended: Result<AppendOutcome, PublishError>,
        claim: Option<&Arc<StateClaim>>,
    ) -> Result<Receipt, PublishError> {
        if let Some(claim) = claim {
            match &appended {
                // Records that are not stored yet are not acknowledged.
                Ok(appended) if self.ack_level() == AckLevel::Memory => {
                    claim.record_ack(appended.position);
                }
                Ok(_) => {}
                Err(error) => claim.record_outcome(Err(error)),
            }
        }
        let AppendOutcome { position, duplicate } = appended?;
        let (partition, acknowledged) = (partition as u16, self.ack_level());
        Ok(Receipt { partition, position, duplicate, acknowledged, new_epoch: false })
    }

    /// For a new owner: appends a batch that waited until this process became the owner. Batches that arrive later are
    /// appended after this batch.
    pub fn append_as_owner(&self, now_ns: u64, append: BatchAppend<'_>) -> Result<Receipt, PublishError> {
        let BatchAppend { batch, partition, mark, expect_last, claim, evict, .. } = append;
        let log = self.logs.get(partition).ok_or(PublishError::Batch("the partition does not exist"))?;
        let after = self.last_claimed(claim)?;
        let as_owner = !log.is_mirror();
        let appended =
            log.append_batch(AppendOptions { now_ns, mark, expect_last, after, evict, as_owner }, batch);
        self.receipt(partition, appended, claim)
    }

    /// Appends all drafts to the partition, or none; for listeners. The iterator is cloned, because it is consumed
    /// several times. Like [`append_batch`](Topic::append_batch), this method does not wait for room. `evict`
    /// unregisters subscribers that do not make room.
    pub fn append_drafts<'d>(
        &self,
        now_ns: u64,
        partition: usize,
        evict: bool,
        drafts: impl Iterator<Item: Borrow<Draft<'d>>> + Clone,
    ) -> Result<Receipt, PublishError> {
        let log = self.logs.get(partition).ok_or(PublishError::Batch("the partition does not exist"))?;
        let append = AppendOptions { now_ns, evict, ..AppendOptions::default() };
        let appended = match log.append_drafts(append, drafts.clone()) {
            Err(PublishError::Elsewhere) => {
                let (frames, count) = self.encode(drafts)?;
                return self.append_encoded(partition, append, None, &frames, count);
            }
            appended => appended,
        };
        self.receipt(partition, appended, None)
    }

    /// Encodes drafts to be forwarded to the owner; returns the frames and their number.
    #[cold]
    pub(crate) fn encode<'d>(
        &self,
        drafts: impl Iterator<Item: Borrow<Draft<'d>>>,
    ) -> Result<(Vec<u8>, u32), PublishError> {
        let (mut frames, mut count) = (Vec::new(), 0);
        let bytes_max = self.config.record_bytes_max as usize;
        for draft in drafts {
            let draft = draft.borrow();
            let payload = draft.payload.as_slice();
            let encoded = draft.meta.measure(payload.len())?;
            let (start, bytes) = (frames.len(), encoded.padded());
            if bytes > bytes_max {
                return Err(PublishError::RecordTooLarge { bytes, bytes_max });
            }
            if start + bytes > BATCH_BYTES_MAX.max(bytes_max) {
                return Err(FrameError::TooLarge { bytes: start + bytes, bytes_max: BATCH_BYTES_MAX }.into());
            }
            frames.resize(start + bytes, 0);
            draft.meta.encode(encoded, 0, payload, &mut frames[start..]);
            count += 1;
        }
        Ok((frames, count))
    }

    /// Appends encoded drafts after the log returned [`PublishError::Elsewhere`].
    #[cold]
    pub(crate) fn append_encoded(
        &self,
        partition: usize,
        append: AppendOptions,
        claim: Option<&Arc<StateClaim>>,
        frames: &[u8],
        count: u32,
    ) -> Result<Receipt, PublishError> {
        let AppendOptions { now_ns, mark, expect_last, evict, .. } = append;
        let batch = CheckedBatch::check(frames, count, self.config.record_bytes_max as usize)?;
        let append = BatchAppend { batch, partition, mark, expect_last, claim, evict, relayed: false };
        self.append_or_forward(now_ns, append)
    }

    /// Renews the ownership lease and appends the batch. If this process does not own the log, forwards the batch to
    /// the owner.
    #[cold]
    fn append_or_forward(&self, now_ns: u64, append: BatchAppend<'_>) -> Result<Receipt, PublishError> {
        let BatchAppend { batch, partition, mark, expect_last, claim, evict, relayed } = append;
        let log = &self.logs[partition];
        let after = self.last_claimed(claim)?;
        if log.renew_ownership() {
            match log.append_batch(
                AppendOptions { now_ns, mark, expect_last, after, evict, as_owner: false },
                batch,
            ) {
                // The owner has changed again in the meantime.
                Err(PublishError::Elsewhere) => {}
                appended => return self.receipt(partition, appended, claim),
            }
        }
        let upstream = log.upstream.get().ok_or(PublishError::Closed)?;
        let (frames, count) = (batch.bytes(), batch.count());
        let forwarded = ForwardedBatch { partition, frames, count, mark, expect_last, claim, relayed };
        let ticket = upstream.forward(forwarded)?;
        Ok(Receipt {
            partition: partition as u16,
            position: Position { epoch: 0, seq: ticket },
            duplicate: false,
            acknowledged: AckLevel::ByOwner,
            new_epoch: false,
        })
    }

    /// The subscribers that operators see, in descending order of their lag.
    pub fn subscribers(&self) -> Vec<SubscriberInfo> {
        let mut subscribers: Vec<_> = self.logs.iter().flat_map(|log| log.subscribers()).collect();
        subscribers.sort_by_key(|subscriber| std::cmp::Reverse(subscriber.lag));
        subscribers
    }

    /// The acknowledgement level of the topic.
    #[inline(always)]
    pub fn ack_level(&self) -> AckLevel {
        self.ack_level
    }

    /// The longest time for which a publisher waits for room.
    pub fn room_wait_max(&self) -> Duration {
        self.config.reliable.map_or(DISK_WAIT_MAX, |reliable| reliable.wait_max)
    }

    /// Notifies `waiter` when a registered subscriber of a reliable topic, or the disk of a durable topic, makes
    /// room.
    pub fn await_room(&self, partition: usize, waiter: &Arc<Waiter>) {
        if let Some(log) = self.logs.get(partition) {
            log.await_room(waiter);
        }
    }

    /// Housekeeping, to be called a few times a second: drops records beyond the retention age, and wakes subscribers
    /// whose wake-up was not passed on.
    pub fn expire(&self, now_ns: u64) {
        self.logs.iter().for_each(|log| log.expire(now_ns));
    }

    /// Closes the topic. Publishers are refused; subscribers receive the remaining records and then the end.
    pub fn close(&self) {
        self.logs.iter().for_each(|log| log.close());
    }
}

impl Deref for PublisherRegistration {
    type Target = Arc<Topic>;

    #[inline(always)]
    fn deref(&self) -> &Arc<Topic> {
        &self.topic
    }
}

impl Drop for PublisherRegistration {
    fn drop(&mut self) {
        if self.counted.is_some_and(|counted| self.topic.publishers.remove(counted)) {
            self.topic.notify_publisher_change();
        }
    }
}

/// The reducer factory for topics without a state; it always fails.
fn no_reducer(_: &ReducerConfig) -> Result<Box<dyn Reducer>, ReducerError> {
    Err(ReducerError("a state topic needs a reducer".to_owned()))
}

/// The hash function FNV-1a, 64 bit. The function never changes, because the hash of a key selects the partition of its
/// records.
#[inline(always)]
pub fn key_hash(key: &[u8]) -> u64 {
    key.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}
