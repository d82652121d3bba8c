//! Regions of one process in lock-step: every tick begins when all that the tick before had to say has been heard.
//!
//! Messages pass as the bytes that they would be between processes. Whoever has several cores calls [`Region::tick`] of each
//! region on a thread of its own, and [`Lockstep::exchange`] after that.

use std::collections::{BTreeMap, VecDeque};

use crate::behaviour::Behaviour;
use crate::entity::EntityId;
use crate::handover::RegionId;
use crate::partition::Partition;
use crate::region::{Authority, Outputs, Region, Report, Setup, StepError};
use crate::store::{Entity, StoreError};
use crate::world::World;

/// All regions of a world.
#[derive(Debug)]
pub struct Lockstep<const D: usize, B> {
    world: World<D>,
    partition: Partition,
    regions: BTreeMap<RegionId, (Region<D, B>, Outputs)>,
    now_ns: u64,
    tick_ns: u64,
    messages: VecDeque<(RegionId, Vec<u8>)>,
    message_bytes: u64,
    /// Somebody came since the neighbours were told who is near.
    spawned: bool,
}

impl<const D: usize, B: Behaviour<D> + Clone> Lockstep<D, B> {
    /// So many regions of the same setup, of about the same space each.
    pub fn new(setup: &Setup<D>, behaviour: &B, regions: u32) -> Lockstep<D, B> {
        let ids: Vec<RegionId> = (1..=regions.max(1)).map(RegionId).collect();
        let partition = Partition::even(D, &ids);
        let authority = Authority { epoch: 1, until_ns: u64::MAX };
        let made = ids.iter().map(|id| {
            let setup = Setup { region: *id, ..setup.clone() };
            let mut region = Region::new(setup, behaviour.clone(), partition.clone(), authority);
            let mut out = Outputs::default();
            for peer in ids.iter().filter(|peer| *peer != id) {
                // Its lease has only just begun.
                let _ = region.meet(*peer, 1, 0, &mut out);
            }
            (*id, (region, out))
        });
        let (world, tick_ns) = (setup.world, setup.tick_ns);
        let regions = made.collect();
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

    /// Takes an entity in, where it belongs.
    pub fn spawn(&mut self, entity: &Entity<'_, D>) -> Result<(), StoreError> {
        use crate::curve::{Curve, Morton};
        let owner = self.partition.owner(Morton::key(self.world.place(&entity.position)));
        self.spawned = true;
        match self.regions.get_mut(&owner) {
            Some((region, out)) => region.spawn(entity, out),
            None => Err(StoreError::Outside(entity.id)),
        }
    }

    /// Makes a tick in every region, one after another, and hears all that follows.
    pub fn tick(&mut self) -> Result<(), StepError> {
        let now_ns = self.advance()?;
        for (region, out) in self.regions.values_mut() {
            region.tick(now_ns, out)?;
        }
        self.exchange()
    }

    /// Gets ready for a tick, and gives its time: for who ticks regions on threads.
    pub fn advance(&mut self) -> Result<u64, StepError> {
        if std::mem::take(&mut self.spawned) {
            self.exchange()?;
        }
        self.now_ns += self.tick_ns;
        Ok(self.now_ns)
    }

    /// Hands over who has crossed a border, then tells neighbours who is near one.
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

    /// Cuts the curve anew, between ticks: who is in another's stretch now is handed over, and neighbours see whom they have to.
    pub fn set_partition(&mut self, partition: &Partition) -> Result<(), StepError> {
        self.partition = partition.clone();
        for (region, out) in self.regions.values_mut() {
            region.set_partition(partition.clone());
            region.offer_misplaced(self.now_ns, out)?;
        }
        self.exchange()
    }

    /// How the curve is cut.
    pub fn partition(&self) -> &Partition {
        &self.partition
    }

    /// The regions.
    pub fn regions(&self) -> impl Iterator<Item = &Region<D, B>> {
        self.regions.values().map(|(region, _)| region)
    }

    /// The regions and what they say, to be ticked elsewhere.
    pub fn regions_mut(&mut self) -> impl Iterator<Item = &mut (Region<D, B>, Outputs)> {
        self.regions.values_mut()
    }

    /// Takes what the regions want published since the last call.
    pub fn take_records(&mut self) -> Vec<(RegionId, Vec<u8>)> {
        self.regions.iter_mut().map(|(id, (_, out))| (*id, std::mem::take(&mut out.record))).collect()
    }

    /// Takes what the regions reported.
    pub fn take_reports(&mut self) -> Vec<Report> {
        self.regions.values_mut().flat_map(|(_, out)| std::mem::take(&mut out.reports)).collect()
    }

    /// Bytes that regions have sent each other.
    pub fn message_bytes(&self) -> u64 {
        self.message_bytes
    }

    /// The set of all entities: id, generation, hash of the state; by id.
    pub fn ledger(&self) -> Vec<(EntityId, u32, u64)> {
        let mut all: Vec<_> = self.regions().flat_map(|region| region.store().ledger()).collect();
        all.sort_unstable();
        all
    }
}
