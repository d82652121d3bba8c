//! The thread that makes ticks.
//!
//! Invariants:
//! - Whatever comes from outside, messages and orders, is handled between ticks.
//! - Records for standbys are sent before the messages that follow from them, on one connection after another.
//! - A turn ends with one write to each process.

mod balance;
mod hearing;
mod ids;
mod ticking;
mod viewing;

use std::collections::HashMap;
use std::net::TcpListener;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use dunlin::space::{Behaviour, Heading, Host, RegionId, RegionState, Report, Scales, Succession, Transfer};

use super::config::{Peer, SpaceConfig};
use super::error::Refused;
use super::frame::Frame;
use super::handle::Orders;
use super::hello::{Hello, WorldKey};
use super::links::{Event, Links};
use super::lockstep::Lockstep;
use super::pace::{Pace, Schedule, monotonic_ns};
use super::poll::{self, Ready, Waker};
use super::secret::Secret;
use super::standing::Standing;
use super::stats::Stats;
use ids::Ids;
use viewing::Viewers;

pub use ids::SpawnError;

/// Deadlines of hand-overs are looked at so often.
const ELAPSE_NS: u64 = 5_000_000;
/// A connection is read so often in a turn, before others and ticks have theirs.
const FILLS_MAX: usize = 16;
/// Hand-overs whose time is taken.
const TIMED_MAX: usize = 1 << 16;

/// Is called after every tick, until it says `false`.
type Watcher<const D: usize, B> = Box<dyn FnMut(&Host<D, B>, u64) -> bool + Send>;

/// See the module.
pub struct Runner<const D: usize, B> {
    config: SpaceConfig,
    host: Host<D, B>,
    links: Links,
    waker: Waker,
    orders: Orders<D, B>,
    schedule: Schedule,
    lockstep: Option<Lockstep>,
    standing: Standing<D>,
    /// When Prepare was sent, and for how many: by source, target and transfer.
    timed: HashMap<(RegionId, RegionId, Transfer), (u64, u32)>,
    stats: Stats,
    /// Bytes and counts when the stats were taken anew.
    before: (u64, u64, u64, u64),
    refusals: Vec<(Option<u64>, Refused)>,
    reports: Vec<(RegionId, Report)>,
    reports_dropped: u64,
    watchers: Vec<Watcher<D, B>>,
    viewers: Viewers,
    ids: Ids<D, B>,
    scales: Scales,
    /// Ticks made, which is the regions' own number where they began together.
    ticks: u64,
    elapse_at_ns: u64,
    /// Everybody has what the last tick gave, as far as lock-step asks for that.
    open: bool,
    ended: bool,
}

impl<const D: usize, B: Behaviour<D> + Clone> Runner<D, B> {
    pub(super) fn new(
        config: SpaceConfig,
        host: Host<D, B>,
        listener: TcpListener,
        waker: Waker,
        orders: Orders<D, B>,
    ) -> Runner<D, B> {
        let now_ns = monotonic_ns();
        let world = WorldKey::of(&config.world, host.setup(), host.partition(), config.lockstep);
        let hello = Hello { process: config.process, world, regions: regions(&host) };
        let mut links = Links::new(listener, hello, config.secret, config.limits);
        config.peers.iter().for_each(|peer| links.add_peer(*peer, now_ns));
        let others = config.peers.iter().map(|peer| peer.process);
        let standing = Standing::new(host.setup().clone());
        Runner {
            lockstep: config.lockstep.then(|| Lockstep::new(others)),
            schedule: Schedule::new(config.pace, config.limits.ticks_behind_max, now_ns),
            config,
            host,
            links,
            waker,
            orders,
            standing,
            timed: HashMap::new(),
            stats: Stats { since_ns: now_ns, ..Stats::default() },
            before: (0, 0, 0, 0),
            refusals: Vec::new(),
            reports: Vec::new(),
            reports_dropped: 0,
            watchers: Vec::new(),
            viewers: Viewers::default(),
            ids: Ids::default(),
            scales: Scales::default(),
            ticks: 0,
            elapse_at_ns: 0,
            open: false,
            ended: false,
        }
    }

    /// Works until it is told to end.
    pub(super) fn run(&mut self) -> Result<(), String> {
        let mut ready = Ready::default();
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
            if ready.door {
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
                Event::Met { process, regions } => {
                    for (region, epoch) in regions {
                        self.meet(region, process, epoch, now_ns);
                    }
                }
                Event::Lost { process, .. } => {
                    for region in self.standing.forget(process) {
                        if self.standing.listeners(region).next().is_none() {
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
            tracing::warn!(process, "another process of this world is refused: {refused}");
            self.refusals.push((process, refused));
        }
    }

    /// A region elsewhere is run by this process in this epoch.
    pub(super) fn meet(&mut self, region: RegionId, process: u64, epoch: u64, now_ns: u64) {
        self.links.route(region, process, epoch);
        self.standing.forget_older(region, epoch);
        // Regions that may not act hear of it by its messages.
        let _ = self.host.meet(region, epoch, now_ns);
        if self.standing.wants(region) {
            self.links.send(process, &Frame::Follow(region));
        }
    }

    /// Sends what the host has to say.
    pub(super) fn ship(&mut self) {
        self.check_spawned();
        for (region, (entries, tick)) in self.standing.take_fresh() {
            if let Some((process, _)) = self.links.whereabouts(region) {
                self.links.send_or_end(process, &Frame::Knows { region, entries, tick }, &Bytes::new());
            }
        }
        let mut turn = self.host.take_turn();
        if !turn.messages.is_empty() || !turn.records.is_empty() {
            let now_ns = monotonic_ns();
            self.links.begin_turn(self.step(), now_ns);
            for (region, bytes) in &turn.records {
                for process in self.standing.listeners(*region) {
                    // A copy that lacks a record is none: it begins again with the next connection.
                    self.links.send_or_end(process, &Frame::Record { region: *region, bytes: &[] }, bytes);
                }
            }
            for (to, bytes) in turn.messages.drain(..) {
                if let Heading::Prepare { from, transfer, entities } = Heading::of(&bytes)
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
        self.lockstep.as_ref().map_or(self.ticks, Lockstep::step)
    }

    /// Its regions.
    pub fn host(&self) -> &Host<D, B> {
        &self.host
    }

    /// Its regions, to spawn and command entities.
    pub fn host_mut(&mut self) -> &mut Host<D, B> {
        &mut self.host
    }

    /// Which regions are run here has changed: others are told.
    pub fn regions_changed(&mut self) {
        self.links.set_regions(regions(&self.host));
        let now_ns = monotonic_ns();
        let elsewhere: Vec<_> = self.links.routes().collect();
        for (region, _, epoch) in elsewhere {
            let _ = self.host.meet(region, epoch, now_ns);
        }
    }

    /// Goes on in the place of a region's owner, from what is known here; `false` where nothing is.
    pub fn take_over(
        &mut self,
        region: RegionId,
        succession: &Succession<'_>,
    ) -> Result<bool, dunlin::space::HostError> {
        let Some(state) = self.standing.take_copy(region) else { return Ok(false) };
        self.standing.want_no_more(region);
        self.host.take_over(region, state, succession)?;
        self.regions_changed();
        Ok(true)
    }

    /// A region is another's, or nobody's.
    pub fn end_region(&mut self, region: RegionId) {
        if self.host.end(region).is_some() {
            self.standing.end(region);
            self.regions_changed();
        }
    }

    /// This process may not act for a region of its own any more: what the region holds is kept as a copy ([`Runner::copy_of`]), from which
    /// [`Runner::take_over`] goes on, here and in a later epoch, if nobody else has begun one.
    pub fn retire_region(&mut self, region: RegionId) {
        if let Some(state) = self.host.retire(region) {
            self.standing.keep(region, state);
            self.regions_changed();
        }
    }

    /// The highest epoch of a region that was ever heard of here; 0 where none was.
    pub fn epoch_known(&self, region: RegionId) -> u64 {
        let by_message = self.host.regions().filter_map(|(_, ours)| ours.handover().epoch_of(region));
        let copy = self.standing.copy(region).map(|copy| copy.handover().epoch());
        let route = self.links.whereabouts(region).map(|(_, epoch)| epoch);
        by_message.chain(copy).chain(route).max().unwrap_or(0)
    }

    /// Only who is named may stand by for regions of ours.
    pub fn name_standbys(&mut self) {
        self.standing.strict = true;
    }

    /// This process stands by for a region of ours: `counts` once it is who would go on with it. Said again, nothing changes.
    pub fn name_standby(&mut self, region: RegionId, process: u64, counts: bool) {
        self.standing.name(region, process, counts);
        self.count_known(region, monotonic_ns());
    }

    /// Whether who is named has all that counts as known, and is told what changes.
    pub fn has_candidate(&self, region: RegionId) -> bool {
        let counted = |region: &dunlin::space::Region<D, B>| (region.handover().known(), region.known_tick());
        self.host.region(region).is_some_and(|ours| self.standing.has_candidate(region, counted(ours)))
    }

    /// What those know who are waited for counts.
    fn count_known(&mut self, region: RegionId, now_ns: u64) {
        if let Some((entries, tick)) = self.standing.known(region) {
            self.host.standby_knows(region, entries, tick, now_ns);
        }
    }

    /// Stands by for a region from here on. Where nothing is known of it yet, its owner is asked again.
    pub fn follow(&mut self, region: RegionId) {
        let new = self.standing.want(region);
        if (new || self.standing.copy(region).is_none())
            && let Some((process, _)) = self.links.whereabouts(region)
        {
            self.links.send(process, &Frame::Follow(region));
        }
    }

    /// What was known of it before its owner of this epoch is forgotten.
    pub fn forget_older(&mut self, region: RegionId, epoch: u64) {
        self.standing.forget_older(region, epoch);
    }

    /// Does not stand by for it any more.
    pub fn unfollow(&mut self, region: RegionId) {
        self.standing.want_no_more(region);
        drop(self.standing.take_copy(region));
    }

    /// What is known here of a region of another's.
    pub fn copy_of(&self, region: RegionId) -> Option<&RegionState<D>> {
        self.standing.copy(region)
    }

    /// Who stands by for a region of ours.
    pub fn follower_of(&self, region: RegionId) -> Option<u64> {
        self.standing.follower(region)
    }

    /// The world's secret, for connections from here on.
    pub fn set_secret(&mut self, secret: Secret) {
        self.links.set_secret(secret);
    }

    /// Makes ticks so from here on: so many, or without end.
    pub fn set_pace(&mut self, pace: Pace, ticks: Option<u64>) {
        self.schedule.set(pace, ticks, monotonic_ns());
        self.begin_run();
    }

    /// Whether ticks are still to be made, or lock-step has not come to an end.
    pub fn is_busy(&mut self) -> bool {
        self.schedule.due_ns().is_some() || self.is_between_steps()
    }

    /// Another process is known from here on.
    pub fn add_peer(&mut self, peer: Peer) {
        self.links.add_peer(peer, monotonic_ns());
    }

    /// A process is gone for good.
    pub fn remove_peer(&mut self, process: u64) {
        self.links.remove_peer(process);
    }

    /// Who is connected.
    pub fn connected(&self) -> Vec<u64> {
        self.links.processes().collect()
    }

    /// Where regions elsewhere are run: region, process, epoch.
    pub fn elsewhere(&self) -> Vec<(RegionId, u64, u64)> {
        self.links.routes().collect()
    }

    /// Who was refused, or refused us, since the last call.
    pub fn take_refusals(&mut self) -> Vec<(Option<u64>, Refused)> {
        std::mem::take(&mut self.refusals)
    }

    /// What somebody should know, since the last call.
    pub fn take_reports(&mut self) -> Vec<(RegionId, Report)> {
        std::mem::take(&mut self.reports)
    }

    /// Is called after every tick with the regions and the tick's number, until it says `false`. It holds the tick up.
    pub fn after_ticks(&mut self, watcher: impl FnMut(&Host<D, B>, u64) -> bool + Send + 'static) {
        self.watchers.push(Box::new(watcher));
    }

    /// What it has done.
    pub fn stats(&self) -> Stats {
        let (sent, received) = self.links.bytes();
        let (bytes_sent, bytes_received, dropped, made) = self.before;
        Stats {
            sent_bytes: sent - bytes_sent,
            received_bytes: received - bytes_received,
            dropped: self.links.dropped - dropped,
            connections: self.links.made - made,
            ..self.stats.clone()
        }
    }

    /// The same, and counts from nothing from here on.
    pub fn stats_anew(&mut self) -> Stats {
        let stats = self.stats();
        let (sent, received) = self.links.bytes();
        self.before = (sent, received, self.links.dropped, self.links.made);
        self.stats = Stats { since_ns: monotonic_ns(), ..Stats::default() };
        stats
    }

    /// Ticks made.
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
