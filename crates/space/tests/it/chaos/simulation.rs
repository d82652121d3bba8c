//! A simulated cluster: regions, owners, standbys, leases and a network. It has one thread, one clock and one seed.

mod leases;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use dunlin_space::{EntityId, Handover, HandoverMessage, HandoverTiming, RegionId, StandbyMode};

use super::ledger::ExpectedEntities;
use super::node::{EntityState, ProcessEffect, SimulatedProcess, StandbyItem};
use crate::Dice;

const MS: u64 = 1_000_000;
const TICK: u64 = 20 * MS;
const LEASE: u64 = 300 * MS;
/// The time at which faults and offers end. The run ends later, at [`END`]. Between the two times, late messages
/// arrive.
const FAULTS_END: u64 = 4_000 * MS;
const END: u64 = 6_800 * MS;
const TIMING: HandoverTiming = HandoverTiming { prepare_ns: 60 * MS, resend_ns: 25 * MS, query_ns: 80 * MS };

/// Probabilities of faults, in thousandths.
#[derive(Debug, Clone, Copy)]
pub struct FaultRates {
    loss: u64,
    doubled: u64,
    late: u64,
    kills: bool,
}

impl FaultRates {
    pub fn all() -> FaultRates {
        FaultRates { loss: 80, doubled: 100, late: 30, kills: true }
    }

    pub fn none() -> FaultRates {
        FaultRates { loss: 0, doubled: 0, late: 0, kills: false }
    }
}

/// Counters of events, to detect a run in which nothing happened.
#[derive(Debug, Default)]
pub struct RunCounters {
    pub kills: u64,
    pub taken_over: u64,
    pub reclaimed: u64,
    pub moved_over: u64,
    pub refused: u64,
    pub aborted: u64,
    pub lost_messages: u64,
    pub late_messages: u64,
}

#[derive(Debug)]
enum Event {
    Deliver { to: RegionId, message: Box<HandoverMessage> },
    Stream { from: usize, to: usize, item: StandbyItem },
    Ack { to: usize, from: usize, entries: u64, tick: u64 },
    RecordEpoch { to: RegionId, peer: RegionId, epoch: u64 },
    Tick(usize),
    Wake(usize),
    CheckLease(usize),
    Reclaim(usize),
    Attach(usize),
    Pause,
}

/// The owner of a region, according to the region's lease.
#[derive(Debug)]
struct Ownership {
    epoch: u64,
    owner: usize,
}

/// A simulated cluster with injected faults: its settings and its state.
pub struct ChaosSimulation {
    dice: Dice,
    standby: StandbyMode,
    faults: FaultRates,
    now: u64,
    queue: BinaryHeap<Reverse<(u64, u64, usize)>>,
    events: Vec<Option<Event>>,
    nodes: Vec<SimulatedProcess>,
    regions: BTreeMap<RegionId, Ownership>,
    /// Pairs of regions that cannot reach each other. The value is the time at which the cut between the two ends.
    cuts: BTreeMap<(RegionId, RegionId), u64>,
    /// Arrival time of the last item to a standby; streams keep their order.
    streams: BTreeMap<(usize, usize), u64>,
    /// Number of effects that are carried out before a process is killed.
    countdown: u64,
    pub ledger: ExpectedEntities,
    pub counters: RunCounters,
}

impl ChaosSimulation {
    pub fn new(seed: u64, standby: StandbyMode, faults: FaultRates) -> ChaosSimulation {
        let mut stage = ChaosSimulation {
            dice: Dice(seed.wrapping_mul(0x2545_f491_4f6c_dd1d)),
            standby,
            faults,
            now: 0,
            queue: BinaryHeap::new(),
            events: Vec::new(),
            nodes: Vec::new(),
            regions: BTreeMap::new(),
            cuts: BTreeMap::new(),
            streams: BTreeMap::new(),
            countdown: 0,
            ledger: ExpectedEntities::default(),
            counters: RunCounters::default(),
        };
        stage.countdown = 1 + stage.dice.below(300);
        stage.populate();
        stage
    }

    fn populate(&mut self) {
        let regions = 2 + self.dice.below(2) as u32;
        for region in 1..=regions {
            let handover = Handover::new(RegionId(region), 1, self.standby, TIMING);
            let owner = self.add_node(RegionId(region), handover);
            self.nodes[owner].owner = true;
            self.nodes[owner].lease_until = LEASE;
            self.regions.insert(RegionId(region), Ownership { epoch: 1, owner });
            self.start_timers(owner);
            self.at(0, Event::Attach(owner));
        }
        for number in 0..u64::from(regions) * 8 {
            let (id, owner) = (EntityId(number), number as usize % regions as usize);
            self.nodes[owner].held.insert(id, EntityState { generation: 1, steps: 0, suspended: false });
            self.ledger.insert(id, 1);
        }
        for (to, peer) in (1..=regions).flat_map(|to| (1..=regions).map(move |peer| (to, peer))) {
            if to != peer {
                self.at(0, Event::RecordEpoch { to: RegionId(to), peer: RegionId(peer), epoch: 1 });
            }
        }
        if self.faults.kills {
            self.at(1_000 * MS, Event::Pause);
        }
    }

    fn add_node(&mut self, region: RegionId, handover: Handover) -> usize {
        let number = self.nodes.len();
        self.nodes.push(SimulatedProcess {
            region,
            handover,
            held: Default::default(),
            alive: true,
            owner: false,
            lease_until: 0,
            paused_until: 0,
            tick: 0,
            tick_known: 0,
            standby: None,
            effects: Default::default(),
            moved_over: 0,
            refused: 0,
        });
        number
    }

    /// Starts an owner's timers.
    fn start_timers(&mut self, owner: usize) {
        let offset = self.dice.below(TICK);
        self.at(offset, Event::Tick(owner));
        self.at(5 * MS, Event::Wake(owner));
        self.at(LEASE / 3, Event::CheckLease(owner));
    }

    fn at(&mut self, after: u64, event: Event) {
        let number = self.events.len();
        self.queue.push(Reverse((self.now + after, self.dice.roll(), number)));
        self.events.push(Some(event));
    }

    /// Runs the simulation to its end, or to the first violation of an invariant.
    pub fn run(mut self) -> Result<ChaosSimulation, String> {
        while let Some(Reverse((at, _, number))) = self.queue.pop() {
            if at > END {
                break;
            }
            self.now = at;
            let Some(event) = self.events[number].take() else { continue };
            self.handle(event)?;
            self.check_owners()?;
        }
        self.check_end()?;
        Ok(self)
    }

    fn handle(&mut self, event: Event) -> Result<(), String> {
        match event {
            Event::Deliver { to, message } => self.deliver(to, *message),
            Event::Stream { from, to, item } => self.stream(from, to, item),
            Event::Ack { to, from, entries, tick } => self.acknowledge(to, from, entries, tick),
            Event::RecordEpoch { to, peer, epoch } => {
                let owner = self.regions[&to].owner;
                let now = self.now;
                self.act(owner, |node, effects| node.handover.record_peer_epoch(peer, epoch, now, effects))
            }
            Event::Tick(owner) => self.tick(owner),
            Event::Wake(owner) => {
                if self.is_owner(owner) {
                    self.at(5 * MS, Event::Wake(owner));
                }
                let now = self.now;
                self.act(owner, |node, effects| node.handover.advance_time(now, effects))
            }
            Event::CheckLease(owner) => self.check_lease(owner),
            Event::Reclaim(owner) => self.reclaim(owner),
            Event::Attach(owner) => self.attach(owner),
            Event::Pause => self.pause(),
        }
    }

    fn is_owner(&self, node: usize) -> bool {
        self.regions[&self.nodes[node].region].owner == node
    }

    /// Runs an action of process `number`, if this process is able to act. Then carries out the action's effects,
    /// unless the process is killed before that.
    fn act(
        &mut self,
        number: usize,
        action: impl FnOnce(&mut SimulatedProcess, &mut Vec<dunlin_space::HandoverEffect>),
    ) -> Result<(), String> {
        if !self.nodes[number].can_act(self.now) {
            return Ok(());
        }
        let mut effects = Vec::new();
        action(&mut self.nodes[number], &mut effects);
        self.nodes[number].effects.extend(effects);
        while let Some(effect) = self.nodes[number].effects.pop_front() {
            let out = self.nodes[number].apply_effect(effect)?;
            if let Some(out) = out {
                self.dispatch(number, out);
            }
            if self.is_killed_now(number) {
                self.kill(number);
                break;
            }
        }
        Ok(())
    }

    fn dispatch(&mut self, from: usize, out: ProcessEffect) {
        match out {
            ProcessEffect::Send(to, message) => self.send(to, message),
            ProcessEffect::Stream(item) => self.stream_to_standby(from, item),
            ProcessEffect::Lost(ids) => {
                assert_eq!(self.standby, StandbyMode::None, "{ids:?} are given up beside a standby");
                ids.into_iter().for_each(|id| self.ledger.allow_loss(id));
            }
        }
    }

    fn stream_to_standby(&mut self, from: usize, item: StandbyItem) {
        let Some(to) = self.nodes[from].standby else { return };
        let arrives = self.now + 1 + self.dice.below(8 * MS);
        let last = self.streams.entry((from, to)).or_default();
        *last = (*last + 1).max(arrives);
        let after = *last - self.now;
        self.at(after, Event::Stream { from, to, item });
    }

    fn send(&mut self, to: RegionId, message: HandoverMessage) {
        let has_faults = self.now < FAULTS_END;
        let pair = (message.from.min(to), message.from.max(to));
        let cut = self.cuts.get(&pair).is_some_and(|until| self.now < *until);
        if has_faults && (cut || self.dice.below(1_000) < self.faults.loss) {
            self.counters.lost_messages += 1;
            return;
        }
        if has_faults && self.faults.kills && self.dice.below(1_000) < 4 {
            let until = self.now + self.dice.below(600 * MS);
            self.cuts.insert(pair, until);
        }
        let copies = 1 + u64::from(has_faults && self.dice.below(1_000) < self.faults.doubled);
        for _ in 0..copies {
            let mut after = 1 + self.dice.below(12 * MS);
            if has_faults && self.dice.below(1_000) < self.faults.late {
                self.counters.late_messages += 1;
                after = self.dice.below(2_000 * MS);
            }
            self.at(after, Event::Deliver { to, message: Box::new(message.clone()) });
        }
    }

    fn deliver(&mut self, to: RegionId, message: HandoverMessage) -> Result<(), String> {
        let mut bytes = Vec::new();
        message.encode(&mut bytes);
        let message = HandoverMessage::decode(&bytes).map_err(|error| error.to_string())?;
        let (owner, now) = (self.regions[&to].owner, self.now);
        self.act(owner, |node, effects| node.handover.receive(message, &node.held, now, effects))
    }

    fn stream(&mut self, from: usize, to: usize, item: StandbyItem) -> Result<(), String> {
        let standby = &mut self.nodes[to];
        if !standby.alive
            || standby.owner
            || self.streams.get(&(from, to)).is_none_or(|last| *last < self.now)
        {
            return Ok(());
        }
        standby.follow(item)?;
        if self.is_killed_now(to) {
            self.kill(to);
            return Ok(());
        }
        let (entries, tick) = (self.nodes[to].handover.written(), self.nodes[to].tick);
        let after = 1 + self.dice.below(4 * MS);
        self.at(after, Event::Ack { to: from, from: to, entries, tick });
        Ok(())
    }

    fn acknowledge(&mut self, to: usize, from: usize, entries: u64, tick: u64) -> Result<(), String> {
        if self.nodes[to].standby != Some(from) {
            return Ok(());
        }
        let now = self.now;
        self.act(to, |node, effects| {
            node.tick_known = node.tick_known.max(tick);
            node.handover.standby_acknowledged(entries, now, effects);
        })
    }

    /// Moves all entities of an owner by one step, and offers some of them to other regions.
    fn tick(&mut self, owner: usize) -> Result<(), String> {
        if self.is_owner(owner) && self.nodes[owner].alive {
            self.at(TICK, Event::Tick(owner));
        }
        let node = &mut self.nodes[owner];
        let in_time =
            self.standby == StandbyMode::None || (node.standby.is_some() && node.tick_known >= node.tick);
        if !node.can_act(self.now) || !in_time {
            return Ok(());
        }
        node.tick += 1;
        let mut moved = Vec::new();
        for (id, held) in node.held.iter_mut().filter(|(_, held)| !held.suspended) {
            self.ledger.moved(*id, held.steps)?;
            held.steps += 1;
            moved.push((*id, held.steps));
        }
        let item = StandbyItem::Tick(node.tick, moved);
        self.stream_to_standby(owner, item);
        if self.is_killed_now(owner) {
            self.kill(owner);
            return Ok(());
        }
        self.offer_some(owner)
    }

    fn offer_some(&mut self, owner: usize) -> Result<(), String> {
        if self.now > FAULTS_END {
            return Ok(());
        }
        let own = self.nodes[owner].region;
        let others: Vec<RegionId> = self.regions.keys().copied().filter(|region| *region != own).collect();
        for to in others {
            let movable: Vec<EntityId> = self.nodes[owner]
                .held
                .iter()
                .filter(|(_, held)| !held.suspended)
                .map(|(id, _)| *id)
                .collect();
            let leaving: Vec<EntityId> = movable.into_iter().filter(|_| self.dice.below(100) < 12).collect();
            let now = self.now;
            if leaving.is_empty() {
                continue;
            }
            self.act(owner, |node, effects| {
                let entities = leaving.iter().map(|id| node.transferred_entity(*id)).collect();
                // The offer fails if the owner of the other region is not known yet. The owner becomes known later.
                let _ = node.handover.offer(to, entities, now, effects);
            })?;
        }
        Ok(())
    }

    /// Pauses a process for longer than its lease.
    fn pause(&mut self) -> Result<(), String> {
        if self.now < FAULTS_END {
            let after = 500 * MS + self.dice.below(1_500 * MS);
            self.at(after, Event::Pause);
            let regions: Vec<usize> = self.regions.values().map(|owned| owned.owner).collect();
            let victim = regions[self.dice.below(regions.len() as u64) as usize];
            let covered = self.standby == StandbyMode::None || self.nodes[victim].standby.is_some();
            if self.nodes[victim].alive && covered {
                self.nodes[victim].paused_until = self.now + self.dice.below(2 * LEASE);
            }
        }
        Ok(())
    }

    /// Whether this step kills the process. An owner and its standby are never killed at the same time.
    fn is_killed_now(&mut self, number: usize) -> bool {
        self.countdown = self.countdown.saturating_sub(1);
        if self.countdown > 0 || !self.faults.kills || self.now > FAULTS_END {
            return false;
        }
        let node = &self.nodes[number];
        if self.standby == StandbyMode::None {
            return node.owner;
        }
        let owner = &self.nodes[self.regions[&node.region].owner];
        if node.owner {
            node.standby.is_some()
        } else {
            owner.standby == Some(number) && owner.can_act(self.now)
        }
    }

    fn kill(&mut self, number: usize) {
        self.countdown = 1 + self.dice.below(500);
        self.counters.kills += 1;
        self.record_loss(number);
        let node = &mut self.nodes[number];
        node.alive = false;
        node.effects.clear();
        let (region, was_owner) = (node.region, node.owner);
        let owner = self.regions[&region].owner;
        if !was_owner {
            self.nodes[owner].standby = None;
            let after = self.dice.below(200 * MS);
            self.at(after, Event::Attach(owner));
        }
    }

    /// Records what a killed owner may have lost. Its entities may be set back by a tick, or vanish. The last items
    /// that it sent to its standby may never arrive.
    fn record_loss(&mut self, number: usize) {
        let node = &self.nodes[number];
        if !node.owner {
            return;
        }
        for id in node.held.keys().copied().chain(node.handover.in_doubt()) {
            if self.standby == StandbyMode::None {
                self.ledger.allow_loss(id);
            } else if node.held.contains_key(&id) {
                self.ledger.owner_killed(id, 1);
            }
        }
        if let Some(standby) = node.standby
            && let Some(last) = self.streams.get_mut(&(number, standby))
        {
            *last = (*last).min(self.now + self.dice.below(8 * MS));
        }
        self.counters.moved_over += node.moved_over;
        self.counters.refused += node.refused;
    }

    /// Fails if two owners move one entity.
    fn check_owners(&self) -> Result<(), String> {
        let mut owners = BTreeMap::new();
        for node in self.nodes.iter().filter(|node| node.can_act(self.now)) {
            for (id, _) in node.held.iter().filter(|(_, held)| !held.suspended) {
                if let Some(other) = owners.insert(*id, node.region) {
                    return Err(format!("regions {} and {} both move entity {id}", other.0, node.region.0));
                }
            }
        }
        Ok(())
    }

    fn check_end(&mut self) -> Result<(), String> {
        let mut owned = BTreeMap::new();
        let owners: Vec<usize> = self.regions.values().map(|region| region.owner).collect();
        for node in owners.into_iter().map(|owner| &self.nodes[owner]) {
            if node.handover.in_progress() != (0, 0) {
                return Err(format!("region {} is not done: {:?}", node.region.0, node.handover));
            }
            if let Some((id, _)) = node.held.iter().find(|(_, held)| held.suspended) {
                return Err(format!("entity {id} stands still for ever"));
            }
            self.counters.moved_over += node.moved_over;
            self.counters.refused += node.refused;
            self.counters.aborted += node.handover.counts().aborted;
            for (id, held) in node.held.iter() {
                if owned.insert(*id, (held.generation, held.steps)).is_some() {
                    return Err(format!("entity {id} is there twice"));
                }
            }
        }
        self.ledger.compare(&owned)
    }
}
