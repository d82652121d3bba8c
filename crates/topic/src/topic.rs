//! A topic: a name, the subjects it owns, and its partitions.

use std::borrow::Borrow;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use crate::checked_run::CheckedRun;
use crate::claim::StateClaim;
use crate::config::{Clock, ConfigError, Retention, TopicConfig};
use crate::event::{LogName, Position};
use crate::fold::{Fold, FoldConfig, FoldError};
use crate::log::{Append, Appended, BATCH_BYTES_MAX, Counted, Log, ProducerMark, PublisherCount};
use crate::memory::Budget;
use crate::publish::{Acknowledged, Draft, PublishError, Receipt};
use crate::publisher::Publisher;
use crate::reading::ReaderInfo;
use crate::store::{Recovered, Store};
use crate::upstream::{ToOwner, Upstream};
use crate::wake::Waiter;
use dunlin_frame::FrameError;

/// How long a publisher waits for a disk that is behind.
const DISK_PATIENCE: Duration = Duration::from_secs(5);

/// A log, or several that share the keys among them.
#[derive(Debug)]
pub struct Topic {
    logs: Box<[Arc<Log>]>,
    config: Arc<TopicConfig>,
    acknowledges: Acknowledged,
    publishers: Arc<PublisherCount>,
}

/// A publisher that is counted as one of its topic's as long as this lives.
#[derive(Debug)]
pub struct PublisherPlace {
    topic: Arc<Topic>,
    counted: Option<Counted>,
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
    /// What the publisher knows of the partition's state, where the topic keeps one.
    pub claim: Option<&'a Arc<StateClaim>>,
    /// Readers of a reliable topic that do not make room lose their place.
    pub evict: bool,
    /// Another process handed it on, taking this one for the topic's owner.
    pub relayed: bool,
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
        if config.durable.is_some() {
            return Err(ConfigError::Unfit("a durable topic needs a disk"));
        }
        Topic::of_logs(name, config, budget, clock, epoch, no_fold, |log| log)
    }

    /// [`Topic::new`] with a state for each partition, which `fold` makes when the configuration names one.
    pub fn stateful(
        name: &str,
        config: Arc<TopicConfig>,
        budget: &Arc<Budget>,
        clock: Clock,
        epoch: u32,
        fold: impl Fn(&FoldConfig) -> Result<Box<dyn Fold>, FoldError>,
    ) -> Result<Topic, ConfigError> {
        if config.durable.is_some() {
            return Err(ConfigError::Unfit("a durable topic needs a disk"));
        }
        Topic::of_logs(name, config, budget, clock, epoch, fold, |log| log)
    }

    /// A durable topic that goes on from what its disks hold, one for each partition.
    pub fn durable(
        name: &str,
        config: Arc<TopicConfig>,
        budget: &Arc<Budget>,
        clock: Clock,
        disks: Vec<(Recovered, Arc<dyn Store>)>,
    ) -> Result<Topic, ConfigError> {
        Topic::durable_stateful(name, config, budget, clock, disks, no_fold)
    }

    /// [`Topic::durable`] with a state for each partition, which `fold` makes when the configuration names one. It is
    /// empty: whoever knows what the disks hold brings it to their end, before anybody publishes
    /// ([`Log::restore_fold`], [`Log::refold`]).
    pub fn durable_stateful(
        name: &str,
        config: Arc<TopicConfig>,
        budget: &Arc<Budget>,
        clock: Clock,
        disks: Vec<(Recovered, Arc<dyn Store>)>,
        fold: impl Fn(&FoldConfig) -> Result<Box<dyn Fold>, FoldError>,
    ) -> Result<Topic, ConfigError> {
        if config.durable.is_none() || disks.len() != usize::from(config.partitions) {
            return Err(ConfigError::Unfit("a disk for each partition of a durable topic, and for no other"));
        }
        let mut disks = disks.into_iter();
        Topic::of_logs(name, config, budget, clock, 0, fold, |log| match disks.next() {
            Some((recovered, store)) => log.durable(&recovered, store),
            None => log,
        })
    }

    /// A topic of which each log is a [mirror](crate::Log::is_mirror), until it is [taken over](crate::Log::take_over); its
    /// records come and go by `upstream`.
    pub fn mirrored(
        name: &str,
        config: Arc<TopicConfig>,
        budget: &Arc<Budget>,
        clock: Clock,
        epoch: u32,
        fold: impl Fn(&FoldConfig) -> Result<Box<dyn Fold>, FoldError>,
        upstream: &Arc<dyn Upstream>,
    ) -> Result<Topic, ConfigError> {
        let owner_is_durable = config.durable.is_some();
        let bytes = config.memory_bytes();
        let retention = Retention { bytes, ..config.retention };
        let of_logs = TopicConfig { durable: None, retention, ..(*config).clone() };
        let of_logs = if owner_is_durable { Arc::new(of_logs) } else { Arc::clone(&config) };
        let mut topic = Topic::of_logs(name, of_logs, budget, clock, epoch, fold, |log| {
            log.join(Arc::clone(upstream));
            log.hand_over(owner_is_durable, None);
            log
        })?;
        topic.acknowledges = config.durable.map_or(Acknowledged::Memory, |durable| durable.acknowledge);
        topic.config = config;
        Ok(topic)
    }

    fn of_logs(
        name: &str,
        config: Arc<TopicConfig>,
        budget: &Arc<Budget>,
        clock: Clock,
        epoch: u32,
        fold: impl Fn(&FoldConfig) -> Result<Box<dyn Fold>, FoldError>,
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
            if let Some(of) = &config.fold {
                let kept = fold(of)
                    .map_err(|error| ConfigError::Fold { kind: of.kind.clone(), why: error.to_string() })?;
                log.keep_state(kept);
            }
            Ok(Arc::new(log))
        };
        let logs = (0..config.partitions).map(&mut log).collect::<Result<_, ConfigError>>()?;
        let acknowledges = config.durable.map_or(Acknowledged::Memory, |durable| durable.acknowledge);
        Ok(Topic { logs, config, acknowledges, publishers })
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
        Publisher::new(self.publisher_place(), tail.to_owned())
    }

    /// For a door: one more publisher.
    pub fn publisher_place(self: &Arc<Topic>) -> PublisherPlace {
        self.place(Counted::Here)
    }

    /// For the topic's owner: one more node to which publishers are connected. They are counted there.
    pub fn place_of_node_with_publishers(self: &Arc<Topic>) -> PublisherPlace {
        self.place(Counted::Node)
    }

    fn place(self: &Arc<Topic>, counted: Counted) -> PublisherPlace {
        if self.publishers.add(counted) {
            self.count_publishers();
        }
        PublisherPlace { topic: Arc::clone(self), counted: Some(counted) }
    }

    /// For a node that hands on what its own publishers send: they are counted there.
    pub fn publisher_place_of_node(self: &Arc<Topic>) -> PublisherPlace {
        PublisherPlace { topic: Arc::clone(self), counted: None }
    }

    /// Publishers that have it open.
    pub fn publishers(&self) -> u32 {
        self.publishers.here()
    }

    /// Tells readers of the state whether publishers are connected, if that has changed, and the topic's owner if it is another
    /// process.
    pub fn count_publishers(&self) {
        if self.config.fold.is_none() {
            return;
        }
        self.logs.iter().for_each(|log| log.publishers_changed());
        if let Some(upstream) = self.logs[0].upstream.get() {
            upstream.publishers_changed();
        }
    }

    /// Appends a run; refused with [`PublishError::Full`] or [`PublishError::DiskBehind`] where a publisher in process
    /// would wait. On a durable topic [`Log::await_stored`] tells when the receipt is due.
    pub fn append_run(&self, now_ns: u64, append: RunAppend<'_>) -> Result<Receipt, PublishError> {
        let RunAppend { run, partition, mark, expect_last, claim, evict, relayed } = append;
        // Another node has checked what it hands on.
        if !relayed {
            run.check_replies()?;
        }
        let log = self.logs.get(partition).ok_or(PublishError::Batch("no such partition"))?;
        let after = self.last_claimed(claim)?;
        let here = Append { now_ns, mark, expect_last, after, evict, as_owner: false };
        match log.append_run(here, run) {
            Err(PublishError::Elsewhere) => self.append_elsewhere(now_ns, append),
            appended => self.receipt(partition, appended, claim),
        }
    }

    /// What a new publisher knows of its state, by partition; nothing where it keeps none.
    pub fn claims(&self) -> Box<[Arc<StateClaim>]> {
        let kept = if self.config.fold.is_some() { self.logs.len() } else { 0 };
        (0..kept).map(|_| Arc::default()).collect()
    }

    fn last_claimed(&self, claim: Option<&Arc<StateClaim>>) -> Result<Option<Position>, PublishError> {
        claim.map_or(Ok(None), |claim| claim.last(self.name()))
    }

    /// The receipt of what was appended here.
    fn receipt(
        &self,
        partition: usize,
        appended: Result<Appended, PublishError>,
        claim: Option<&Arc<StateClaim>>,
    ) -> Result<Receipt, PublishError> {
        if let Some(claim) = claim {
            match &appended {
                // What is not stored yet is not acknowledged.
                Ok(appended) if self.acknowledges() == Acknowledged::Memory => {
                    claim.acknowledged(appended.position);
                }
                Ok(_) => {}
                Err(error) => claim.settled(Err(error)),
            }
        }
        let Appended { position, duplicate } = appended?;
        let (partition, acknowledged) = (partition as u16, self.acknowledges());
        Ok(Receipt { partition, position, duplicate, acknowledged, new_epoch: false })
    }

    /// Appends a run that waited for this process to own the topic, as it does now, before any that comes meanwhile.
    pub fn append_as_owner(&self, now_ns: u64, append: RunAppend<'_>) -> Result<Receipt, PublishError> {
        let RunAppend { run, partition, mark, expect_last, claim, evict, .. } = append;
        let log = self.logs.get(partition).ok_or(PublishError::Batch("no such partition"))?;
        let after = self.last_claimed(claim)?;
        let as_owner = !log.is_mirror();
        let appended = log.append_run(Append { now_ns, mark, expect_last, after, evict, as_owner }, run);
        self.receipt(partition, appended, claim)
    }

    /// For a door: appends all drafts to the partition, or none. They are walked twice. As with
    /// [`append_run`](Topic::append_run) it is refused where a publisher in process would wait, and `evict` is for readers
    /// that do not make room.
    pub fn append_drafts<'d>(
        &self,
        now_ns: u64,
        partition: usize,
        evict: bool,
        drafts: impl Iterator<Item: Borrow<Draft<'d>>> + Clone,
    ) -> Result<Receipt, PublishError> {
        let log = self.logs.get(partition).ok_or(PublishError::Batch("no such partition"))?;
        let append = Append { now_ns, evict, ..Append::default() };
        let appended = match log.append_batch(append, drafts.clone()) {
            Err(PublishError::Elsewhere) => {
                let (frames, count) = self.encode(drafts)?;
                return self.append_encoded(partition, append, None, &frames, count);
            }
            appended => appended,
        };
        self.receipt(partition, appended, None)
    }

    /// Encodes drafts as they are handed on.
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

    /// Appends encoded drafts after a first try was told that the log may be another's.
    #[cold]
    pub(crate) fn append_encoded(
        &self,
        partition: usize,
        append: Append,
        claim: Option<&Arc<StateClaim>>,
        frames: &[u8],
        count: u32,
    ) -> Result<Receipt, PublishError> {
        let Append { now_ns, mark, expect_last, evict, .. } = append;
        let run = CheckedRun::check(frames, count, self.config.record_bytes_max as usize)?;
        let append = RunAppend { run, partition, mark, expect_last, claim, evict, relayed: false };
        self.append_elsewhere(now_ns, append)
    }

    /// The log did not take it without asking: it is another process's, or was not asked for since its lease was renewed.
    #[cold]
    fn append_elsewhere(&self, now_ns: u64, append: RunAppend<'_>) -> Result<Receipt, PublishError> {
        let RunAppend { run, partition, mark, expect_last, claim, evict, relayed } = append;
        let log = &self.logs[partition];
        let after = self.last_claimed(claim)?;
        if log.renew() {
            match log.append_run(Append { now_ns, mark, expect_last, after, evict, as_owner: false }, run) {
                // It has changed hands in between.
                Err(PublishError::Elsewhere) => {}
                appended => return self.receipt(partition, appended, claim),
            }
        }
        let upstream = log.upstream.get().ok_or(PublishError::Closed)?;
        let (frames, count) = (run.bytes(), run.count());
        let run = ToOwner { partition, frames, count, mark, expect_last, claim, relayed };
        let ticket = upstream.forward(run)?;
        Ok(Receipt {
            partition: partition as u16,
            position: Position { epoch: 0, seq: ticket },
            duplicate: false,
            acknowledged: Acknowledged::ByOwner,
            new_epoch: false,
        })
    }

    /// The readers that are shown to operators, those with the most records ahead first.
    pub fn readers(&self) -> Vec<ReaderInfo> {
        let mut readers: Vec<_> = self.logs.iter().flat_map(|log| log.readers()).collect();
        readers.sort_by_key(|reader| std::cmp::Reverse(reader.behind));
        readers
    }

    /// Has `waiter` notified when a registered reader of a reliable topic makes room.
    /// What its acknowledgements stand for.
    #[inline(always)]
    pub fn acknowledges(&self) -> Acknowledged {
        self.acknowledges
    }

    /// How long a publisher waits where there is no room.
    pub fn patience(&self) -> Duration {
        self.config.reliable.map_or(DISK_PATIENCE, |reliable| reliable.wait_max)
    }

    /// Has `waiter` notified when a registered reader of a reliable topic makes room, or a durable topic's disk.
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

impl Deref for PublisherPlace {
    type Target = Arc<Topic>;

    #[inline(always)]
    fn deref(&self) -> &Arc<Topic> {
        &self.topic
    }
}

impl Drop for PublisherPlace {
    fn drop(&mut self) {
        if self.counted.is_some_and(|counted| self.topic.publishers.remove(counted)) {
            self.topic.count_publishers();
        }
    }
}

/// For topics that are made without one.
fn no_fold(_: &FoldConfig) -> Result<Box<dyn Fold>, FoldError> {
    Err(FoldError("a topic that keeps a state is made with its fold".to_owned()))
}

/// FNV-1a, 64 bit: fixed for ever, because it decides where a key's records lie.
#[inline(always)]
pub fn key_hash(key: &[u8]) -> u64 {
    key.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}
