//! Runs all regions of a world in one process, in lock-step: a tick begins when all messages of the previous tick are
//! handled.
//!
//! Messages between these regions are encoded, as messages between processes are. [`Lockstep::tick`] uses one core. To
//! use several cores, call [`Region::tick`] of each region on its own thread, and then [`Lockstep::exchange`].

use std::collections::{BTreeMap, VecDeque};

use crate::behaviour::Behaviour;
use crate::entity::EntityId;
use crate::handover::RegionId;
use crate::partition::Partition;
use crate::region::{Region, RegionAuthority, RegionOutputs, RegionReport, RegionSetup, StepError};
use crate::store::{Entity, StoreError};
use crate::world::WorldBox;

/// Runs all regions of a world in one process, tick by tick: all messages of a tick are handled before the next.
#[derive(Debug)]
pub struct Lockstep<const D: usize, B> {
    world: WorldBox<D>,
    partition: Partition,
    regions: BTreeMap<RegionId, (Region<D, B>, RegionOutputs)>,
    now_ns: u64,
    tick_ns: u64,
    messages: VecDeque<(RegionId, Vec<u8>)>,
    message_bytes: u64,
    /// Whether entities were spawned since the last ghosts were sent.
    spawned: bool,
}

impl<const D: usize, B: Behaviour<D> + Clone> Lockstep<D, B> {
    /// Creates `regions` regions with the same setup, each with an about equal part of the world.
    pub fn new(setup: &RegionSetup<D>, behaviour: &B, regions: u32) -> Lockstep<D, B> {
        let ids: Vec<RegionId> = (1..=regions.max(1)).map(RegionId).collect();
        let partition = Partition::even(D, &ids);
        let authority = RegionAuthority { epoch: 1, until_ns: u64::MAX };
        let built = ids.iter().map(|id| {
            let setup = RegionSetup { region: *id, ..setup.clone() };
            let mut region = Region::new(setup, behaviour.clone(), partition.clone(), authority);
            let mut out = RegionOutputs::default();
            for peer in ids.iter().filter(|peer| *peer != id) {
                // Cannot fail, because the lease has just been granted.
                let _ = region.record_peer_epoch(*peer, 1, 0, &mut out);
            }
            (*id, (region, out))
        });
        let (world, tick_ns) = (setup.world, setup.tick_ns);
        let regions = built.collect();
        Lockstep {
            world,
            partition,
            regions,
            now_ns: 0,
            tick_ns,
            messages: VecDeque::new(),
            message_bytes: 0,
            spawned: false,
        }
    }

    /// Inserts an entity into the region that owns the entity's position.
    pub fn spawn(&mut self, entity: &Entity<'_, D>) -> Result<(), StoreError> {
        use crate::curve::{Curve, MortonCurve};
        let owner = self.partition.owner(MortonCurve::key(self.world.grid_point(&entity.position)));
        self.spawned = true;
        match self.regions.get_mut(&owner) {
            Some((region, out)) => region.spawn(entity, out),
            None => Err(StoreError::Outside(entity.id)),
        }
    }

    /// Runs one tick in every region, one region after another. Then handles all messages between the regions.
    pub fn tick(&mut self) -> Result<(), StepError> {
        let now_ns = self.advance()?;
        for (region, out) in self.regions.values_mut() {
            region.tick(now_ns, out)?;
        }
        self.exchange()
    }

    /// Prepares a tick and returns its time, for callers that run regions on threads.
    pub fn advance(&mut self) -> Result<u64, StepError> {
        if std::mem::take(&mut self.spawned) {
            self.exchange()?;
        }
        self.now_ns += self.tick_ns;
        Ok(self.now_ns)
    }

    /// Hands over entities that crossed a border, then sends ghosts.
    pub fn exchange(&mut self) -> Result<(), StepError> {
        self.deliver()?;
        for (region, out) in self.regions.values_mut() {
            region.send_ghosts(out);
        }
        self.deliver()
    }

    fn deliver(&mut self) -> Result<(), StepError> {
        for (_, out) in self.regions.values_mut() {
            self.messages.extend(out.messages.drain(..));
        }
        while let Some((to, bytes)) = self.messages.pop_front() {
            self.message_bytes += bytes.len() as u64;
            if let Some((region, out)) = self.regions.get_mut(&to) {
                region.receive(&bytes, self.now_ns, out)?;
                self.messages.extend(out.messages.drain(..));
            }
        }
        Ok(())
    }

    /// Replaces the partition between ticks, then hands entities over and sends ghosts.
    pub fn set_partition(&mut self, partition: &Partition) -> Result<(), StepError> {
        self.partition = partition.clone();
        for (region, out) in self.regions.values_mut() {
            region.set_partition(partition.clone());
            region.offer_misplaced_entities(self.now_ns, out)?;
        }
        self.exchange()
    }

    /// The current partition.
    pub fn partition(&self) -> &Partition {
        &self.partition
    }

    /// Iterates over the regions.
    pub fn regions(&self) -> impl Iterator<Item = &Region<D, B>> {
        self.regions.values().map(|(region, _)| region)
    }

    /// Iterates over the regions and their outputs, so that the caller can run the ticks itself, for example on
    /// threads.
    pub fn regions_mut(&mut self) -> impl Iterator<Item = &mut (Region<D, B>, RegionOutputs)> {
        self.regions.values_mut()
    }

    /// Takes the records that regions produced since the last call.
    pub fn take_records(&mut self) -> Vec<(RegionId, Vec<u8>)> {
        self.regions.iter_mut().map(|(id, (_, out))| (*id, std::mem::take(&mut out.record))).collect()
    }

    /// Takes the reports that regions produced since the last call.
    pub fn take_reports(&mut self) -> Vec<RegionReport> {
        self.regions.values_mut().flat_map(|(_, out)| std::mem::take(&mut out.reports)).collect()
    }

    /// Total size of the messages between regions so far, bytes.
    pub fn message_bytes(&self) -> u64 {
        self.message_bytes
    }

    /// Id, generation and state hash of each entity, in the order of ids.
    pub fn ledger(&self) -> Vec<(EntityId, u32, u64)> {
        let mut all: Vec<_> = self.regions().flat_map(|region| region.store().ledger()).collect();
        all.sort_unstable();
        all
    }
}
