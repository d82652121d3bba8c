//! Hands over entities that crossed the border, and sends ghosts to the neighbours.

use std::collections::BTreeMap;

use super::{GHOSTS, Region, RegionOutputs, RegionReport, StepError};
use crate::behaviour::{Behaviour, LANES};
use crate::curve::{Curve, MortonCurve};
use crate::ghost::GhostBatch;
use crate::handover::{RegionId, TransferredEntity};
use crate::world::{Point, WorldBox};

/// Morton key of the smallest cell that holds a point.
#[inline(always)]
pub(super) fn key<const D: usize>(world: &WorldBox<D>, at: &Point<D>) -> u64 {
    MortonCurve::key(world.grid_point(at))
}

/// Whether a point's key is outside this stretch of keys.
#[inline(always)]
pub(super) fn is_beyond<const D: usize>(world: &WorldBox<D>, at: &Point<D>, stretch: (u64, u64)) -> bool {
    let key = key(world, at);
    key < stretch.0 || key >= stretch.1
}

impl<const D: usize, B: Behaviour<D>> Region<D, B> {
    /// Offers every entity in another region's stretch to that region, without waiting for the next tick. Call this,
    /// for example, after the curve was cut anew.
    pub fn offer_misplaced_entities(
        &mut self,
        now_ns: u64,
        out: &mut RegionOutputs,
    ) -> Result<(), StepError> {
        self.check_authority(now_ns)?;
        let (store, stretch) = (self.state.store(), self.stretch());
        let elsewhere = |row: &u32| {
            let at = store.position(*row as usize);
            !self.interior.surely_contains(&at) && is_beyond(&self.setup.world, &at, stretch)
        };
        self.changes.crossed = (0..store.len() as u32).filter(elsewhere).collect();
        self.offer_crossed(now_ns, out);
        self.apply_effects(out);
        Ok(())
    }

    /// Offers each entity that crossed the border to its new region. The entities for one region form one batch.
    pub(super) fn offer_crossed(&mut self, now_ns: u64, out: &mut RegionOutputs) {
        let crossed = std::mem::take(&mut self.changes.crossed);
        let mut leaving: BTreeMap<RegionId, Vec<TransferredEntity>> = BTreeMap::new();
        let (tick, store) = (self.state.tick(), self.state.store());
        for row in crossed
            .iter()
            .map(|row| *row as usize)
            .filter(|row| store.can_move(*row) && !store.is_cooling_down(*row, tick))
        {
            let at = store.position(row);
            let to = self.partition.owner(key(&self.setup.world, &at));
            if to != self.setup.region && !self.is_near(&at) {
                leaving.entry(to).or_default().push(store.transferred_entity(row));
            }
        }
        self.changes.crossed = crossed;
        for (to, mut entities) in leaving {
            while !entities.is_empty() {
                let rest = entities.split_off(entities.len().min(self.setup.limits.handover.batch_max));
                let (count, batch) = (entities.len(), std::mem::replace(&mut entities, rest));
                let offered = self.state.handover_mut().offer(to, batch, now_ns, &mut self.effects);
                if offered.is_err() {
                    self.report(RegionReport::Held { to, count: count + entities.len() }, out);
                    break;
                }
            }
        }
    }

    /// Whether `at` is near this region: whether a step of the length `hysteresis` along one axis leads from `at` to a
    /// point of this region. An entity at such a position is not handed over yet.
    fn is_near(&self, at: &Point<D>) -> bool {
        let near = self.setup.hysteresis;
        let own = |at: &Point<D>| self.partition.owner(key(&self.setup.world, at)) == self.setup.region;
        near > 0.0
            && (0..D).any(|axis| {
                [-near, near].into_iter().any(|step| {
                    let mut probe = *at;
                    probe[axis] += step;
                    own(&probe)
                })
            })
    }

    /// Sends each neighbour the entities near the common border, in their state after the last tick. If possible, call
    /// this method only when the handovers of this tick are done.
    pub fn send_ghosts(&mut self, out: &mut RegionOutputs) {
        let tick = self.state.tick();
        if !tick.is_multiple_of(u64::from(self.setup.ghosts_every.max(1))) {
            return;
        }
        self.ghosts_sent += 1;
        let (region, number) = (self.setup.region, self.ghosts_sent);
        let heading = GhostBatch::new(region, self.state.handover().epoch(), tick, number);
        let peers = self.partition.regions().iter().filter(|(_, peer)| *peer != region);
        let mut seen: BTreeMap<RegionId, Vec<u32>> = peers.map(|(_, peer)| (*peer, Vec::new())).collect();
        let (store, partition) = (self.state.store(), &self.partition);
        let strip_sq = self.setup.strip * self.setup.strip;
        let (mut row, mut end, columns) = (0, 0, store.positions());
        while row < store.len() {
            if row == end {
                row = self.interior.skip_unseen(&columns, row);
                end = row + LANES;
                continue;
            }
            let (number, at) = (row as u32, store.position(row));
            row += 1;
            if self.interior.is_unseen(&at) {
                continue;
            }
            for beside in self.strip.near(&at, region, partition) {
                if beside.is_within(strip_sq, &at)
                    && let Some(rows) = seen.get_mut(&beside.region)
                {
                    rows.push(number);
                }
            }
        }
        for (peer, rows) in seen {
            let mut bytes = Vec::with_capacity(1 + heading.bytes_of(rows.len()));
            bytes.push(GHOSTS);
            heading.encode_rows(store, &rows, &mut bytes);
            out.messages.push((peer, bytes));
        }
    }
}
