//! All regions of one process.
//!
//! Invariants:
//! - A call of a host method delivers messages between the host's own regions before it returns. Messages for other
//!   processes are in [`HostOutput::messages`], in the order in which they were sent.
//! - A change is published and sent to standbys before the messages that depend on it. The change for the standby and
//!   these messages are in the same [`HostOutput`].
//! - A region that has no lease, or that waits for its standby, does not delay other regions.
//!
//! Limits: those of `space::RegionLimits`. Reports beyond `reports_max` are dropped and counted.

mod entities;
mod figures;
mod topics;
mod viewing;

use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};
use std::time::Instant;

use bytes::Bytes;
use dunlin_space::{
    Behaviour, EntityId, GhostStripError, Partition, Region, RegionAuthority, RegionId, RegionOutputs,
    RegionReport, RegionSetup, RegionState, StepError, SurroundingsWatch, Takeover, ViewerId,
};
use dunlin_topic::{Publish, PublishError, Publisher};

use crate::error::TopicError;
use crate::node::Node;

pub use entities::EntityStatus;
pub(crate) use figures::Figures;
pub use figures::RegionFigures;

/// The largest size of a record of a region, bytes.
const RECORD_BYTES_MAX: u32 = 64 << 20;
/// The number of ticks after a refused record before the region's whole state is published.
const WHOLE_AFTER_TICKS: u64 = 10;

/// The topics to which a [`Host`] publishes its regions: their node, their world, and their history.
#[derive(Debug, Clone)]
pub struct WorldTopics {
    /// The node with the topics.
    pub node: Node,
    /// The name of the world, part of the topics' names.
    pub world: String,
    /// History of each topic, bytes.
    pub history_bytes: u64,
}

/// The reason why a region cannot begin in this process.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HostError {
    /// The region already runs in this process.
    #[error("this process already runs region {}", .0.0)]
    Here(RegionId),
    /// The world has no region with this number.
    #[error("region {} is not one of the regions of this world", .0.0)]
    Unknown(RegionId),
    /// The strip along borders, whose entities are sent as ghosts, is too narrow for the behaviour.
    #[error(transparent)]
    Strip(#[from] GhostStripError),
    /// The topic of the region cannot be created.
    #[error("cannot create the topic of region {}: {why}", .region.0)]
    Topic {
        /// The region.
        region: RegionId,
        /// The error.
        why: TopicError,
    },
    /// The topic of the region refused its state.
    #[error("the topic of region {} refused the region's state: {why}", .region.0)]
    Publish {
        /// The region.
        region: RegionId,
        /// The error.
        why: PublishError,
    },
}

/// The records and messages of a [`Host`] that its caller must send, the records first.
#[derive(Debug, Default)]
pub struct HostOutput {
    /// Changes of regions that have a standby.
    pub records: Vec<(RegionId, Bytes)>,
    /// Messages for regions that other processes own.
    pub messages: Vec<(RegionId, Vec<u8>)>,
}

/// Counters of a [`Host`] since its creation, such as the ticks that its regions ran and missed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HostCounts {
    /// The number of ticks of all regions.
    pub ticks: u64,
    /// The number of ticks missed because the region had no valid lease.
    pub unauthorised: u64,
    /// The number of ticks missed because the standby was behind.
    pub behind: u64,
    /// The number of messages that could not be decoded or whose region does not run here.
    pub refused: u64,
    /// The number of records that the region's topic refused.
    pub unpublished: u64,
    /// The number of reports dropped because of the limit `reports_max`.
    pub reports_dropped: u64,
}

struct HostedRegion<const D: usize, B> {
    region: Region<D, B>,
    out: RegionOutputs,
    publisher: Option<Publisher>,
    has_standby: bool,
    /// Whether the region's changes count as confirmed without a standby.
    runs_alone: bool,
    /// The first tick at which the region's whole state is published instead of its changes; `None` if the topic has
    /// received all changes. It is set when the topic has refused a record, because the topic's state then differs from
    /// the region's state.
    whole_from: Option<u64>,
    /// The number of ticks made, the total duration of these ticks in ns, and the number of missed ticks.
    ticks: u64,
    ticks_ns: u64,
    ticks_missed: u64,
}

/// Runs all regions of one process of a world.
pub struct Host<const D: usize, B> {
    setup: RegionSetup<D>,
    behaviour: B,
    partition: Partition,
    topics: Option<WorldTopics>,
    regions: BTreeMap<RegionId, HostedRegion<D, B>>,
    viewers: BTreeMap<ViewerId, SurroundingsWatch>,
    local_messages: VecDeque<(RegionId, Vec<u8>)>,
    output: HostOutput,
    reports: Vec<(RegionId, RegionReport)>,
    /// Entities spawned since the last call of [`Host::take_spawned`].
    spawned: Vec<EntityId>,
    /// Entities that were spawned here, whose ids are not yet known to be unique, and that were not handed over since.
    unconfirmed: HashSet<EntityId>,
    counts: HostCounts,
    figures_reported_at: Option<Instant>,
}

impl<const D: usize, B: Behaviour<D> + Clone> Host<D, B> {
    /// A host without regions. `setup` applies to every region, except for the region number that it contains.
    pub fn new(
        setup: RegionSetup<D>,
        behaviour: B,
        partition: Partition,
        topics: Option<WorldTopics>,
    ) -> Host<D, B> {
        Host {
            setup,
            behaviour,
            partition,
            topics,
            regions: BTreeMap::new(),
            viewers: BTreeMap::new(),
            local_messages: VecDeque::new(),
            output: HostOutput::default(),
            reports: Vec::new(),
            spawned: Vec::new(),
            unconfirmed: HashSet::new(),
            counts: HostCounts::default(),
            figures_reported_at: None,
        }
    }

    /// Begins a region without entities.
    pub fn begin(&mut self, region: RegionId, authority: RegionAuthority) -> Result<(), HostError> {
        self.check_new(region)?;
        let setup = RegionSetup { region, ..self.setup.clone() };
        let region_state = Region::new(setup, self.behaviour.clone(), self.partition.clone(), authority);
        self.insert(region, region_state, RegionOutputs::default())
    }

    /// Begins a region from its standby's copy.
    pub fn take_over(
        &mut self,
        region: RegionId,
        state: RegionState<D>,
        succession: &Takeover<'_>,
    ) -> Result<(), HostError> {
        self.check_new(region)?;
        let (setup, mut out) = (RegionSetup { region, ..self.setup.clone() }, RegionOutputs::default());
        let (behaviour, partition) = (self.behaviour.clone(), self.partition.clone());
        let region_state = Region::take_over(setup, behaviour, partition, state, succession, &mut out);
        // The record is dropped: the topic begins with the region's complete state, which already contains the changes
        // in the record.
        out.record.clear();
        self.insert(region, region_state, out)
    }

    /// Checks that the strip along borders is wide enough for the behaviour. A world of one region needs no strip.
    pub fn check_strip(&self) -> Result<(), HostError> {
        if self.partition.regions().len() > 1 {
            self.setup.check_strip(self.behaviour.sight())?;
        }
        Ok(())
    }

    fn check_new(&self, region: RegionId) -> Result<(), HostError> {
        self.check_strip()?;
        if self.regions.contains_key(&region) {
            return Err(HostError::Here(region));
        }
        self.partition.stretch(region).map(drop).ok_or(HostError::Unknown(region))
    }

    fn insert(&mut self, id: RegionId, region: Region<D, B>, out: RegionOutputs) -> Result<(), HostError> {
        let publisher = self.open_topic(id, &region)?;
        let hosted = HostedRegion {
            region,
            out,
            publisher,
            has_standby: false,
            runs_alone: false,
            whole_from: None,
            ticks: 0,
            ticks_ns: 0,
            ticks_missed: 0,
        };
        self.regions.insert(id, hosted);
        self.add_viewers(id);
        let others: Vec<(RegionId, u64)> =
            self.regions.iter().map(|(id, hosted)| (*id, hosted.epoch())).collect();
        for (peer, epoch) in others {
            // If the region has no lease, this fails, and the region learns the epoch from the first message.
            let _ = self.record_peer_epoch(peer, epoch, 0);
        }
        self.deliver_local_messages(0);
        Ok(())
    }

    /// Ends a region and returns it. From then on another process owns the region, or none.
    pub fn end(&mut self, region: RegionId) -> Option<Region<D, B>> {
        self.remove(region).map(|hosted| hosted.region)
    }

    /// Ends a region that has no valid lease, and returns its state. [`Host::take_over`] can continue from this state
    /// in a later epoch.
    pub fn retire(&mut self, region: RegionId) -> Option<RegionState<D>> {
        self.remove(region).map(|mut hosted| hosted.region.copy_for_standby().0)
    }

    fn remove(&mut self, region: RegionId) -> Option<HostedRegion<D, B>> {
        let hosted = self.regions.remove(&region)?;
        hosted.region.store().ids().iter().for_each(|id| self.confirm_unique(*id));
        Some(hosted)
    }

    /// Runs one tick in every region and delivers the messages that result. [`Host::send_ghosts`] sends the ghosts.
    pub fn tick(&mut self, now_ns: u64) {
        for hosted in self.regions.values_mut() {
            let began = Instant::now();
            match hosted.region.tick(now_ns, &mut hosted.out) {
                Ok(()) => self.counts.ticks += 1,
                Err(why) => {
                    hosted.ticks_missed += 1;
                    let is_behind = matches!(why, StepError::StandbyBehind { .. });
                    let count =
                        if is_behind { &mut self.counts.behind } else { &mut self.counts.unauthorised };
                    *count += 1;
                    continue;
                }
            }
            hosted.ticks += 1;
            hosted.ticks_ns += began.elapsed().as_nanos() as u64;
        }
        self.report_figures();
        self.deliver_local_messages(now_ns);
    }

    /// Sends the ghosts of entities near a border to the neighbouring regions.
    pub fn send_ghosts(&mut self, now_ns: u64) {
        for hosted in self.regions.values_mut() {
            hosted.region.send_ghosts(&mut hosted.out);
        }
        self.deliver_local_messages(now_ns);
    }

    /// Delivers a message from another process to one of the host's regions.
    pub fn receive(&mut self, to: RegionId, bytes: &[u8], now_ns: u64) {
        let is_received = self
            .regions
            .get_mut(&to)
            .is_some_and(|hosted| hosted.region.receive(bytes, now_ns, &mut hosted.out).is_ok());
        self.counts.refused += u64::from(!is_received);
        self.deliver_local_messages(now_ns);
    }

    /// Stores that a region of another process has an owner with this epoch.
    pub fn record_peer_epoch(&mut self, peer: RegionId, epoch: u64, now_ns: u64) -> Result<(), StepError> {
        let mut result = Ok(());
        for (_, hosted) in self.regions.iter_mut().filter(|(id, _)| **id != peer) {
            result = result.and(hosted.region.record_peer_epoch(peer, epoch, now_ns, &mut hosted.out));
        }
        self.deliver_local_messages(now_ns);
        result
    }

    /// Handles handovers that have timed out. Call this between two ticks.
    pub fn elapse(&mut self, now_ns: u64) {
        for hosted in self.regions.values_mut() {
            // This fails for a region without a valid lease, which then does nothing.
            let _ = hosted.region.advance_time(now_ns, &mut hosted.out);
        }
        self.deliver_local_messages(now_ns);
    }

    /// Sets or removes the lease of a region.
    pub fn set_authority(&mut self, region: RegionId, authority: Option<RegionAuthority>) {
        if let Some(hosted) = self.regions.get_mut(&region) {
            hosted.region.set_authority(authority);
        }
    }

    /// Sets a new partition. Entities that now lie in another region's part are handed over at once.
    pub fn set_partition(&mut self, partition: &Partition, now_ns: u64) {
        if partition.version() <= self.partition.version() {
            return;
        }
        self.partition = partition.clone();
        for hosted in self.regions.values_mut() {
            hosted.region.set_partition(partition.clone());
            // This fails for a region without a valid lease, which hands the entities over in its first tick.
            let _ = hosted.region.offer_misplaced_entities(now_ns, &mut hosted.out);
        }
        self.deliver_local_messages(now_ns);
    }

    /// Adds a standby. Returns the state from which the standby starts, and the number of handover entries that this
    /// state includes. Returns `None` if the region is not in this host.
    pub fn add_standby(&mut self, region: RegionId) -> Option<(Vec<u8>, u64)> {
        self.publish();
        let hosted = self.regions.get_mut(&region)?;
        hosted.has_standby = true;
        let (state, entries) = hosted.region.copy_for_standby();
        Some((state.whole(), entries))
    }

    /// Removes the standby of a region.
    pub fn remove_standby(&mut self, region: RegionId) {
        if let Some(hosted) = self.regions.get_mut(&region) {
            hosted.has_standby = false;
        }
    }

    /// Whether a region has a standby.
    pub fn has_standby(&self, region: RegionId) -> bool {
        self.regions.get(&region).is_some_and(|hosted| hosted.has_standby)
    }

    /// Called when a standby has confirmed that it has stored `entries` handover entries and the changes up to `tick`.
    pub fn standby_acknowledged(&mut self, region: RegionId, entries: u64, tick: u64, now_ns: u64) {
        if let Some(hosted) = self.regions.get_mut(&region) {
            hosted.region.standby_acknowledged(entries, tick, now_ns, &mut hosted.out);
        }
        self.deliver_local_messages(now_ns);
    }

    /// Sets whether a region runs alone, because no process can be its standby. The changes of such a region count as
    /// confirmed at once, and are lost if this process ends. Otherwise the region waits until its standby has confirmed
    /// its changes.
    pub fn set_alone(&mut self, region: RegionId, runs_alone: bool, now_ns: u64) {
        if let Some(hosted) = self.regions.get_mut(&region) {
            hosted.runs_alone = runs_alone;
        }
        self.deliver_local_messages(now_ns);
    }

    /// Whether the standby has confirmed all changes of a region. Also `true` if the region is not in this host.
    pub fn is_known(&self, region: RegionId) -> bool {
        self.regions.get(&region).is_none_or(|hosted| {
            let (region, handover) = (&hosted.region, hosted.region.handover());
            hosted.out.record.is_empty()
                && handover.known() == handover.written()
                && region.known_tick() == region.tick_number()
        })
    }

    /// Returns the host's output since the last call.
    pub fn take_output(&mut self) -> HostOutput {
        self.publish();
        std::mem::take(&mut self.output)
    }

    /// Takes back an output, so that its memory is used for the next output.
    pub fn reuse_output(&mut self, mut output: HostOutput) {
        if self.output.messages.is_empty() && self.output.records.is_empty() {
            output.messages.clear();
            output.records.clear();
            self.output = output;
        }
    }

    /// Returns the regions' reports since the last call.
    pub fn take_reports(&mut self) -> Vec<(RegionId, RegionReport)> {
        std::mem::take(&mut self.reports)
    }

    /// The host's regions.
    pub fn regions(&self) -> impl Iterator<Item = (RegionId, &Region<D, B>)> {
        self.regions.iter().map(|(id, hosted)| (*id, &hosted.region))
    }

    /// A region of this host.
    pub fn region(&self, region: RegionId) -> Option<&Region<D, B>> {
        self.regions.get(&region).map(|hosted| &hosted.region)
    }

    /// The partition of the world.
    pub fn partition(&self) -> &Partition {
        &self.partition
    }

    /// The setup that all regions share.
    pub fn setup(&self) -> &RegionSetup<D> {
        &self.setup
    }

    /// Counters since the host was created.
    pub fn counts(&self) -> HostCounts {
        self.counts
    }

    /// The number of unfinished handovers from and to the host's regions.
    pub fn pending_handovers(&self) -> (usize, usize) {
        let each = self.regions.values().map(|hosted| hosted.region.handover().in_progress());
        each.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
    }

    /// Delivers messages between the regions of this host until there are none left.
    fn deliver_local_messages(&mut self, now_ns: u64) {
        let mut senders: BTreeSet<RegionId> = self.regions.keys().copied().collect();
        while let Some(sender) = senders.pop_first() {
            let Some(hosted) = self.regions.get_mut(&sender) else { continue };
            hosted.acknowledge_alone(now_ns);
            for departed in hosted.out.departed.drain(..) {
                self.unconfirmed.remove(&departed);
            }
            self.local_messages.extend(hosted.out.messages.drain(..));
            while let Some((to, bytes)) = self.local_messages.pop_front() {
                let Some(hosted) = self.regions.get_mut(&to) else {
                    self.output.messages.push((to, bytes));
                    continue;
                };
                if hosted.region.receive(&bytes, now_ns, &mut hosted.out).is_err() {
                    self.counts.refused += 1;
                }
                senders.insert(to);
            }
        }
    }

    /// Publishes the changes of the regions, and keeps those that standbys need.
    fn publish(&mut self) {
        for (id, hosted) in &mut self.regions {
            let room = (self.setup.limits.reports_max as usize).saturating_sub(self.reports.len());
            self.counts.reports_dropped += hosted.out.reports.len().saturating_sub(room) as u64;
            self.reports.extend(hosted.out.reports.drain(..).take(room).map(|report| (*id, report)));
            if hosted.out.record.is_empty() {
                continue;
            }
            if hosted.publisher.is_none() && !hosted.has_standby {
                hosted.out.record.clear();
                continue;
            }
            let record = Bytes::from(std::mem::take(&mut hosted.out.record));
            self.counts.unpublished += u64::from(!hosted.publish(&record));
            if hosted.has_standby {
                self.output.records.push((*id, record));
            }
        }
    }
}

impl<const D: usize, B: Behaviour<D>> HostedRegion<D, B> {
    /// Confirms all changes of a region that runs alone.
    fn acknowledge_alone(&mut self, now_ns: u64) {
        if self.runs_alone {
            let (written, tick) = (self.region.handover().written(), self.region.tick_number());
            self.region.standby_acknowledged(written, tick, now_ns, &mut self.out);
        }
    }

    /// Publishes a record, or the whole state if the topic lacks an earlier record. Returns `false` if the topic lacks
    /// changes afterwards. A region without a topic publishes nothing and returns `true`.
    fn publish(&mut self, record: &Bytes) -> bool {
        let Some(publisher) = &mut self.publisher else { return true };
        let tick = self.region.tick_number();
        let is_published = match self.whole_from {
            None => publisher.publish(record.clone()).is_ok(),
            Some(from) => tick >= from && publisher.publish(Bytes::from(self.region.state().whole())).is_ok(),
        };
        let from = self.whole_from.filter(|from| tick < *from).unwrap_or(tick + WHOLE_AFTER_TICKS);
        self.whole_from = (!is_published).then_some(from);
        is_published
    }

    fn epoch(&self) -> u64 {
        self.region.handover().epoch()
    }
}

impl<const D: usize, B> std::fmt::Debug for Host<D, B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut debug = f.debug_struct("Host");
        debug.field("regions", &self.regions.keys()).field("counts", &self.counts).finish_non_exhaustive()
    }
}
