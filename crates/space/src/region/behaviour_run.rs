//! Runs the behaviour for all entities in groups. If the behaviour has no sight, a group consists of adjacent rows of
//! the store. Otherwise, a group consists of adjacent slots of the view, which is the grid of visible entities.
//!
//! After a panic in a group, the behaviour runs again for one entity at a time. This shows which entity causes the
//! panic.

use super::mover::Mover;
use super::view::{LaneSlots, LanesInSight, NoNearbyEntities, VisibleEntities};
use crate::behaviour::{Behaviour, LANES, Motion, OwnEntityLanes, TickContext};

/// Runs the behaviour for all entities of a tick.
pub(super) struct BehaviourRun<'a, const D: usize, B> {
    pub(super) behaviour: &'a B,
    pub(super) context: TickContext<D>,
    pub(super) mover: Mover<'a, D>,
}

/// How far the behaviour has run within a tick.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct TickProgress {
    /// First row, or slot of the view, for which the behaviour has not run yet.
    pub(super) next: usize,
    /// Whether the behaviour runs for one entity at a time after a panic, to identify the failing entity.
    pub(super) alone: bool,
}

impl<const D: usize, B: Behaviour<D>> BehaviourRun<'_, D, B> {
    /// Runs a behaviour without sight, with the widest vectors of the processor. The results do not depend on the width
    /// of the vectors, because the compiler neither merges nor reorders floating-point operations.
    pub(super) fn run_rows(&mut self, progress: &mut TickProgress) {
        #[cfg(target_arch = "x86_64")]
        if std::is_x86_feature_detected!("avx512vl") {
            // SAFETY: the check above has shown that the processor supports AVX-512.
            return unsafe { self.run_rows_avx512(progress) };
        }
        #[cfg(target_arch = "x86_64")]
        if std::is_x86_feature_detected!("avx2") {
            // SAFETY: the check above has shown that the processor supports AVX2.
            return unsafe { self.run_rows_avx2(progress) };
        }
        self.run_row_groups(progress);
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512vl")]
    fn run_rows_avx512(&mut self, progress: &mut TickProgress) {
        self.run_row_groups(progress);
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2")]
    fn run_rows_avx2(&mut self, progress: &mut TickProgress) {
        self.run_row_groups(progress);
    }

    #[inline(always)]
    fn run_row_groups(&mut self, progress: &mut TickProgress) {
        let len = self.mover.rows.ids.len();
        while progress.next < len {
            // If the behaviour panics, `progress` still names the first row of this group.
            let row = progress.next;
            match self.mover.own_lanes(row).filter(|_| !progress.alone) {
                Some(own) => {
                    let motions = self.step_each(&own);
                    self.mover.store_lanes(row, &own, &motions);
                    progress.next = row + LANES;
                }
                None => {
                    for row in row..len.min(row + LANES) {
                        progress.next = row;
                        self.step_alone(row);
                    }
                    progress.next = len.min(row + LANES);
                }
            }
        }
    }

    /// Calls the behaviour for one lane after another. If the behaviour has no branches, the compiler turns this loop
    /// into vector instructions.
    #[inline(always)]
    fn step_each(&self, own: &OwnEntityLanes<D>) -> OwnEntityLanes<D> {
        let mut next = *own;
        for lane in 0..LANES {
            let Motion { position, velocity } =
                self.behaviour.step(&own.own(lane), &NoNearbyEntities, &self.context);
            for axis in 0..D {
                next.position[axis][lane] = position[axis];
                next.velocity[axis][lane] = velocity[axis];
            }
        }
        next
    }

    #[inline(always)]
    fn step_alone(&mut self, row: usize) {
        if self.mover.rows.flags[row] == 0 {
            let own = self.mover.own(row);
            let motion = self.behaviour.step(&own, &NoNearbyEntities, &self.context);
            self.mover.store_motion(row, &own, &motion);
        }
    }

    /// Runs a behaviour with sight, with the same vector instructions as `run_rows`.
    pub(super) fn run_with_sight(&mut self, view: &VisibleEntities<D>, progress: &mut TickProgress) {
        #[cfg(target_arch = "x86_64")]
        if std::is_x86_feature_detected!("avx512vl") {
            // SAFETY: the check above has shown that the processor supports AVX-512.
            return unsafe { self.run_with_sight_avx512(view, progress) };
        }
        #[cfg(target_arch = "x86_64")]
        if std::is_x86_feature_detected!("avx2") {
            // SAFETY: the check above has shown that the processor supports AVX2.
            return unsafe { self.run_with_sight_avx2(view, progress) };
        }
        self.run_cells(view, progress);
    }

    /// Uses vectors of the width of AVX2, and the registers of AVX-512, which has twice as many.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512vl")]
    fn run_with_sight_avx512(&mut self, view: &VisibleEntities<D>, progress: &mut TickProgress) {
        self.run_cells(view, progress);
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2")]
    fn run_with_sight_avx2(&mut self, view: &VisibleEntities<D>, progress: &mut TickProgress) {
        self.run_cells(view, progress);
    }

    #[inline(always)]
    fn run_cells(&mut self, view: &VisibleEntities<D>, progress: &mut TickProgress) {
        for row in 0..view.row_count() {
            let slots = view.row(row);
            let mut group = LaneSlots::new();
            let mut begin = 0.0;
            for slot in slots.start.max(progress.next)..slots.end {
                let item = view.item(slot);
                if self.mover.rows.flags.get(item) != Some(&0) {
                    continue;
                }
                let at = view.first_axis(slot);
                if group.is_full() || at - begin > view.sight() {
                    self.step_group(view, &mut group, progress);
                }
                if group.slots().is_empty() {
                    begin = at;
                }
                group.push(slot);
            }
            self.step_group(view, &mut group, progress);
            progress.next = progress.next.max(slots.end);
        }
    }

    #[inline(always)]
    fn step_group(&mut self, view: &VisibleEntities<D>, group: &mut LaneSlots, progress: &mut TickProgress) {
        let Some(first) = group.slots().first() else { return };
        // If the behaviour panics, `progress` names the failed slot.
        progress.next = *first as usize;
        let own = group.own(view, self.mover.rows.ids);
        let around = LanesInSight { view, group, position: own.position };
        let together =
            if progress.alone { None } else { self.behaviour.step_lanes(&own, &around, &self.context) };
        for (lane, slot) in group.slots().iter().enumerate() {
            let (slot, own) = (*slot as usize, own.own(lane));
            progress.next = slot;
            let motion = match &together {
                Some(motions) => motions[lane],
                None => self.behaviour.step(&own, &view.around(slot), &self.context),
            };
            self.mover.store_motion(view.item(slot), &own, &motion);
        }
        *group = LaneSlots::new();
    }
}
