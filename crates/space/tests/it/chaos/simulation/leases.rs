//! Leases in the simulation: which process owns a region, and which is its standby.

use dunlin_space::{Handover, RegionId, StandbyMode};

use super::{ChaosSimulation, Event, LEASE, MS, TIMING};

impl ChaosSimulation {
    /// Renews the lease of a running owner. An expired lease passes to the standby, or back to an owner that was
    /// paused.
    pub(super) fn check_lease(&mut self, owner: usize) -> Result<(), String> {
        if !self.is_owner(owner) {
            return Ok(());
        }
        let node = &mut self.nodes[owner];
        if node.can_act(self.now) {
            node.lease_until = self.now + LEASE;
            self.at(LEASE / 3, Event::CheckLease(owner));
        } else if self.now >= node.lease_until {
            let (alive, back) = (node.alive, node.paused_until.saturating_sub(self.now));
            if !alive || self.dice.below(2) == 0 {
                return self.take_over(owner);
            }
            self.at(back, Event::Reclaim(owner));
        } else {
            let after = (node.lease_until - self.now).min(10 * MS);
            self.at(after, Event::CheckLease(owner));
        }
        Ok(())
    }

    fn take_over(&mut self, ended: usize) -> Result<(), String> {
        let region = self.nodes[ended].region;
        if self.nodes[ended].alive {
            self.record_loss(ended);
        }
        let (heir, is_state_lost) = match self.nodes[ended].standby {
            Some(standby) if self.standby == StandbyMode::Required => (standby, false),
            _ => (self.add_node(region, Handover::new(region, 0, self.standby, TIMING)), true),
        };
        assert!(is_state_lost == (self.standby == StandbyMode::None), "a region is left without a standby");
        self.counters.taken_over += 1;
        self.start_owner(region, heir, is_state_lost)
    }

    /// Gives a region back, in a later epoch, to a former owner that was paused for longer than its lease. The caller
    /// has checked that no other process has claimed the region in the meantime.
    pub(super) fn reclaim(&mut self, before: usize) -> Result<(), String> {
        let handover = self.nodes[before].handover.copy_for_standby();
        let region = self.nodes[before].region;
        let heir = self.add_node(region, handover);
        self.nodes[before].alive = false;
        (self.nodes[heir].held, self.nodes[heir].tick) =
            (self.nodes[before].held.clone(), self.nodes[before].tick);
        self.counters.moved_over += self.nodes[before].moved_over;
        self.counters.refused += self.nodes[before].refused;
        self.counters.reclaimed += 1;
        self.start_owner(region, heir, false)
    }

    /// Makes `heir` the owner of a region, in the next epoch.
    fn start_owner(&mut self, region: RegionId, heir: usize, is_state_lost: bool) -> Result<(), String> {
        let ownership = self.regions.get_mut(&region).unwrap();
        (ownership.epoch, ownership.owner) = (ownership.epoch + 1, heir);
        let epoch = ownership.epoch;
        let node = &mut self.nodes[heir];
        (node.owner, node.lease_until, node.tick_known) = (true, self.now + LEASE, node.tick);
        let peers: Vec<_> = self.regions.iter().map(|(id, owned)| (*id, owned.epoch)).collect();
        let others: Vec<_> = peers.iter().copied().filter(|(id, _)| *id != region).collect();
        for (to, _) in &others {
            let after = self.dice.below(200 * MS);
            self.at(after, Event::RecordEpoch { to: *to, peer: region, epoch });
        }
        self.start_timers(heir);
        let after = self.dice.below(60 * MS);
        self.at(after, Event::Attach(heir));
        let now = self.now;
        self.act(heir, |node, effects| node.handover.take_over(epoch, is_state_lost, &others, now, effects))
    }

    /// Attaches a standby to an owner that has no standby. The standby starts from a copy of the owner's state.
    pub(super) fn attach(&mut self, owner: usize) -> Result<(), String> {
        let stopped = self.nodes[owner].paused_until > self.now;
        if self.standby == StandbyMode::None
            || !self.is_owner(owner)
            || self.nodes[owner].standby.is_some()
            || stopped
        {
            return Ok(());
        }
        if !self.nodes[owner].alive {
            return Ok(());
        }
        let handover = self.nodes[owner].handover.copy_for_standby();
        let entries = handover.written();
        let standby = self.add_node(self.nodes[owner].region, handover);
        (self.nodes[standby].held, self.nodes[standby].tick) =
            (self.nodes[owner].held.clone(), self.nodes[owner].tick);
        self.nodes[owner].standby = Some(standby);
        let tick = self.nodes[owner].tick;
        self.acknowledge(owner, standby, entries, tick)
    }
}
