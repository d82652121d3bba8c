//! A tick.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::crossing::is_beyond;
use super::view::Nobody;
use super::{Authority, Outputs, Region, Report, Section, StepError};
use crate::behaviour::{Around, Behaviour, Moment, Motion, Own};
use crate::handover::Standby;
use crate::store::{Rows, Window};
use crate::world::Point;

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
        if let Some(window) = Window::of_tick(tick, self.setup.sort_every, self.state.store().len()) {
            self.state.sort(window);
            Section::Sort(window).encode(&mut out.record);
        }
        let Pass { moved, turned, .. } = self.move_all(tick + 1, out);
        self.state.set_tick(tick + 1);
        if !moved {
            Section::Tick(tick + 1).encode(&mut out.record);
        } else if self.told {
            let listed = (turned == self.turned.len()).then_some(&self.turned[..]);
            self.state.write_moved(listed, &mut out.record);
        }
        self.offer_crossed(now_ns, out);
        self.carry_out(out);
        Ok(())
    }

    fn move_all(&mut self, tick: u64, out: &mut Outputs) -> Pass {
        let seconds = self.setup.seconds();
        let moment = Moment { tick, seconds, world: self.setup.world, seed: self.setup.seed };
        self.crossed.clear();
        self.turned.clear();
        let mut pass = Pass { next: 0, moved: false, turned: 0 };
        loop {
            if self.run(&moment, &mut pass, out) {
                break;
            }
            // The row at which it stopped panicked.
            self.freeze(pass.next, true, out);
            pass.next += 1;
        }
        pass
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
        let (world, stretch) = (self.setup.world, self.stretch());
        let (low, high) = (world.min(), world.max());
        let Rows { ids, kinds, flags, position, velocity } = self.state.store_mut().rows_mut();
        // All are as long as that, which spares looking at each access.
        let len = ids.len();
        let listed_max = len / LISTED_PART;
        for row in pass.next..len {
            // Here it stops where the behaviour panics.
            pass.next = row;
            if flags[row] != 0 {
                continue;
            }
            let own = Own {
                id: ids[row],
                kind: kinds[row],
                position: std::array::from_fn(|axis| position[axis][row]),
                velocity: std::array::from_fn(|axis| velocity[axis][row]),
            };
            let motion = self.behaviour.step(&own, &around(row), moment);
            if !is_finite(&motion) {
                lost.push(row as u32);
                continue;
            }
            let inside: Point<D> =
                std::array::from_fn(|axis| motion.position[axis].max(low[axis]).min(high[axis]));
            let turned = differ(&motion.velocity, &own.velocity);
            pass.moved |= turned || differ(&inside, &own.position);
            if turned {
                pass.turned += 1;
                if pass.turned <= listed_max {
                    self.turned.push(row as u32);
                }
            }
            for axis in 0..D {
                position[axis][row] = inside[axis];
                velocity[axis][row] = motion.velocity[axis];
            }
            if !self.home.holds(&inside) && is_beyond(&world, &inside, stretch) {
                self.crossed.push(row as u32);
            }
        }
        pass.next = len;
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
        let listed = (self.crossed.capacity() + self.turned.capacity()) * 4;
        self.state.store().bytes() + self.view.bytes() + self.ghosts.bytes() + self.home.bytes() + listed
    }
}

/// Rows that turn are listed where they are no more than one in so many; else all velocities are told.
const LISTED_PART: usize = 8;

/// How far a tick has come.
struct Pass {
    next: usize,
    /// Whether anything moved.
    moved: bool,
    /// How many turned.
    turned: usize,
}

/// Whether any of their bits do.
#[inline(always)]
fn differ<const D: usize>(a: &Point<D>, b: &Point<D>) -> bool {
    (0..D).fold(0, |bits, axis| bits | (a[axis].to_bits() ^ b[axis].to_bits())) != 0
}

#[inline(always)]
fn is_finite<const D: usize>(motion: &Motion<D>) -> bool {
    (0..D).fold(true, |finite, axis| {
        finite & motion.position[axis].is_finite() & motion.velocity[axis].is_finite()
    })
}
