//! Runs a thread that makes the ticks of a process's regions and exchanges messages with other processes.
//!
//! Invariants:
//! - Messages of other processes, and calls by other threads, are handled between ticks.
//! - On each connection, the records by which standbys learn of changes are sent before the messages that result from
//!   these changes.
//! - The messages and records that accumulate are written to each process in one write.

mod balance;
mod confirming;
mod ids;
mod receiving;
mod ticking;
mod viewing;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::TcpListener;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use dunlin::space::{
    Behaviour, Host, LoadReports, MessageSummary, RegionId, RegionReport, RegionState, StandbyProgress,
    Takeover, TransferId,
};

use super::config::{SpaceConfig, WorldPeer};
use super::error::RunnerRefusal;
use super::frame::SpaceFrame;
use super::handle::RunnerCalls;
use super::hello::{RunnerHello, WorldIdentity};
use super::links::{LinkEvent, ProcessLinks};
use super::lockstep::ProcessLockstep;
use super::pace::{TickPace, TickSchedule, monotonic_ns};
use super::poll::{self, PollWaker, ReadySockets};
use super::secret::Secret;
use super::standby_tracker::StandbyTracker;
use super::stats::RunnerStats;
use confirming::UnconfirmedChanges;
use ids::IdChecks;
use viewing::Viewers;

pub use ids::SpawnError;

/// Interval at which the deadlines of handovers are checked.
const ELAPSE_NS: u64 = 5_000_000;
/// Interval at which the runner checks whether the topics of its regions still exist.
const TOPICS_CHECK_NS: u64 = 200_000_000;
/// Maximum time for which the thread sleeps. Metrics and topics need attention even if no tick is due.
const SLEEP_NS_MAX: u64 = 50_000_000;
/// Maximum number of reads from one connection before other connections are read and ticks are made.
const FILLS_MAX: usize = 16;
/// Maximum number of processes for which the runner remembers why they cannot connect.
const CONFLICTS_MAX: usize = 64;
/// Maximum number of handovers whose duration is measured at the same time.
const PENDING_HANDOVERS_MAX: usize = 1 << 16;

/// A function that is called after every tick until it returns `false`.
type Watcher<const D: usize, B> = Box<dyn FnMut(&Host<D, B>, u64) -> bool + Send>;

/// Makes the ticks of all regions of one process, and handles their messages and requests, on one thread.
pub struct WorldRunner<const D: usize, B> {
    config: SpaceConfig,
    host: Host<D, B>,
    links: ProcessLinks,
    waker: PollWaker,
    calls: RunnerCalls<D, B>,
    schedule: TickSchedule,
    lockstep: Option<ProcessLockstep>,
    standby_tracker: StandbyTracker<D>,
    /// The handovers whose duration is measured: for each source region, target region and transfer, the time at which
    /// the handover was offered (message Prepare) and the number of entities.
    pending_handovers: HashMap<(RegionId, RegionId, TransferId), (u64, u32)>,
    stats: RunnerStats,
    /// Number of sent bytes, received bytes, dropped messages and established connections when the statistics were last
    /// reset.
    counters_at_reset: (u64, u64, u64, u64),
    refusals: Vec<(Option<u64>, RunnerRefusal)>,
    /// For each process with another setup or version: why it cannot connect. The process's number is missing if that
    /// process opened the connection.
    conflicts: BTreeMap<Option<u64>, String>,
    reports: Vec<(RegionId, RegionReport)>,
    reports_dropped: u64,
    watchers: Vec<Watcher<D, B>>,
    viewers: Viewers,
    ids: IdChecks<D, B>,
    unconfirmed: UnconfirmedChanges,
    load_reports: LoadReports,
    /// Number of ticks that this runner has made. Equals the regions' tick if all regions began with this runner.
    ticks: u64,
    next_elapse_ns: u64,
    next_topics_check_ns: u64,
    /// The regions whose topics were deleted and cannot be created again. Kept so that each is logged once.
    topics_missing: BTreeSet<RegionId>,
    /// Whether lock-step allows the next tick, because all processes have the results of the last tick.
    tick_allowed: bool,
    is_ended: bool,
}

impl<const D: usize, B: Behaviour<D> + Clone> WorldRunner<D, B> {
    pub(super) fn new(
        config: SpaceConfig,
        host: Host<D, B>,
        listener: TcpListener,
        waker: PollWaker,
        calls: RunnerCalls<D, B>,
    ) -> WorldRunner<D, B> {
        let now_ns = monotonic_ns();
        let world = WorldIdentity::of(&config.world, host.setup(), host.partition(), config.lockstep);
        let hello = RunnerHello { process: config.process, world, regions: regions(&host) };
        let mut links = ProcessLinks::new(listener, hello, config.secret, config.limits);
        config.peers.iter().for_each(|peer| links.add_peer(*peer, now_ns));
        let others = config.peers.iter().map(|peer| peer.process);
        let standby_tracker = StandbyTracker::new(host.setup().clone());
        WorldRunner {
            lockstep: config.lockstep.then(|| ProcessLockstep::new(others)),
            schedule: TickSchedule::new(config.pace, config.limits.ticks_behind_max, now_ns),
            config,
            host,
            links,
            waker,
            calls,
            standby_tracker,
            pending_handovers: HashMap::new(),
            stats: RunnerStats { since_ns: now_ns, ..RunnerStats::default() },
            counters_at_reset: (0, 0, 0, 0),
            refusals: Vec::new(),
            conflicts: BTreeMap::new(),
            reports: Vec::new(),
            reports_dropped: 0,
            watchers: Vec::new(),
            viewers: Viewers::default(),
            ids: IdChecks::default(),
            unconfirmed: UnconfirmedChanges::default(),
            load_reports: LoadReports::default(),
            ticks: 0,
            next_elapse_ns: 0,
            next_topics_check_ns: 0,
            topics_missing: BTreeSet::new(),
            tick_allowed: false,
            is_ended: false,
        }
    }

    /// Runs the loop of the thread until the runner must end.
    pub(super) fn run(&mut self) -> Result<(), String> {
        let mut ready = ReadySockets::default();
        self.start_run();
        loop {
            self.run_calls();
            if self.is_ended || self.calls.ended.load(Ordering::Relaxed) {
                self.links.flush();
                return Ok(());
            }
            let now_ns = monotonic_ns();
            self.links.dial(now_ns);
            self.handle_link_events(now_ns);
            self.advance();
            let poll_timeout_ns = self.poll_timeout_ns(monotonic_ns());
            poll::wait(&self.links, &self.waker, poll_timeout_ns, &mut ready)
                .map_err(|error| format!("waiting for other processes: {error}"))?;
            if ready.listener {
                self.links.accept(monotonic_ns());
            }
            ready.writable.iter().for_each(|key| self.links.writable(*key));
            for key in &ready.readable {
                for _ in 0..FILLS_MAX {
                    let more = self.links.fill(*key);
                    self.read(*key);
                    if !more {
                        break;
                    }
                }
            }
            self.handle_link_events(monotonic_ns());
            self.send_output();
        }
    }

    /// Runs the calls that wait. Calls that arrive meanwhile are run later, so that ticks are made even if calls never
    /// cease.
    fn run_calls(&mut self) {
        for _ in 0..self.calls.waiting.load(Ordering::Relaxed) {
            let Ok(call) = self.calls.calls.try_recv() else { return };
            self.calls.waiting.fetch_sub(1, Ordering::Relaxed);
            call(self);
            self.send_output();
        }
    }

    pub(super) fn handle_link_events(&mut self, now_ns: u64) {
        for event in self.links.take_events() {
            match event {
                LinkEvent::Connected { process, regions } => {
                    for (region, epoch) in regions {
                        self.add_remote_region(region, process, epoch, now_ns);
                    }
                }
                LinkEvent::Lost { process, .. } => {
                    for region in self.standby_tracker.remove_process(process) {
                        if self.standby_tracker.followers_of(region).next().is_none() {
                            self.host.remove_standby(region);
                        }
                        self.acknowledge_standbys(region, now_ns);
                    }
                }
            }
        }
        let refusals = self.links.take_refusals();
        for (process, refused) in &refusals {
            let is_conflict = match refused {
                RunnerRefusal::Setup(_) | RunnerRefusal::Version { .. } => true,
                RunnerRefusal::ByThem(why) => {
                    *why == RunnerRefusal::Setup(self.config.world.clone()).to_string()
                }
                _ => false,
            };
            if is_conflict && self.conflicts.len() < CONFLICTS_MAX {
                self.conflicts.entry(*process).or_insert_with(|| refused.to_string());
            }
        }
        let room = self.config.limits.reports_max.saturating_sub(self.refusals.len());
        for (process, refused) in refusals.into_iter().take(room) {
            tracing::warn!(process, "cannot connect to another process of this world: {refused}");
            self.refusals.push((process, refused));
        }
    }

    /// Remembers that a region runs at another process in an epoch.
    pub(super) fn add_remote_region(&mut self, region: RegionId, process: u64, epoch: u64, now_ns: u64) {
        self.links.add_route(region, process, epoch);
        self.standby_tracker.set_older_copies_aside(region, epoch);
        // This fails while the regions here may not act. The regions then learn the epoch later, from messages of the
        // other region's owner.
        let _ = self.host.record_peer_epoch(region, epoch, now_ns);
        if self.standby_tracker.is_followed(region) {
            self.send_follow(region, process);
        }
    }

    /// Sends the messages and records that the regions have produced. Also reports the progress of this process's
    /// copies to the regions' owners.
    pub(super) fn send_output(&mut self) {
        self.check_spawned();
        for (region, progress) in self.standby_tracker.take_progress() {
            if let Some((process, _)) = self.links.route_to(region) {
                self.links.send_or_close(process, &SpaceFrame::Progress { region, progress }, &Bytes::new());
            }
        }
        let mut turn = self.host.take_output();
        if !turn.messages.is_empty() || !turn.records.is_empty() {
            let now_ns = monotonic_ns();
            self.links.begin_turn(self.step(), now_ns);
            for (region, bytes) in &turn.records {
                for process in self.standby_tracker.followers_of(*region) {
                    // A copy that misses a record is useless. If the record cannot be queued, the connection is closed,
                    // and the copy is made again over the next connection.
                    self.links.send_or_close(
                        process,
                        &SpaceFrame::Record { region: *region, bytes: &[] },
                        bytes,
                    );
                }
            }
            for (to, bytes) in turn.messages.drain(..) {
                if let MessageSummary::Prepare { from, transfer, entities } = MessageSummary::of(&bytes)
                    && self.pending_handovers.len() < PENDING_HANDOVERS_MAX
                {
                    self.pending_handovers.entry((from, to, transfer)).or_insert((now_ns, entities));
                }
                self.links.send_to(to, &Bytes::from(bytes));
            }
        }
        self.host.reuse_output(turn);
        self.links.flush();
        self.send_confirmed_responses();
        let room = self.config.limits.reports_max.saturating_sub(self.reports.len());
        let reports = self.host.take_reports();
        self.reports_dropped += reports.len().saturating_sub(room) as u64;
        self.reports.extend(reports.into_iter().take(room));
    }

    fn step(&self) -> u64 {
        self.lockstep.as_ref().map_or(self.ticks, ProcessLockstep::step)
    }

    /// The regions of this process.
    pub fn host(&self) -> &Host<D, B> {
        &self.host
    }

    /// The regions of this process, for example to spawn entities in them.
    pub fn host_mut(&mut self) -> &mut Host<D, B> {
        &mut self.host
    }

    /// Tells other processes which regions run here now. Must be called after the regions have changed.
    pub fn announce_regions(&mut self) {
        self.links.set_regions(regions(&self.host));
        let now_ns = monotonic_ns();
        let remote: Vec<_> = self.links.routes().collect();
        for (region, _, epoch) in remote {
            let _ = self.host.record_peer_epoch(region, epoch, now_ns);
        }
    }

    /// Continues a region here under the lease in `succession`: from this process's copy or, if there is none, from the
    /// state that this process released. Returns `false` if there is neither.
    pub fn take_over(
        &mut self,
        region: RegionId,
        succession: &Takeover<'_>,
    ) -> Result<bool, dunlin::space::HostError> {
        let released = self.standby_tracker.take_released(region);
        let Some(state) = self.standby_tracker.take_copy(region).or(released) else { return Ok(false) };
        self.standby_tracker.unfollow(region);
        self.host.take_over(region, state, succession)?;
        self.announce_regions();
        Ok(true)
    }

    /// Stops a region of this process after the region was released to its standby. If the standby has confirmed all
    /// changes, keeps the region's state until the call of [`WorldRunner::drop_released`]. [`WorldRunner::take_over`]
    /// can continue from this state.
    pub fn release_region(&mut self, region: RegionId) {
        let is_confirmed = self.host.is_known(region);
        let Some(state) = self.host.retire(region) else { return };
        self.drop_responses(region);
        self.standby_tracker.remove_region(region);
        if is_confirmed {
            self.standby_tracker.keep_released(region, state);
        }
        self.announce_regions();
    }

    /// The regions whose state this process keeps although it does not own them and is no standby: it released them, or
    /// had a copy of them. Each has the epoch of its state.
    pub fn released_regions(&self) -> BTreeMap<RegionId, u64> {
        self.standby_tracker.released().collect()
    }

    /// Drops the state of one of the [released regions](WorldRunner::released_regions).
    pub fn drop_released(&mut self, region: RegionId) {
        drop(self.standby_tracker.take_released(region));
    }

    /// Stops a region of this process, and keeps its state as a copy ([`WorldRunner::copy_of`]).
    /// [`WorldRunner::take_over`] continues from this copy if no other process has begun a later epoch of the region.
    pub fn retire_region(&mut self, region: RegionId) {
        if let Some(state) = self.host.retire(region) {
            self.drop_responses(region);
            self.standby_tracker.store(region, state);
            self.announce_regions();
        }
    }

    /// The highest epoch of a region that this process knows; 0 if it knows none.
    pub fn known_epoch(&self, region: RegionId) -> u64 {
        let by_message = self.host.regions().filter_map(|(_, ours)| ours.handover().epoch_of(region));
        let copy = self.standby_tracker.copy(region).map(|copy| copy.handover().epoch());
        let route = self.links.route_to(region).map(|(_, epoch)| epoch);
        let released = self.standby_tracker.released().filter(|(other, _)| *other == region);
        let released = released.map(|(_, epoch)| epoch);
        by_message.chain(copy).chain(route).chain(released).max().unwrap_or(0)
    }

    /// From now on, only processes that were named as a region's standby may follow the region.
    pub fn require_named_standbys(&mut self) {
        self.standby_tracker.named_only = true;
    }

    /// Names the standby of a region. `may_take_over` says whether this standby would take over if the owner were lost.
    /// A standby that has no copy yet would not take over. Repeating a call changes nothing.
    pub fn name_standby(&mut self, region: RegionId, process: u64, may_take_over: bool) {
        self.standby_tracker.set_standby(region, process, may_take_over);
        self.acknowledge_standbys(region, monotonic_ns());
    }

    /// Forgets the standbys of a region that runs alone from now on. A process that is named as the standby later must
    /// begin its copy again, even if it still has a copy.
    pub fn remove_standby(&mut self, region: RegionId) {
        self.standby_tracker.remove_region(region);
        self.host.remove_standby(region);
    }

    /// Whether the named standby has all changes of the region that count as confirmed, and receives the later ones.
    pub fn has_candidate(&self, region: RegionId) -> bool {
        let acknowledged = self.host.acknowledged(region);
        acknowledged.is_some_and(|acknowledged| self.standby_tracker.has_candidate(region, acknowledged))
    }

    /// How far the changes of a region of this process are confirmed; `None` if the region does not wait for a standby.
    pub fn awaited_progress(&self, region: RegionId) -> Option<StandbyProgress> {
        let has_copy = self.standby_tracker.confirmed_progress(region).is_some();
        let is_confirmed = self.host.is_confirmed(region, self.host.records_so_far(region));
        let waits = self.host.needs_standby(region) && !(has_copy && is_confirmed);
        waits.then(|| self.host.acknowledged(region)).flatten()
    }

    /// Tells the host which changes of a region are confirmed by all standbys for which the changes wait.
    fn acknowledge_standbys(&mut self, region: RegionId, now_ns: u64) {
        if let Some(progress) = self.standby_tracker.confirmed_progress(region) {
            self.host.standby_acknowledged(region, progress, now_ns);
        }
    }

    /// Makes this process a standby of a region, and tells the region's owner whether this process has a copy that
    /// receives all changes. The owner sends its state if the copy does not receive them.
    ///
    /// Repeat the call: an owner that has named another standby ignores it, and can stop sending changes at any time.
    pub fn follow(&mut self, region: RegionId) {
        self.standby_tracker.follow(region);
        if let Some((process, _)) = self.links.route_to(region) {
            self.send_follow(region, process);
        }
    }

    fn send_follow(&mut self, region: RegionId, owner: u64) {
        let is_fed = self.standby_tracker.is_fed(region);
        self.links.send(owner, &SpaceFrame::Follow { region, is_fed });
    }

    /// Takes the copy of a region out of use if it is from an earlier epoch than `epoch`. If the world's keys name the
    /// standbys, the copy is kept like the state of a released region ([`WorldRunner::released_regions`]).
    pub fn drop_older_copies(&mut self, region: RegionId, epoch: u64) {
        self.standby_tracker.set_older_copies_aside(region, epoch);
    }

    /// Stops being a standby of a region. Takes its copy out of use, as [`WorldRunner::drop_older_copies`] does.
    pub fn unfollow(&mut self, region: RegionId) {
        self.standby_tracker.unfollow(region);
        self.standby_tracker.set_copy_aside(region);
    }

    /// This process's copy of a region that it does not own; `None` if there is none.
    pub fn copy_of(&self, region: RegionId) -> Option<&RegionState<D>> {
        self.standby_tracker.copy(region)
    }

    /// The process that is the standby of a region of this process; `None` if there is none.
    pub fn follower_of(&self, region: RegionId) -> Option<u64> {
        self.standby_tracker.follower(region)
    }

    /// Sets the world's secret. Existing connections are not checked again.
    pub fn set_secret(&mut self, secret: Secret) {
        self.links.set_secret(secret);
    }

    /// Sets the pace of ticks. Ticking stops after `ticks` ticks; `None` means that it does not stop.
    pub fn set_pace(&mut self, pace: TickPace, ticks: Option<u64>) {
        self.schedule.set(pace, ticks, monotonic_ns());
        self.start_run();
    }

    /// Whether more ticks are to be made or, in lock-step, the steps after the last tick are not complete.
    pub fn is_busy(&mut self) -> bool {
        self.schedule.due_ns().is_some() || self.is_between_steps()
    }

    /// Adds another process of the world, to which this process can connect.
    pub fn add_peer(&mut self, peer: WorldPeer) {
        self.links.add_peer(peer, monotonic_ns());
    }

    /// Removes another process of the world, and closes the connection to it.
    pub fn remove_peer(&mut self, process: u64) {
        self.links.remove_peer(process);
    }

    /// The numbers of the connected processes.
    pub fn connected(&self) -> Vec<u64> {
        self.links.processes().collect()
    }

    /// The regions that run at other processes: region, process and epoch of each.
    pub fn remote_regions(&self) -> Vec<(RegionId, u64, u64)> {
        self.links.routes().collect()
    }

    /// Takes the refusals since the last call. In each of them, this process or another process refused the connection
    /// between the two. Each refusal has the other process's number, if it is known.
    pub fn take_refusals(&mut self) -> Vec<(Option<u64>, RunnerRefusal)> {
        std::mem::take(&mut self.refusals)
    }

    /// For each process that was refused since the last call because of its setup or version, takes the reason.
    pub(super) fn take_conflicts(&mut self) -> BTreeMap<Option<u64>, String> {
        std::mem::take(&mut self.conflicts)
    }

    /// Takes the reports of the regions since the last call.
    pub fn take_reports(&mut self) -> Vec<(RegionId, RegionReport)> {
        std::mem::take(&mut self.reports)
    }

    /// After every tick, calls `watcher` with the regions and the number of the tick, until `watcher` returns `false`.
    /// The next tick waits until each call has returned.
    pub fn add_tick_watcher(&mut self, watcher: impl FnMut(&Host<D, B>, u64) -> bool + Send + 'static) {
        self.watchers.push(Box::new(watcher));
    }

    /// The statistics since the last reset.
    pub fn stats(&self) -> RunnerStats {
        let (sent, received) = self.links.bytes();
        let (bytes_sent, bytes_received, dropped, connections_made) = self.counters_at_reset;
        RunnerStats {
            sent_bytes: sent - bytes_sent,
            received_bytes: received - bytes_received,
            dropped: self.links.dropped - dropped,
            connections: self.links.connections_made - connections_made,
            ..self.stats.clone()
        }
    }

    /// Returns the statistics and resets them.
    pub fn take_stats(&mut self) -> RunnerStats {
        let stats = self.stats();
        let (sent, received) = self.links.bytes();
        self.counters_at_reset = (sent, received, self.links.dropped, self.links.connections_made);
        self.stats = RunnerStats { since_ns: monotonic_ns(), ..RunnerStats::default() };
        stats
    }

    /// Number of ticks that this runner has made.
    pub fn ticks(&self) -> u64 {
        self.ticks
    }
}

impl<const D: usize, B> WorldRunner<D, B> {
    /// Makes the runner's thread end.
    pub fn end(&mut self) {
        self.is_ended = true;
    }
}

fn regions<const D: usize, B: Behaviour<D> + Clone>(host: &Host<D, B>) -> Vec<(RegionId, u64)> {
    host.regions().map(|(id, region)| (id, region.handover().epoch())).collect()
}

impl<const D: usize, B> std::fmt::Debug for WorldRunner<D, B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WorldRunner")
            .field("config", &self.config)
            .field("ticks", &self.ticks)
            .finish_non_exhaustive()
    }
}
