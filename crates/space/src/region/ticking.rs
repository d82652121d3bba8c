//! Runs a region's ticks.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::behaviour_run::{BehaviourRun, TickProgress};
use super::mover::Mover;
use super::{RecordSection, Region, RegionAuthority, RegionOutputs, RegionReport, StepError};
use crate::behaviour::{Behaviour, TickContext};
use crate::handover::StandbyMode;
use crate::store::SortWindow;

impl<const D: usize, B: Behaviour<D>> Region<D, B> {
    /// Moves all entities by one tick. Offers the entities that crossed the border to their new regions. Writes the
    /// tick's record.
    ///
    /// With [`StandbyMode::Required`], the tick is refused until the standby knows the previous tick.
    pub fn tick(&mut self, now_ns: u64, out: &mut RegionOutputs) -> Result<(), StepError> {
        self.check_authority(now_ns)?;
        let tick = self.state.tick();
        if self.setup.standby == StandbyMode::Required && self.standby_tick < tick {
            return Err(StepError::StandbyBehind { known: self.standby_tick, next: tick + 1 });
        }
        self.state.handover_mut().advance_time(now_ns, &mut self.effects);
        self.apply_effects(out);
        // Sorted rows speed up only behaviours with sight and the updates for viewers.
        let is_order_relevant = self.behaviour.sight() > 0.0 || self.viewers.is_some();
        let rows = if is_order_relevant { self.state.store().len() } else { 0 };
        if let Some(window) = SortWindow::of_tick(tick, self.setup.sort_every, rows) {
            self.state.sort(window);
            RecordSection::Sort(window).encode(&mut out.record);
        }
        self.move_all(tick + 1, out);
        self.state.set_tick(tick + 1);
        if !self.changes.moved {
            RecordSection::Tick(tick + 1).encode(&mut out.record);
        } else if self.has_subscriber {
            self.state.write_moved(self.changes.turned(), &mut out.record);
        }
        self.offer_crossed(now_ns, out);
        self.apply_effects(out);
        Ok(())
    }

    fn move_all(&mut self, tick: u64, out: &mut RegionOutputs) {
        let (seconds, world) = (self.setup.seconds(), self.setup.world);
        let context = TickContext { tick, seconds, world, seed: self.setup.seed };
        let has_sight = self.behaviour.sight() > 0.0;
        if has_sight {
            let ticks_max = u64::from(self.setup.ghost_ticks_max);
            self.view.rebuild(self.state.store(), &self.ghosts, tick - 1, seconds, ticks_max);
        }
        self.changes.clear();
        let mut progress = TickProgress::default();
        while let Err(row) = self.run_until_panic(has_sight, &context, &mut progress) {
            if let Some(row) = row {
                self.freeze(row, true, out);
            }
        }
        self.changes.sort();
        for row in std::mem::take(&mut self.changes.misplaced) {
            self.freeze(row as usize, false, out);
        }
    }

    /// Runs the behaviour for all entities that were not moved yet. After a panic, runs the behaviour for one entity at
    /// a time, which shows which entity causes the panic.
    fn run_until_panic(
        &mut self,
        has_sight: bool,
        context: &TickContext<D>,
        progress: &mut TickProgress,
    ) -> Result<(), Option<usize>> {
        let bounds = (self.setup.world, self.stretch());
        let mover = Mover::new(self.state.store_mut().rows_mut(), bounds, &self.interior, &mut self.changes);
        let mut run = BehaviourRun { behaviour: &self.behaviour, context: *context, mover };
        let view = &self.view;
        let result = catch_unwind(AssertUnwindSafe(|| {
            if has_sight { run.run_with_sight(view, progress) } else { run.run_rows(progress) }
        }));
        if result.is_ok() {
            return Ok(());
        }
        let at = progress.next;
        if !progress.alone {
            progress.alone = true;
            return Err(None);
        }
        progress.next += 1;
        Err(Some(if has_sight { view.item(at) } else { at }))
    }

    fn freeze(&mut self, row: usize, panicked: bool, out: &mut RegionOutputs) {
        let store = self.state.store_mut();
        let id = store.ids()[row];
        store.set_frozen(row, true);
        RecordSection::Frozen(id, true).encode(&mut out.record);
        self.report(RegionReport::Frozen { id, panicked }, out);
    }

    /// The current lease.
    pub fn authority(&self) -> Option<RegionAuthority> {
        self.authority
    }

    /// Memory in use, bytes.
    pub fn bytes(&self) -> usize {
        let here = self.state.store().bytes() + self.interior.bytes() + self.changes.bytes();
        here + self.view.bytes() + self.ghosts.bytes()
    }
}
