//! A host runs all regions of a world that one process owns.
//!
//! Invariants:
//! - A method of a host delivers messages between the host's own regions before it returns. Messages for other
//!   processes are in [`HostOutput::messages`], in the order in which they were sent.
//! - A change is published and sent to standbys before the messages that depend on it. The change for the standby and
//!   these messages are in the same [`HostOutput`].
//! - A region that has no lease, or that waits for its standby, does not delay other regions.
//!
//! Limits: those of `space::RegionLimits`. If regions report more than `reports_max` events between two calls of
//! [`Host::take_reports`], the host drops the further events and counts them.

mod entities;
mod figures;
mod topics;
mod viewing;

use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};
use std::time::Instant;

use bytes::Bytes;
use dunlin_space::{
    Behaviour, EntityId, GhostStripError, Partition, Region, RegionAuthority, RegionId, RegionOutputs,
    RegionReport, RegionSetup, RegionState, StandbyMode, StepError, StoreError, SurroundingsWatch, Takeover,
    ViewerId,
};
use dunlin_topic::{Publish, PublishError, Publisher};

use super::StandbyProgress;
use crate::error::TopicError;
use crate::node::Node;

pub use entities::EntityStatus;
pub(crate) use figures::Figures;
pub use figures::RegionFigures;

/// The maximum size of a record in the topic of a region, bytes.
const RECORD_BYTES_MAX: u32 = 64 << 20;
/// When a region's topic has refused a record, the region's whole state is published after this number of ticks.
const WHOLE_AFTER_TICKS: u64 = 10;

/// Describes the topics to which a [`Host`] publishes its regions: the node that has the topics, the world, and the
/// history.
#[derive(Debug, Clone)]
pub struct WorldTopics {
    /// The node that has the topics.
    pub node: Node,
    /// The name of the world, which is part of the topics' names.
    pub world: String,
    /// The size of each topic's history, bytes.
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
    /// The strip along borders is too narrow for the behaviour. Neighbouring regions see the entities in this strip as
    /// ghosts.
    #[error(transparent)]
    Strip(#[from] GhostStripError),
    /// The topic of the region cannot be created.
    #[error("cannot create the topic of region {}: {why}", .region.0)]
    Topic {
        /// The region that cannot begin.
        region: RegionId,
        /// The error of the topic's creation.
        why: TopicError,
    },
    /// The topic of the region refused its state.
    #[error("the topic of region {} refused the region's state: {why}", .region.0)]
    Publish {
        /// The region that cannot begin.
        region: RegionId,
        /// The error of publishing the state.
        why: PublishError,
    },
}

/// The records and messages that the caller of a [`Host`] has to send to other processes, the records first.
#[derive(Debug, Default)]
pub struct HostOutput {
    /// Changes of regions for the regions' standbys.
    pub records: Vec<(RegionId, Bytes)>,
    /// Messages for regions that other processes own.
    pub messages: Vec<(RegionId, Vec<u8>)>,
}

/// Counters of a [`Host`] since its creation, such as the ticks that its regions ran and missed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HostCounts {
    /// The number of ticks that were run, in all regions together.
    pub ticks: u64,
    /// The number of ticks that were missed because the region had no valid lease.
    pub unauthorised: u64,
    /// The number of ticks that were missed because the region's standby was behind.
    pub behind: u64,
    /// The number of messages that could not be decoded, or were for a region that does not run here.
    pub refused: u64,
    /// The number of records that were not published, because the region's topic refused this record or an earlier one.
    pub unpublished: u64,
    /// The number of reports that were dropped because of the limit `reports_max`.
    pub reports_dropped: u64,
}

struct HostedRegion<const D: usize, B> {
    region: Region<D, B>,
    out: RegionOutputs,
    publisher: Option<Publisher>,
    has_standby: bool,
    /// Whether the region needs no standby, so that its changes count as confirmed at once.
    runs_alone: bool,
    /// The number of records that the region has written, and how many of them its standby has confirmed.
    records: u64,
    records_known: u64,
    /// Set when the topic has refused a record, because the topic's state then differs from the region's. The value is
    /// the first tick at which the region's whole state is published instead of its changes. `None` if the topic has
    /// received all changes.
    whole_from: Option<u64>,
    /// The number of ticks that were run. `ticks_ns` is their total duration, and `ticks_missed` the number of missed
    /// ticks.
    ticks: u64,
    ticks_ns: u64,
    ticks_missed: u64,
}

/// Runs all regions of a world that one process owns.
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
    /// The entities that were spawned since the last call of [`Host::take_spawned`].
    spawned: Vec<EntityId>,
    /// The entities that were spawned here, have not been handed over, and whose ids are not known to be unique yet.
    unconfirmed: HashSet<EntityId>,
    counts: HostCounts,
    figures_reported_at: Option<Instant>,
    /// Whether a region has changed, or has a new neighbour without ghosts, since the last call of
    /// [`Host::show_changes`].
    is_changed: bool,
    /// Whether a region has received messages since the last call of [`Host::show_changes`].
    has_received: bool,
}

impl<const D: usize, B: Behaviour<D> + Clone> Host<D, B> {
    /// Creates a host without regions. Every region is set up with `setup`, except that each region has its own number.
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
            is_changed: false,
            has_received: false,
        }
    }

    /// Begins a region without entities.
    pub fn begin(&mut self, region: RegionId, authority: RegionAuthority) -> Result<(), HostError> {
        self.check_new(region)?;
        let setup = RegionSetup { region, ..self.setup.clone() };
        let region_state = Region::new(setup, self.behaviour.clone(), self.partition.clone(), authority);
        let publisher = self.open_topic(region, &region_state)?;
        self.insert(region, region_state, RegionOutputs::default(), publisher);
        Ok(())
    }

    /// Begins a region that another process owned before, from `state`, the copy that the region's standby has kept. If
    /// the region's topic cannot be created or refuses the state, the region runs without it, because an error would
    /// lose the state. [`Host::restore_topics`] then creates the topic.
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
        // Drop this record of changes: the region's topic begins with the complete state, which contains these changes.
        out.record.clear();
        let publisher = self.open_topic(region, &region_state).unwrap_or_default();
        self.insert(region, region_state, out, publisher);
        Ok(())
    }

    /// Returns an error if the strip along borders is too narrow for the behaviour. A world of one region needs no
    /// strip.
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

    fn insert(
        &mut self,
        id: RegionId,
        region: Region<D, B>,
        out: RegionOutputs,
        publisher: Option<Publisher>,
    ) {
        let hosted = HostedRegion {
            region,
            out,
            publisher,
            has_standby: false,
            runs_alone: false,
            records: 0,
            records_known: 0,
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
            // Ignore the error: a region without a lease refuses the epoch, and learns it later from the peer's first
            // message.
            let _ = self.record_peer_epoch(peer, epoch, 0);
        }
        self.deliver_local_messages(0);
    }

    /// Ends a region and returns it. From then on, another process owns the region, or no process does.
    pub fn end(&mut self, region: RegionId) -> Option<Region<D, B>> {
        self.remove(region).map(|hosted| hosted.region)
    }

    /// Ends a region that has no valid lease, and returns its state. [`Host::take_over`] can begin the region again
    /// from this state, in a later epoch.
    pub fn retire(&mut self, region: RegionId) -> Option<RegionState<D>> {
        self.remove(region).map(|mut hosted| hosted.region.copy_for_standby())
    }

    fn remove(&mut self, region: RegionId) -> Option<HostedRegion<D, B>> {
        let hosted = self.regions.remove(&region)?;
        hosted.region.store().ids().iter().for_each(|id| self.confirm_unique(*id));
        Some(hosted)
    }

    /// Runs one tick in every region, and delivers the resulting messages. [`Host::send_ghosts`] sends the ghosts
    /// separately.
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
        self.has_received = true;
        self.deliver_local_messages(now_ns);
    }

    /// Tells this host's regions that the region `peer` has an owner in the epoch `epoch`.
    pub fn record_peer_epoch(&mut self, peer: RegionId, epoch: u64, now_ns: u64) -> Result<(), StepError> {
        let mut result = Ok(());
        self.is_changed = true;
        for (_, hosted) in self.regions.iter_mut().filter(|(id, _)| **id != peer) {
            result = result.and(hosted.region.record_peer_epoch(peer, epoch, now_ns, &mut hosted.out));
        }
        self.deliver_local_messages(now_ns);
        result
    }

    /// Handles handovers whose time has run out, and updates the node's metrics. Call this between two ticks.
    pub fn elapse(&mut self, now_ns: u64) {
        for hosted in self.regions.values_mut() {
            // Ignore the error: a region without a valid lease does nothing.
            let _ = hosted.region.advance_time(now_ns, &mut hosted.out);
        }
        self.report_figures();
        self.deliver_local_messages(now_ns);
    }

    /// Sets or removes a region's lease, its authority to run.
    pub fn set_authority(&mut self, region: RegionId, authority: Option<RegionAuthority>) {
        if let Some(hosted) = self.regions.get_mut(&region) {
            hosted.region.set_authority(authority);
        }
    }

    /// Sets a newer partition of the world into regions. Entities that now lie in another region's part are handed over
    /// at once.
    pub fn set_partition(&mut self, partition: &Partition, now_ns: u64) {
        if partition.version() <= self.partition.version() {
            return;
        }
        self.partition = partition.clone();
        for hosted in self.regions.values_mut() {
            hosted.region.set_partition(partition.clone());
            // Ignore the error: a region without a valid lease hands the entities over in its first tick with a lease.
            let _ = hosted.region.offer_misplaced_entities(now_ns, &mut hosted.out);
        }
        self.deliver_local_messages(now_ns);
    }

    /// Notes that the region has a standby from now on. Returns the state from which the standby starts, and the number
    /// of the region's records that this state contains. Returns `None` if the region is not in this host.
    pub fn add_standby(&mut self, region: RegionId) -> Option<(Vec<u8>, u64)> {
        self.publish();
        let hosted = self.regions.get_mut(&region)?;
        hosted.has_standby = true;
        Some((hosted.region.copy_for_standby().whole(), hosted.records))
    }

    /// Notes that the region has no standby any more.
    pub fn remove_standby(&mut self, region: RegionId) {
        if let Some(hosted) = self.regions.get_mut(&region) {
            hosted.has_standby = false;
        }
    }

    /// Whether a region has a standby.
    pub fn has_standby(&self, region: RegionId) -> bool {
        self.regions.get(&region).is_some_and(|hosted| hosted.has_standby)
    }

    /// Called when the region's standby has confirmed that its copy contains these changes.
    pub fn standby_acknowledged(&mut self, region: RegionId, progress: StandbyProgress, now_ns: u64) {
        if let Some(hosted) = self.regions.get_mut(&region) {
            let StandbyProgress { entries, tick, records } = progress;
            hosted.records_known = hosted.records_known.max(records.min(hosted.records));
            hosted.region.standby_acknowledged(entries, tick, now_ns, &mut hosted.out);
        }
        self.deliver_local_messages(now_ns);
    }

    /// The changes of a region that count as confirmed; `None` if the region is not in this host.
    pub fn acknowledged(&self, region: RegionId) -> Option<StandbyProgress> {
        let hosted = self.regions.get(&region)?;
        let (entries, tick) = (hosted.region.handover().known(), hosted.region.known_tick());
        Some(StandbyProgress { entries, tick, records: hosted.records_known })
    }

    /// The number of records that contain all changes of a region so far. The last record may still be unwritten.
    pub fn records_so_far(&self, region: RegionId) -> u64 {
        let count = |hosted: &HostedRegion<D, B>| hosted.records + u64::from(!hosted.out.record.is_empty());
        self.regions.get(&region).map_or(0, count)
    }

    /// Whether the first `records` records of a region are confirmed, or need no confirmation.
    pub fn is_confirmed(&self, region: RegionId, records: u64) -> bool {
        let known = |hosted: &HostedRegion<D, B>| hosted.runs_alone || hosted.records_known >= records;
        self.setup.standby != StandbyMode::Required || self.regions.get(&region).is_some_and(known)
    }

    /// Whether the changes of a region of this host must be confirmed by a standby.
    pub fn needs_standby(&self, region: RegionId) -> bool {
        let runs_alone = self.regions.get(&region).is_none_or(|hosted| hosted.runs_alone);
        self.setup.standby == StandbyMode::Required && !runs_alone
    }

    /// Sets whether a region runs alone, because no process can be its standby. The changes of such a region count as
    /// confirmed at once, and are lost if this process ends. A region that does not run alone waits until its standby
    /// has confirmed its changes.
    pub fn set_alone(&mut self, region: RegionId, runs_alone: bool, now_ns: u64) {
        if let Some(hosted) = self.regions.get_mut(&region) {
            hosted.runs_alone = runs_alone;
        }
        self.deliver_local_messages(now_ns);
    }

    /// Whether the region's standby has confirmed all changes of the region. Also `true` if the region is not in this
    /// host.
    pub fn is_known(&self, region: RegionId) -> bool {
        self.regions.get(&region).is_none_or(|hosted| {
            let (region, handover) = (&hosted.region, hosted.region.handover());
            hosted.out.record.is_empty()
                && (hosted.runs_alone || hosted.records_known == hosted.records)
                && handover.known() == handover.written()
                && region.known_tick() == region.tick_number()
        })
    }

    /// Takes the records and messages that have to be sent to other processes.
    pub fn take_output(&mut self) -> HostOutput {
        self.publish();
        std::mem::take(&mut self.output)
    }

    /// Takes an output back after it was sent, to reuse its memory for the next output.
    pub fn reuse_output(&mut self, mut output: HostOutput) {
        if self.output.messages.is_empty() && self.output.records.is_empty() {
            output.messages.clear();
            output.records.clear();
            self.output = output;
        }
    }

    /// Takes the reports of the regions since the last call.
    pub fn take_reports(&mut self) -> Vec<(RegionId, RegionReport)> {
        std::mem::take(&mut self.reports)
    }

    /// The regions of this host.
    pub fn regions(&self) -> impl Iterator<Item = (RegionId, &Region<D, B>)> {
        self.regions.iter().map(|(id, hosted)| (*id, &hosted.region))
    }

    /// A region of this host.
    pub fn region(&self, region: RegionId) -> Option<&Region<D, B>> {
        self.regions.get(&region).map(|hosted| &hosted.region)
    }

    /// The partition of the world into regions.
    pub fn partition(&self) -> &Partition {
        &self.partition
    }

    /// The setup that all regions share.
    pub fn setup(&self) -> &RegionSetup<D> {
        &self.setup
    }

    /// The counters since this host was created.
    pub fn counts(&self) -> HostCounts {
        self.counts
    }

    /// The numbers of unfinished handovers from this host's regions, and to them.
    pub fn pending_handovers(&self) -> (usize, usize) {
        let each = self.regions.values().map(|hosted| hosted.region.handover().in_progress());
        each.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
    }

    /// Delivers messages between regions of this host until none is left. Messages for other processes go to the
    /// output.
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

    /// Publishes the changes of the regions to their topics. Adds the changes that standbys need to the output.
    fn publish(&mut self) {
        for (id, hosted) in &mut self.regions {
            let room = (self.setup.limits.reports_max as usize).saturating_sub(self.reports.len());
            self.counts.reports_dropped += hosted.out.reports.len().saturating_sub(room) as u64;
            self.reports.extend(hosted.out.reports.drain(..).take(room).map(|report| (*id, report)));
            if hosted.out.record.is_empty() {
                continue;
            }
            self.is_changed = true;
            hosted.records += 1;
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
    /// If the region runs alone, confirms all its changes.
    fn acknowledge_alone(&mut self, now_ns: u64) {
        if self.runs_alone {
            let (written, tick) = (self.region.handover().written(), self.region.tick_number());
            self.region.standby_acknowledged(written, tick, now_ns, &mut self.out);
        }
    }

    /// Publishes a record with changes. If the topic lacks an earlier record, publishes the whole state instead, but
    /// not before the tick `whole_from`. Returns `false` if the topic still lacks changes. A region without a topic
    /// publishes nothing and returns `true`.
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

    /// Fails if the region has no lease. A process that releases a region removes the lease first: later changes would
    /// be missing at the new owner.
    fn check_authority(&self) -> Result<(), StoreError> {
        let region = self.region.handover().region();
        self.region.authority().map(drop).ok_or(StoreError::NoLease(region))
    }
}

impl<const D: usize, B> std::fmt::Debug for Host<D, B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut debug = f.debug_struct("Host");
        debug.field("regions", &self.regions.keys()).field("counts", &self.counts).finish_non_exhaustive()
    }
}
