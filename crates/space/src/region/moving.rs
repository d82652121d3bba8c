//! A tick.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::view::Nobody;
use super::{Authority, Outputs, Region, Report, Section, StepError};
use crate::behaviour::{Around, Behaviour, Moment, Motion, Own};
use crate::handover::Standby;

impl<const D: usize, B: Behaviour<D>> Region<D, B> {
    /// Moves everything by one tick, offers what has crossed the border to its new owners, and says what changed.
    ///
    /// With [`Standby::Required`] it waits until the standby knows the tick before.
    pub fn tick(&mut self, now_ns: u64, out: &mut Outputs) -> Result<(), StepError> {
        self.may_act(now_ns)?;
        let tick = self.state.tick();
        if self.setup.standby == Standby::Required && self.standby_tick < tick {
            return Err(StepError::StandbyBehind { known: self.standby_tick, next: tick + 1 });
        }
        self.state.handover_mut().elapse(now_ns, &mut self.effects);
        self.carry_out(out);
        if tick.is_multiple_of(u64::from(self.setup.sort_every.max(1))) && tick > 0 {
            self.state.sort();
            Section::Sort.encode(&mut out.record);
        }
        let moved = self.move_all(tick + 1, out);
        self.state.set_tick(tick + 1);
        match moved {
            Some(turned) => self.state.write_moved(turned, &mut out.record),
            None => Section::Tick(tick + 1).encode(&mut out.record),
        }
        self.offer_crossed(now_ns, out);
        self.carry_out(out);
        Ok(())
    }

    /// Whether anything moved, and if so whether it turned.
    fn move_all(&mut self, tick: u64, out: &mut Outputs) -> Option<bool> {
        let seconds = self.setup.seconds();
        let moment = Moment { tick, seconds, world: self.setup.world, seed: self.setup.seed };
        self.crossed.clear();
        let mut pass = Pass { next: 0, moved: false, turned: false };
        loop {
            if self.run(&moment, &mut pass, out) {
                break;
            }
            // The row at which it stopped panicked.
            self.freeze(pass.next, true, out);
            pass.next += 1;
        }
        pass.moved.then_some(pass.turned)
    }

    /// Moves rows from `pass.next` on; `false` where one panicked.
    fn run(&mut self, moment: &Moment<D>, pass: &mut Pass, out: &mut Outputs) -> bool {
        let mut lost = std::mem::take(&mut self.misplaced);
        let done = if self.behaviour.sight() > 0.0 {
            if pass.next == 0 {
                let ticks_max = u64::from(self.setup.ghost_ticks_max);
                self.view.look(self.state.store(), &self.ghosts, moment.tick - 1, moment.seconds, ticks_max);
            }
            let view = std::mem::replace(&mut self.view, super::View::new(self.setup.world, 0.0));
            let done =
                catch_unwind(AssertUnwindSafe(|| self.rows(moment, pass, &mut lost, |row| view.around(row))));
            self.view = view;
            done.is_ok()
        } else {
            catch_unwind(AssertUnwindSafe(|| self.rows(moment, pass, &mut lost, |_| Nobody))).is_ok()
        };
        for row in lost.drain(..) {
            self.freeze(row as usize, false, out);
        }
        self.misplaced = lost;
        done
    }

    #[inline(always)]
    fn rows<A: Around<D>>(
        &mut self,
        moment: &Moment<D>,
        pass: &mut Pass,
        lost: &mut Vec<u32>,
        around: impl Fn(usize) -> A,
    ) {
        let (low, high) = (self.setup.world.min(), self.setup.world.max());
        let stretch = self.partition.stretch(self.setup.region).unwrap_or((0, 0));
        let store = self.state.store_mut();
        while pass.next < store.len() {
            let row = pass.next;
            if store.moves(row) {
                let (position, velocity) = (store.position(row), store.velocity(row));
                let own = Own { id: store.ids()[row], kind: store.kinds()[row], position, velocity };
                let motion = self.behaviour.step(&own, &around(row), moment);
                if is_finite(&motion) {
                    let inside =
                        std::array::from_fn(|axis| motion.position[axis].max(low[axis]).min(high[axis]));
                    pass.moved |= inside != position || motion.velocity != velocity;
                    pass.turned |= motion.velocity != velocity;
                    store.set_motion(row, &inside, &motion.velocity);
                    let key = super::crossing::key(&self.setup.world, &inside);
                    if key < stretch.0 || key >= stretch.1 {
                        self.crossed.push(row as u32);
                    }
                } else {
                    lost.push(row as u32);
                }
            }
            pass.next += 1;
        }
    }

    fn freeze(&mut self, row: usize, panicked: bool, out: &mut Outputs) {
        let store = self.state.store_mut();
        let id = store.ids()[row];
        store.set_frozen(row, true);
        Section::Frozen(id, true).encode(&mut out.record);
        self.report(Report::Frozen { id, panicked }, out);
    }

    /// The right under which it acts.
    pub fn authority(&self) -> Option<Authority> {
        self.authority
    }

    /// Bytes of memory it holds.
    pub fn bytes(&self) -> usize {
        self.state.store().bytes() + self.view.bytes() + self.ghosts.bytes() + self.crossed.capacity() * 4
    }
}

/// How far a tick has come.
struct Pass {
    next: usize,
    moved: bool,
    turned: bool,
}

#[inline(always)]
fn is_finite<const D: usize>(motion: &Motion<D>) -> bool {
    (0..D).fold(true, |finite, axis| {
        finite & motion.position[axis].is_finite() & motion.velocity[axis].is_finite()
    })
}
