//! Makes the ticks, and does the work before and after each tick.

use dunlin::space::Behaviour;

use super::super::frame::SpaceFrame;
use super::super::lockstep::LockstepAction;
use super::super::pace::monotonic_ns;
use super::{ELAPSE_NS, SLEEP_NS_MAX, TOPICS_CHECK_NS, WorldRunner};

impl<const D: usize, B: Behaviour<D> + Clone> WorldRunner<D, B> {
    /// Makes a tick if one is due, and does the work that depends on the time.
    pub(super) fn advance(&mut self) {
        let now_ns = monotonic_ns();
        if now_ns >= self.next_elapse_ns {
            self.next_elapse_ns = now_ns + ELAPSE_NS;
            self.host.elapse(now_ns);
            self.expire_queries(now_ns);
        }
        if now_ns >= self.next_topics_check_ns {
            self.next_topics_check_ns = now_ns + TOPICS_CHECK_NS;
            self.restore_topics();
        }
        self.tick_allowed = self.may_tick();
        if self.tick_allowed && self.schedule.due_ns().is_some_and(|due_ns| due_ns <= now_ns) {
            self.tick(now_ns);
            self.tick_allowed = self.may_tick();
        }
        self.send_output();
        if self.tick_allowed {
            if self.schedule.due_ns().is_none() {
                // In lock-step, ghosts are sent only at fixed steps, so that the results do not depend on the time.
                self.host.show_changes(self.lockstep.is_none(), now_ns);
                self.send_output();
            }
            // When lock-step allows the next tick, all ghosts of the last tick have arrived, and the viewers can
            // receive them.
            self.send_viewer_updates();
        }
    }

    /// Creates the topics of this process's regions if they were deleted, or could not be created at a takeover.
    fn restore_topics(&mut self) {
        for (region, restored) in self.host.restore_topics() {
            let number = region.0;
            match restored {
                Ok(()) => {
                    self.topics_missing.remove(&region);
                    tracing::warn!("region {number} had no topic; the topic was created");
                }
                Err(why) if self.topics_missing.insert(region) => {
                    tracing::error!("region {number} has no topic; retrying: {why}");
                }
                Err(_) => {}
            }
        }
    }

    fn tick(&mut self, began_ns: u64) {
        let (late_ns, skipped) = self.schedule.begin(began_ns);
        self.stats.late.record(late_ns);
        self.stats.skipped += skipped;
        if let Some(lockstep) = &mut self.lockstep {
            lockstep.begin();
            self.links.begin_turn(lockstep.step(), began_ns);
        }
        self.host.tick(began_ns);
        self.ticks += 1;
        if self.lockstep.is_none() {
            self.host.send_ghosts(began_ns);
        }
        self.send_load_reports();
        self.send_output();
        self.stats.ticks.record(monotonic_ns() - began_ns);
        let (host, ticks) = (&self.host, self.ticks);
        self.watchers.retain_mut(|watcher| watcher(host, ticks));
        self.read_waiting_links();
    }

    /// Whether the next tick may begin. In lock-step, also sends the frames for which the other processes wait.
    fn may_tick(&mut self) -> bool {
        // In lock-step, no tick is made unless all processes are connected, because messages to a missing process would
        // be lost.
        let all_connected = self.config.peers.iter().all(|peer| self.links.is_connected(peer.process));
        if self.lockstep.is_some() && !all_connected {
            return false;
        }
        loop {
            // This process has completed the step when the receivers have confirmed all handovers that it has offered.
            // Handovers that it receives do not matter, because their senders wait for them.
            let settled = self.host.pending_handovers().0 == 0;
            let Some(lockstep) = &mut self.lockstep else { return true };
            match lockstep.next(settled) {
                LockstepAction::Wait => return false,
                LockstepAction::Tick => return true,
                LockstepAction::SendSettled(step) => {
                    self.send_output();
                    self.links.send_all(&SpaceFrame::Settled(step));
                }
                LockstepAction::SendGhosts => {
                    let now_ns = monotonic_ns();
                    self.links.begin_turn(self.step(), now_ns);
                    self.host.send_ghosts(now_ns);
                    self.send_output();
                    self.read_waiting_links();
                }
            }
        }
    }

    /// Begins a run of ticks. In lock-step, the run begins with the steps that normally follow a tick.
    pub(super) fn start_run(&mut self) {
        if self.schedule.due_ns().is_none() {
            return;
        }
        if let Some(lockstep) = &mut self.lockstep {
            lockstep.begin();
            self.links.begin_turn(lockstep.step(), monotonic_ns());
            self.read_waiting_links();
        }
    }

    pub(super) fn is_between_steps(&mut self) -> bool {
        self.lockstep.is_some() && !self.may_tick()
    }

    /// Handles the frames that had to wait until this process began its present step.
    fn read_waiting_links(&mut self) {
        let waiting: Vec<_> =
            self.links.all().filter(|(_, link)| link.must_wait).map(|(key, _)| key).collect();
        waiting.into_iter().for_each(|key| self.read(key));
    }

    /// How long the thread may sleep, ns.
    pub(super) fn poll_timeout_ns(&self, now_ns: u64) -> u64 {
        let tick = if self.tick_allowed { self.schedule.due_ns() } else { None };
        let deadlines =
            (self.host.pending_handovers() != (0, 0) || self.ids.is_pending()).then_some(self.next_elapse_ns);
        let next = [tick, deadlines, self.links.next_dial_ns()].into_iter().flatten().min();
        next.map_or(SLEEP_NS_MAX, |at_ns| at_ns.saturating_sub(now_ns).min(SLEEP_NS_MAX))
    }
}
