//! Topics. A topic has a name, a pattern that its subjects match, and a log for each partition.

use std::borrow::Borrow;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use crate::checked_batch::CheckedBatch;
use crate::claim::StateClaim;
use crate::config::{Clock, ConfigError, Retention, TopicConfig};
use crate::event::{LogName, Position};
use crate::log::{
    AppendOptions, AppendOutcome, BATCH_BYTES_MAX, Log, LossReports, ProducerMark, PublisherCount,
    PublisherKind,
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

/// How long a publisher waits at most for a disk that stores records too slowly.
const DISK_WAIT_MAX: Duration = Duration::from_secs(5);

/// A topic in this process, with one log for each partition.
#[derive(Debug)]
pub struct Topic {
    logs: Box<[Arc<Log>]>,
    config: Arc<TopicConfig>,
    ack_level: AckLevel,
    publishers: Arc<PublisherCount>,
}

/// The registration of a publisher at a topic. It ends when this value is dropped.
#[derive(Debug)]
pub struct PublisherRegistration {
    topic: Arc<Topic>,
    counted: Option<PublisherKind>,
}

/// A batch of records from a publisher in another process, to append to a topic.
#[derive(Debug, Clone, Copy)]
pub struct BatchAppend<'a> {
    /// The frames of the records.
    pub batch: CheckedBatch<'a>,
    /// The partition, as [`Topic::partition_of`] selects it by the key of the records.
    pub partition: usize,
    /// The producer of the batch and the number of its first record, if the publisher is a producer.
    pub mark: Option<ProducerMark>,
    /// The condition of the append, if any: the sequence number that the log's last record must have.
    pub expect_last: Option<u64>,
    /// The publisher's claim that the partition's state includes its last acknowledged record, if the topic keeps a
    /// state.
    pub claim: Option<&'a Arc<StateClaim>>,
    /// Whether registered subscribers of a reliable topic that leave no room are unregistered.
    pub evict: bool,
    /// Whether another node has forwarded the batch to this node, because the other node considers this node the owner.
    pub relayed: bool,
}

impl Topic {
    /// Creates a topic without records. `epoch` must be higher than all epochs of earlier topics with this name.
    ///
    /// # Errors
    /// [`ConfigError`] if the configuration is invalid, or is that of a durable topic.
    pub fn new(
        name: &str,
        config: Arc<TopicConfig>,
        budget: &Arc<MemoryBudget>,
        clock: Clock,
        epoch: u32,
    ) -> Result<Topic, ConfigError> {
        if config.durable.is_some() {
            return Err(ConfigError::Unfit(
                "a durable topic cannot be created without a store: use Topic::durable",
            ));
        }
        Topic::with_logs(name, config, budget, clock, epoch, no_reducer, |log| log)
    }

    /// Like [`Topic::new`], but each partition keeps a state. `reducer` creates the reducer that the configuration
    /// names.
    pub fn stateful(
        name: &str,
        config: Arc<TopicConfig>,
        budget: &Arc<MemoryBudget>,
        clock: Clock,
        epoch: u32,
        reducer: impl Fn(&ReducerConfig) -> Result<Box<dyn Reducer>, ReducerError>,
    ) -> Result<Topic, ConfigError> {
        if config.durable.is_some() {
            return Err(ConfigError::Unfit(
                "a durable topic cannot be created without a store: use Topic::durable_stateful",
            ));
        }
        Topic::with_logs(name, config, budget, clock, epoch, reducer, |log| log)
    }

    /// Opens a durable topic with the records on its disks. `disks` has the content of the disk, and the store, for
    /// each partition.
    pub fn durable(
        name: &str,
        config: Arc<TopicConfig>,
        budget: &Arc<MemoryBudget>,
        clock: Clock,
        disks: Vec<(RecoveredLog, Arc<dyn Store>)>,
    ) -> Result<Topic, ConfigError> {
        Topic::durable_stateful(name, config, budget, clock, disks, no_reducer)
    }

    /// Like [`Topic::durable`], but each partition keeps a state. `reducer` creates a reducer with an empty state.
    /// Before anything is published, the caller must bring each state up to the end of its log, with
    /// [`Log::restore_state`] and [`Log::replay_into_state`].
    pub fn durable_stateful(
        name: &str,
        config: Arc<TopicConfig>,
        budget: &Arc<MemoryBudget>,
        clock: Clock,
        disks: Vec<(RecoveredLog, Arc<dyn Store>)>,
        reducer: impl Fn(&ReducerConfig) -> Result<Box<dyn Reducer>, ReducerError>,
    ) -> Result<Topic, ConfigError> {
        if config.durable.is_none() || disks.len() != usize::from(config.partitions) {
            return Err(ConfigError::Unfit(
                "a durable topic needs one recovered log and one store for each partition",
            ));
        }
        let mut disks = disks.into_iter();
        Topic::with_logs(name, config, budget, clock, 0, reducer, |log| match disks.next() {
            Some((recovered, store)) => log.durable(&recovered, store),
            None => log,
        })
    }

    /// Creates a topic whose logs are [mirrors](crate::Log::is_mirror) until they are [taken
    /// over](crate::Log::take_over). `upstream` forwards published records to the owner, and feeds the mirrors.
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

    /// The configuration with which the topic was created.
    pub fn config(&self) -> &Arc<TopicConfig> {
        &self.config
    }

    /// The logs of the topic, one for each partition.
    pub fn logs(&self) -> &[Arc<Log>] {
        &self.logs
    }

    /// The partition that the key of a record selects. Records without a key go to partition 0.
    #[inline(always)]
    pub fn partition_of(&self, key: Option<&[u8]>) -> usize {
        match key {
            Some(key) if self.logs.len() > 1 => (key_hash(key) % self.logs.len() as u64) as usize,
            _ => 0,
        }
    }

    /// Creates a publisher for `subject`, which this topic must own.
    pub fn publisher(self: &Arc<Topic>, subject: &str) -> Publisher {
        let tail = subject.strip_prefix(self.logs[0].name.subject_prefix.as_str()).unwrap_or("");
        Publisher::new(self.register_publisher(), tail.to_owned())
    }

    /// Registers a publisher that is connected to a listener of this node.
    pub fn register_publisher(self: &Arc<Topic>) -> PublisherRegistration {
        self.register(PublisherKind::Local)
    }

    /// At the topic's owner, registers another node that has publishers. The number of these publishers is known only
    /// to that node.
    pub fn register_publishing_node(self: &Arc<Topic>) -> PublisherRegistration {
        self.register(PublisherKind::Node)
    }

    fn register(self: &Arc<Topic>, counted: PublisherKind) -> PublisherRegistration {
        if self.publishers.add(counted) {
            self.notify_publisher_change();
        }
        PublisherRegistration { topic: Arc::clone(self), counted: Some(counted) }
    }

    /// Creates a registration that does not count, for a publisher whose records another node forwards. The other node
    /// counts the publisher.
    pub fn uncounted_publisher(self: &Arc<Topic>) -> PublisherRegistration {
        PublisherRegistration { topic: Arc::clone(self), counted: None }
    }

    /// Number of publishers of the topic that are registered at this node.
    pub fn publishers(&self) -> u32 {
        self.publishers.local()
    }

    /// Must be called when the first publisher has connected or the last one has left. Notifies followers of the state
    /// and, if another node owns the topic, the owner.
    pub fn notify_publisher_change(&self) {
        if self.config.reducer.is_none() {
            return;
        }
        self.logs.iter().for_each(|log| log.handle_publisher_change());
        if let Some(upstream) = self.logs[0].upstream.get() {
            upstream.publishers_changed();
        }
    }

    /// Appends a batch, or forwards it to the owner. Unless the receipt's level is [`AckLevel::Memory`], the caller may
    /// send the receipt only after [`Log::poll_ack`] has reported that the level is reached.
    ///
    /// # Errors
    /// [`PublishError::Full`] or [`PublishError::DiskBehind`] if there is no room. (A publisher in the same process
    /// would wait instead.)
    pub fn append_batch(&self, now_ns: u64, append: BatchAppend<'_>) -> Result<Receipt, PublishError> {
        let BatchAppend { batch, partition, mark, expect_last, claim, evict, relayed } = append;
        // If another node has forwarded the batch, it has already checked the reply subjects of the records.
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

    /// Creates the claims of a new publisher, one for each partition; none if the topic keeps no state.
    pub fn claims(&self) -> Box<[Arc<StateClaim>]> {
        let count = if self.config.reducer.is_some() { self.logs.len() } else { 0 };
        (0..count).map(|_| Arc::default()).collect()
    }

    fn last_claimed(&self, claim: Option<&Arc<StateClaim>>) -> Result<Option<Position>, PublishError> {
        claim.map_or(Ok(None), |claim| claim.last(self.name()))
    }

    /// Makes the receipt of an append in this process, and updates the publisher's claim.
    fn receipt(
        &self,
        partition: usize,
        appended: Result<AppendOutcome, PublishError>,
        claim: Option<&Arc<StateClaim>>,
    ) -> Result<Receipt, PublishError> {
        if let Some(claim) = claim {
            match &appended {
                // On a durable topic, the record is not acknowledged yet.
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

    /// For a new owner: appends a batch that has waited for this process to become the owner. The log accepts other
    /// batches only after all such batches are appended.
    pub fn append_as_owner(&self, now_ns: u64, append: BatchAppend<'_>) -> Result<Receipt, PublishError> {
        let BatchAppend { batch, partition, mark, expect_last, claim, evict, .. } = append;
        let log = self.logs.get(partition).ok_or(PublishError::Batch("the partition does not exist"))?;
        let after = self.last_claimed(claim)?;
        let as_owner = !log.is_mirror();
        let appended =
            log.append_batch(AppendOptions { now_ns, mark, expect_last, after, evict, as_owner }, batch);
        self.receipt(partition, appended, claim)
    }

    /// Appends all drafts to the partition, or none of them. Intended for listeners: like
    /// [`append_batch`](Topic::append_batch), this method does not wait for room. `evict` states whether registered
    /// subscribers that leave no room are unregistered. The iterator is cloned, because the drafts are read several
    /// times.
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

    /// Encodes drafts, to forward them to the owner. Returns the bytes of the frames, and their number.
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

    /// Appends or forwards encoded drafts, after the log has returned [`PublishError::Elsewhere`] for them.
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

    /// Asks the upstream whether this process owns the log. If so, appends the batch; otherwise, forwards it to the
    /// owner.
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
                // This process has lost the ownership since the call above, so the batch is forwarded.
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

    /// The subscribers of all partitions, as operators see them, in descending order of their lag.
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

    /// How long a publisher waits at most when there is no room for its record.
    pub fn room_wait_max(&self) -> Duration {
        self.config.reliable.map_or(DISK_WAIT_MAX, |reliable| reliable.wait_max)
    }

    /// Registers `waiter`, which is notified when a registered subscriber of a reliable topic, or the disk of a durable
    /// topic, makes room in this partition.
    pub fn await_room(&self, partition: usize, waiter: &Arc<Waiter>) {
        if let Some(log) = self.logs.get(partition) {
            log.await_room(waiter);
        }
    }

    /// Housekeeping: drops records that are older than the retention allows, and wakes subscribers whose wake-up was
    /// not passed on. Must be called a few times a second.
    pub fn expire(&self, now_ns: u64) {
        self.logs.iter().for_each(|log| log.expire(now_ns));
    }

    /// Connects the topic to the node's counters and reports of lost records. Only the first call has an effect.
    pub fn report_losses_to(&self, reports: &Arc<LossReports>) {
        self.logs.iter().for_each(|log| log.report_losses_to(reports));
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

/// Creates the reducer of a topic without a state: always returns an error.
fn no_reducer(_: &ReducerConfig) -> Result<Box<dyn Reducer>, ReducerError> {
    Err(ReducerError("a state topic needs a reducer".to_owned()))
}

/// The hash function FNV-1a with 64 bits. It must never change, because the hash of a key selects the partition of the
/// key's records.
#[inline(always)]
pub fn key_hash(key: &[u8]) -> u64 {
    key.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}
