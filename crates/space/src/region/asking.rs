//! Runs the behaviour for all entities: in groups of adjacent rows for behaviours without sight, and in groups of
//! adjacent slots of the view for behaviours with sight.
//!
//! After a panic, the entities run one by one, which identifies the failing entity.

use super::mover::Mover;
use super::view::{LaneSlots, LanesInSight, NoNearbyEntities, VisibleEntities};
use crate::behaviour::{Behaviour, LANES, Motion, OwnEntityLanes, TickContext};

/// Runs the behaviour for all entities of a tick.
pub(super) struct BehaviourRun<'a, const D: usize, B> {
    pub(super) behaviour: &'a B,
    pub(super) moment: TickContext<D>,
    pub(super) mover: Mover<'a, D>,
}

/// How far the behaviour has run within a tick.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct TickProgress {
    /// First row, or slot of the view, that is not done.
    pub(super) next: usize,
    /// Whether entities run one by one after a panic, to identify the failing entity.
    pub(super) alone: bool,
}

impl<const D: usize, B: Behaviour<D>> BehaviourRun<'_, D, B> {
    /// Runs entities without sight, with the widest vectors of the processor. Results do not depend on the
    /// width: no operation is contracted or reordered.
    pub(super) fn by_rows(&mut self, progress: &mut TickProgress) {
        #[cfg(target_arch = "x86_64")]
        if std::is_x86_feature_detected!("avx512vl") {
            // SAFETY: the processor supports AVX-512; it was checked above.
            return unsafe { self.by_rows_avx512(progress) };
        }
        #[cfg(target_arch = "x86_64")]
        if std::is_x86_feature_detected!("avx2") {
            // SAFETY: the processor supports AVX2; it was checked above.
            return unsafe { self.by_rows_avx2(progress) };
        }
        self.by_some_rows(progress);
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512vl")]
    fn by_rows_avx512(&mut self, progress: &mut TickProgress) {
        self.by_some_rows(progress);
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2")]
    fn by_rows_avx2(&mut self, progress: &mut TickProgress) {
        self.by_some_rows(progress);
    }

    #[inline(always)]
    fn by_some_rows(&mut self, progress: &mut TickProgress) {
        let len = self.mover.rows.ids.len();
        while progress.next < len {
            // If the behaviour panics, `progress` still names this row.
            let row = progress.next;
            match self.mover.own_lanes(row).filter(|_| !progress.alone) {
                Some(own) => {
                    let motions = self.step_each(&own);
                    self.mover.put_lanes(row, &own, &motions);
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

    /// Calls the behaviour for one lane after another. If the behaviour has no branches, the compiler uses vector
    /// instructions.
    #[inline(always)]
    fn step_each(&self, own: &OwnEntityLanes<D>) -> OwnEntityLanes<D> {
        let mut next = *own;
        for lane in 0..LANES {
            let Motion { position, velocity } =
                self.behaviour.step(&own.own(lane), &NoNearbyEntities, &self.moment);
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
            let motion = self.behaviour.step(&own, &NoNearbyEntities, &self.moment);
            self.mover.put(row, &own, &motion);
        }
    }

    /// Runs entities with sight; with the same vector instructions as `by_rows`.
    pub(super) fn by_sight(&mut self, view: &VisibleEntities<D>, progress: &mut TickProgress) {
        #[cfg(target_arch = "x86_64")]
        if std::is_x86_feature_detected!("avx512vl") {
            // SAFETY: the processor supports AVX-512; it was checked above.
            return unsafe { self.by_sight_avx512(view, progress) };
        }
        #[cfg(target_arch = "x86_64")]
        if std::is_x86_feature_detected!("avx2") {
            // SAFETY: the processor supports AVX2; it was checked above.
            return unsafe { self.by_sight_avx2(view, progress) };
        }
        self.by_cells(view, progress);
    }

    /// The vectors are as wide as with AVX2, but AVX-512 has twice as many registers.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512vl")]
    fn by_sight_avx512(&mut self, view: &VisibleEntities<D>, progress: &mut TickProgress) {
        self.by_cells(view, progress);
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2")]
    fn by_sight_avx2(&mut self, view: &VisibleEntities<D>, progress: &mut TickProgress) {
        self.by_cells(view, progress);
    }

    #[inline(always)]
    fn by_cells(&mut self, view: &VisibleEntities<D>, progress: &mut TickProgress) {
        for row in 0..view.row_count() {
            let slots = view.row(row);
            let mut asked = LaneSlots::new();
            let mut begin = 0.0;
            for slot in slots.start.max(progress.next)..slots.end {
                let item = view.item(slot);
                if self.mover.rows.flags.get(item) != Some(&0) {
                    continue;
                }
                let at = view.first_axis(slot);
                if asked.is_full() || at - begin > view.sight() {
                    self.ask(view, &mut asked, progress);
                }
                if asked.slots().is_empty() {
                    begin = at;
                }
                asked.push(slot);
            }
            self.ask(view, &mut asked, progress);
            progress.next = progress.next.max(slots.end);
        }
    }

    #[inline(always)]
    fn ask(&mut self, view: &VisibleEntities<D>, asked: &mut LaneSlots, progress: &mut TickProgress) {
        let Some(first) = asked.slots().first() else { return };
        // If the behaviour panics, `progress` names the failed slot.
        progress.next = *first as usize;
        let own = asked.own(view, self.mover.rows.ids);
        let around = LanesInSight { view, asked, position: own.position };
        let together =
            if progress.alone { None } else { self.behaviour.step_lanes(&own, &around, &self.moment) };
        for (lane, slot) in asked.slots().iter().enumerate() {
            let (slot, own) = (*slot as usize, own.own(lane));
            progress.next = slot;
            let motion = match &together {
                Some(motions) => motions[lane],
                None => self.behaviour.step(&own, &view.around(slot), &self.moment),
            };
            self.mover.put(view.item(slot), &own, &motion);
        }
        *asked = LaneSlots::new();
    }
}
