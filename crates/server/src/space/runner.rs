//! The thread that makes ticks and exchanges messages with other processes.
//!
//! Invariants:
//! - Messages and orders are handled between ticks.
//! - On each connection, records for standbys are sent before the messages that result from the same changes.
//! - Each turn ends with one write to each process.

mod balance;
mod hearing;
mod ids;
mod ticking;
mod viewing;

use std::collections::HashMap;
use std::net::TcpListener;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use dunlin::space::{
    Behaviour, Host, LoadReports, MessageSummary, RegionId, RegionReport, RegionState, Takeover, TransferId,
};

use super::config::{SpaceConfig, WorldPeer};
use super::error::RunnerRefusal;
use super::frame::SpaceFrame;
use super::handle::RunnerCalls;
use super::hello::{RunnerHello, WorldKey};
use super::links::{LinkEvent, ProcessLinks};
use super::lockstep::ProcessLockstep;
use super::pace::{TickPace, TickSchedule, monotonic_ns};
use super::poll::{self, PollWaker, ReadySockets};
use super::secret::Secret;
use super::standby_tracker::StandbyTracker;
use super::stats::RunnerStats;
use ids::IdChecks;
use viewing::Viewers;

pub use ids::SpawnError;

/// Interval of the checks of handover deadlines.
const ELAPSE_NS: u64 = 5_000_000;
/// Maximum number of reads from one connection before other connections and ticks are handled.
const FILLS_MAX: usize = 16;
/// Maximum number of handovers whose duration is measured at the same time.
const TIMED_MAX: usize = 1 << 16;

/// A function that is called after every tick until it returns `false`.
type Watcher<const D: usize, B> = Box<dyn FnMut(&Host<D, B>, u64) -> bool + Send>;

/// Executes the ticks, messages and requests of all regions of one process, on one thread.
pub struct Runner<const D: usize, B> {
    config: SpaceConfig,
    host: Host<D, B>,
    links: ProcessLinks,
    waker: PollWaker,
    orders: RunnerCalls<D, B>,
    schedule: TickSchedule,
    lockstep: Option<ProcessLockstep>,
    standby_tracker: StandbyTracker<D>,
    /// Handovers whose duration is measured, by source region, target region and transfer: the time of Prepare, and the
    /// number of entities.
    timed: HashMap<(RegionId, RegionId, TransferId), (u64, u32)>,
    stats: RunnerStats,
    /// The byte and message counters at the last reset of the statistics.
    before: (u64, u64, u64, u64),
    refusals: Vec<(Option<u64>, RunnerRefusal)>,
    reports: Vec<(RegionId, RegionReport)>,
    reports_dropped: u64,
    watchers: Vec<Watcher<D, B>>,
    viewers: Viewers,
    ids: IdChecks<D, B>,
    scales: LoadReports,
    /// Number of ticks made. It equals the tick of the regions if they all began together.
    ticks: u64,
    elapse_at_ns: u64,
    /// Whether lock-step allows the next tick: all processes have the results of the last tick.
    open: bool,
    ended: bool,
}

impl<const D: usize, B: Behaviour<D> + Clone> Runner<D, B> {
    pub(super) fn new(
        config: SpaceConfig,
        host: Host<D, B>,
        listener: TcpListener,
        waker: PollWaker,
        orders: RunnerCalls<D, B>,
    ) -> Runner<D, B> {
        let now_ns = monotonic_ns();
        let world = WorldKey::of(&config.world, host.setup(), host.partition(), config.lockstep);
        let hello = RunnerHello { process: config.process, world, regions: regions(&host) };
        let mut links = ProcessLinks::new(listener, hello, config.secret, config.limits);
        config.peers.iter().for_each(|peer| links.add_peer(*peer, now_ns));
        let others = config.peers.iter().map(|peer| peer.process);
        let standby_tracker = StandbyTracker::new(host.setup().clone());
        Runner {
            lockstep: config.lockstep.then(|| ProcessLockstep::new(others)),
            schedule: TickSchedule::new(config.pace, config.limits.ticks_behind_max, now_ns),
            config,
            host,
            links,
            waker,
            orders,
            standby_tracker,
            timed: HashMap::new(),
            stats: RunnerStats { since_ns: now_ns, ..RunnerStats::default() },
            before: (0, 0, 0, 0),
            refusals: Vec::new(),
            reports: Vec::new(),
            reports_dropped: 0,
            watchers: Vec::new(),
            viewers: Viewers::default(),
            ids: IdChecks::default(),
            scales: LoadReports::default(),
            ticks: 0,
            elapse_at_ns: 0,
            open: false,
            ended: false,
        }
    }

    /// Runs the thread's work until the runner is asked to end.
    pub(super) fn run(&mut self) -> Result<(), String> {
        let mut ready = ReadySockets::default();
        self.begin_run();
        loop {
            self.obey();
            if self.ended || self.orders.ended.load(Ordering::Relaxed) {
                self.links.flush();
                return Ok(());
            }
            let now_ns = monotonic_ns();
            self.links.dial(now_ns);
            self.take_events(now_ns);
            self.advance();
            let patience_ns = self.patience_ns(monotonic_ns());
            poll::wait(&self.links, &self.waker, patience_ns, &mut ready)
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
            self.take_events(monotonic_ns());
            self.ship();
        }
    }

    fn obey(&mut self) {
        while let Ok(order) = self.orders.orders.try_recv() {
            self.orders.waiting.fetch_sub(1, Ordering::Relaxed);
            order(self);
            self.ship();
        }
    }

    pub(super) fn take_events(&mut self, now_ns: u64) {
        for event in self.links.take_events() {
            match event {
                LinkEvent::Met { process, regions } => {
                    for (region, epoch) in regions {
                        self.meet(region, process, epoch, now_ns);
                    }
                }
                LinkEvent::Lost { process, .. } => {
                    for region in self.standby_tracker.forget(process) {
                        if self.standby_tracker.listeners(region).next().is_none() {
                            self.host.standby_ends(region);
                        }
                        self.count_known(region, now_ns);
                    }
                }
            }
        }
        let refusals = self.links.take_refusals();
        let room = self.config.limits.reports_max.saturating_sub(self.refusals.len());
        for (process, refused) in refusals.into_iter().take(room) {
            tracing::warn!(process, "cannot connect to another process of this world: {refused}");
            self.refusals.push((process, refused));
        }
    }

    /// Records that a region runs at another process in an epoch.
    pub(super) fn meet(&mut self, region: RegionId, process: u64, epoch: u64, now_ns: u64) {
        self.links.route(region, process, epoch);
        self.standby_tracker.forget_older(region, epoch);
        // This fails if the regions here may not act at present. They then learn the owner's epoch from its messages.
        let _ = self.host.meet(region, epoch, now_ns);
        if self.standby_tracker.wants(region) {
            self.links.send(process, &SpaceFrame::Follow(region));
        }
    }

    /// Sends the messages and records that the host has produced.
    pub(super) fn ship(&mut self) {
        self.check_spawned();
        for (region, (entries, tick)) in self.standby_tracker.take_fresh() {
            if let Some((process, _)) = self.links.whereabouts(region) {
                self.links.send_or_end(process, &SpaceFrame::Knows { region, entries, tick }, &Bytes::new());
            }
        }
        let mut turn = self.host.take_turn();
        if !turn.messages.is_empty() || !turn.records.is_empty() {
            let now_ns = monotonic_ns();
            self.links.begin_turn(self.step(), now_ns);
            for (region, bytes) in &turn.records {
                for process in self.standby_tracker.listeners(*region) {
                    // A copy that lacks a record is useless. If the record cannot be queued, the connection is closed,
                    // and the copy begins again with the next connection.
                    self.links.send_or_end(
                        process,
                        &SpaceFrame::Record { region: *region, bytes: &[] },
                        bytes,
                    );
                }
            }
            for (to, bytes) in turn.messages.drain(..) {
                if let MessageSummary::Prepare { from, transfer, entities } = MessageSummary::of(&bytes)
                    && self.timed.len() < TIMED_MAX
                {
                    self.timed.entry((from, to, transfer)).or_insert((now_ns, entities));
                }
                self.links.send_to(to, &Bytes::from(bytes));
            }
        }
        self.host.return_turn(turn);
        self.links.flush();
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

    /// The regions of this process, for spawning and commanding entities.
    pub fn host_mut(&mut self) -> &mut Host<D, B> {
        &mut self.host
    }

    /// Informs other processes that the regions of this process have changed.
    pub fn regions_changed(&mut self) {
        self.links.set_regions(regions(&self.host));
        let now_ns = monotonic_ns();
        let elsewhere: Vec<_> = self.links.routes().collect();
        for (region, _, epoch) in elsewhere {
            let _ = self.host.meet(region, epoch, now_ns);
        }
    }

    /// Takes over a region from the copy in this process. Returns `false` if there is no copy.
    pub fn take_over(
        &mut self,
        region: RegionId,
        succession: &Takeover<'_>,
    ) -> Result<bool, dunlin::space::HostError> {
        let Some(state) = self.standby_tracker.take_copy(region) else { return Ok(false) };
        self.standby_tracker.want_no_more(region);
        self.host.take_over(region, state, succession)?;
        self.regions_changed();
        Ok(true)
    }

    /// Ends a region of this process.
    pub fn end_region(&mut self, region: RegionId) {
        if self.host.end(region).is_some() {
            self.standby_tracker.end(region);
            self.regions_changed();
        }
    }

    /// Stops a region of this process, and keeps its state as a copy ([`Runner::copy_of`]). [`Runner::take_over`]
    /// continues from this copy in a later epoch, if no other process has begun a later epoch.
    pub fn retire_region(&mut self, region: RegionId) {
        if let Some(state) = self.host.retire(region) {
            self.standby_tracker.keep(region, state);
            self.regions_changed();
        }
    }

    /// The highest epoch of a region that this process knows; 0 if it knows none.
    pub fn epoch_known(&self, region: RegionId) -> u64 {
        let by_message = self.host.regions().filter_map(|(_, ours)| ours.handover().epoch_of(region));
        let copy = self.standby_tracker.copy(region).map(|copy| copy.handover().epoch());
        let route = self.links.whereabouts(region).map(|(_, epoch)| epoch);
        by_message.chain(copy).chain(route).max().unwrap_or(0)
    }

    /// From now on, allows only processes that were named as standbys to follow regions.
    pub fn name_standbys(&mut self) {
        self.standby_tracker.strict = true;
    }

    /// Names the standby of a region. `counts` says whether this standby would take over. Calling this again changes
    /// nothing.
    pub fn name_standby(&mut self, region: RegionId, process: u64, counts: bool) {
        self.standby_tracker.name(region, process, counts);
        self.count_known(region, monotonic_ns());
    }

    /// Whether the named standby has all changes that count as confirmed, and receives further changes.
    pub fn has_candidate(&self, region: RegionId) -> bool {
        let counted = |region: &dunlin::space::Region<D, B>| (region.handover().known(), region.known_tick());
        self.host.region(region).is_some_and(|ours| self.standby_tracker.has_candidate(region, counted(ours)))
    }

    /// Passes to the host the progress that all standbys for which the owner waits have confirmed.
    fn count_known(&mut self, region: RegionId, now_ns: u64) {
        if let Some((entries, tick)) = self.standby_tracker.known(region) {
            self.host.standby_acknowledged(region, entries, tick, now_ns);
        }
    }

    /// Makes this process a standby of a region. If it has no copy, it asks the owner again.
    pub fn follow(&mut self, region: RegionId) {
        let new = self.standby_tracker.want(region);
        if (new || self.standby_tracker.copy(region).is_none())
            && let Some((process, _)) = self.links.whereabouts(region)
        {
            self.links.send(process, &SpaceFrame::Follow(region));
        }
    }

    /// Drops copies of a region from epochs before this one.
    pub fn forget_older(&mut self, region: RegionId, epoch: u64) {
        self.standby_tracker.forget_older(region, epoch);
    }

    /// Stops being a standby of a region.
    pub fn unfollow(&mut self, region: RegionId) {
        self.standby_tracker.want_no_more(region);
        drop(self.standby_tracker.take_copy(region));
    }

    /// The copy of another process's region; `None` if this process has no copy.
    pub fn copy_of(&self, region: RegionId) -> Option<&RegionState<D>> {
        self.standby_tracker.copy(region)
    }

    /// The process that is the standby of a region of this process.
    pub fn follower_of(&self, region: RegionId) -> Option<u64> {
        self.standby_tracker.follower(region)
    }

    /// Sets the world's secret for new connections.
    pub fn set_secret(&mut self, secret: Secret) {
        self.links.set_secret(secret);
    }

    /// Sets the schedule of ticks. `ticks` is the number of ticks after which they stop.
    pub fn set_pace(&mut self, pace: TickPace, ticks: Option<u64>) {
        self.schedule.set(pace, ticks, monotonic_ns());
        self.begin_run();
    }

    /// Whether ticks are still to be made, or lock-step has not finished.
    pub fn is_busy(&mut self) -> bool {
        self.schedule.due_ns().is_some() || self.is_between_steps()
    }

    /// Adds another process.
    pub fn add_peer(&mut self, peer: WorldPeer) {
        self.links.add_peer(peer, monotonic_ns());
    }

    /// Removes a process.
    pub fn remove_peer(&mut self, process: u64) {
        self.links.remove_peer(process);
    }

    /// The numbers of the connected processes.
    pub fn connected(&self) -> Vec<u64> {
        self.links.processes().collect()
    }

    /// The regions that run at other processes: region, process and epoch of each.
    pub fn elsewhere(&self) -> Vec<(RegionId, u64, u64)> {
        self.links.routes().collect()
    }

    /// Takes the refusals since the last call, both by this process and by its peers.
    pub fn take_refusals(&mut self) -> Vec<(Option<u64>, RunnerRefusal)> {
        std::mem::take(&mut self.refusals)
    }

    /// Takes the reports since the last call.
    pub fn take_reports(&mut self) -> Vec<(RegionId, RegionReport)> {
        std::mem::take(&mut self.reports)
    }

    /// Calls `watcher` after every tick with the regions and the tick's number, until it returns `false`. The next tick
    /// waits for the call.
    pub fn after_ticks(&mut self, watcher: impl FnMut(&Host<D, B>, u64) -> bool + Send + 'static) {
        self.watchers.push(Box::new(watcher));
    }

    /// The statistics since the last reset.
    pub fn stats(&self) -> RunnerStats {
        let (sent, received) = self.links.bytes();
        let (bytes_sent, bytes_received, dropped, made) = self.before;
        RunnerStats {
            sent_bytes: sent - bytes_sent,
            received_bytes: received - bytes_received,
            dropped: self.links.dropped - dropped,
            connections: self.links.made - made,
            ..self.stats.clone()
        }
    }

    /// Returns the statistics and resets them.
    pub fn stats_anew(&mut self) -> RunnerStats {
        let stats = self.stats();
        let (sent, received) = self.links.bytes();
        self.before = (sent, received, self.links.dropped, self.links.made);
        self.stats = RunnerStats { since_ns: monotonic_ns(), ..RunnerStats::default() };
        stats
    }

    /// Number of ticks made.
    pub fn ticks(&self) -> u64 {
        self.ticks
    }
}

impl<const D: usize, B> Runner<D, B> {
    /// Ends the thread.
    pub fn end(&mut self) {
        self.ended = true;
    }
}

fn regions<const D: usize, B: Behaviour<D> + Clone>(host: &Host<D, B>) -> Vec<(RegionId, u64)> {
    host.regions().map(|(id, region)| (id, region.handover().epoch())).collect()
}

impl<const D: usize, B> std::fmt::Debug for Runner<D, B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Runner")
            .field("config", &self.config)
            .field("ticks", &self.ticks)
            .finish_non_exhaustive()
    }
}
