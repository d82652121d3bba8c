//! Handles the frames of other processes.

use dunlin::space::{Behaviour, MessageSummary, RegionId};

use super::super::error::RunnerRefusal;
use super::super::frame::SpaceFrame;
use super::super::links::LinkId;
use super::super::pace::monotonic_ns;
use super::Runner;

/// Largest frame of an unverified peer: a hello of 65,535 regions with the longest name.
const HELLO_BYTES_MAX: usize = 1 << 20;

impl<const D: usize, B: Behaviour<D> + Clone> Runner<D, B> {
    /// Handles the received frames of a connection, up to the first frame that must wait.
    pub(super) fn read(&mut self, key: LinkId) {
        let Some(link) = self.links.get(key) else { return };
        let mut came = link.connection.take_read_buffer();
        let now_ns = monotonic_ns();
        let outcome = loop {
            // The frames that were just handled may have verified the peer.
            let is_stranger = self.links.get(key).is_none_or(|link| link.process.is_none());
            let max = if is_stranger { HELLO_BYTES_MAX } else { self.config.limits.frame_bytes_max };
            match SpaceFrame::decode(came.unread(), max) {
                Ok(Some((SpaceFrame::Turn { tick, .. }, _))) if self.is_ahead(tick) => break Ok(true),
                Ok(Some((frame, taken))) => match self.hear(key, &frame, now_ns) {
                    Ok(()) => came.pass(taken),
                    Err(refused) => break Err(refused),
                },
                Ok(None) => break Ok(false),
                Err(refused) => break Err(refused),
            }
        };
        match outcome {
            Ok(waits) => {
                if let Some(link) = self.links.get(key) {
                    link.waits = waits;
                    link.connection.put_back(came);
                }
            }
            Err(refused) => self.links.refuse(key, refused),
        }
    }

    /// Whether a peer's step has not begun at this process.
    fn is_ahead(&self, step: u64) -> bool {
        self.lockstep.as_ref().is_some_and(|lockstep| step > lockstep.step())
    }

    fn hear(&mut self, key: LinkId, frame: &SpaceFrame<'_>, now_ns: u64) -> Result<(), RunnerRefusal> {
        let Some(link) = self.links.get(key) else { return Ok(()) };
        let Some(process) = link.process else {
            return match frame {
                SpaceFrame::Hello(hello) => self.links.hear(key, hello),
                SpaceFrame::Proof(proof) => {
                    self.links.meet(key, proof)?;
                    // The end of the process's previous connection must be handled before frames of this one.
                    self.take_events(now_ns);
                    Ok(())
                }
                SpaceFrame::Refused(why) => Err(RunnerRefusal::ByThem((*why).to_owned())),
                _ => Err(RunnerRefusal::Stranger),
            };
        };
        match *frame {
            SpaceFrame::Turn { tick, time_ns } => link.turn = (tick, time_ns),
            SpaceFrame::Message { to, bytes } => {
                let turn_ns = link.turn.1;
                self.hear_message(to, bytes, turn_ns, now_ns);
            }
            SpaceFrame::Region { region, epoch } => self.hear_claim(region, process, epoch, now_ns)?,
            SpaceFrame::Gone(region) => self.links.unroute(region, process),
            SpaceFrame::Settled(step) => {
                if let Some(lockstep) = &mut self.lockstep {
                    lockstep.hear(process, step);
                }
            }
            SpaceFrame::Follow(region) => self.begin_standby(region, process),
            SpaceFrame::Whole { region, bytes } => self.follow_on(region, process, bytes, true),
            SpaceFrame::Record { region, bytes } => self.follow_on(region, process, bytes, false),
            SpaceFrame::Knows { region, entries, tick } => {
                if let Some((entries, tick)) = self.standby_tracker.hear(region, process, (entries, tick)) {
                    self.host.standby_acknowledged(region, entries, tick, now_ns);
                }
            }
            SpaceFrame::LoadReport(bytes) => self.hear_weight(bytes, now_ns)?,
            SpaceFrame::Cut(bytes) => self.hear_cut(bytes, now_ns)?,
            SpaceFrame::Ids { number, ids } => self.hear_ids(process, number, ids)?,
            SpaceFrame::Held { number, bytes } => self.hear_held(number, bytes)?,
            SpaceFrame::Ping => {}
            SpaceFrame::Refused(why) => return Err(RunnerRefusal::ByThem(why.to_owned())),
            SpaceFrame::Hello(_) | SpaceFrame::Proof(_) => {
                return Err(RunnerRefusal::Frame("the process sent a second hello"));
            }
        }
        Ok(())
    }

    fn hear_message(&mut self, to: RegionId, bytes: &[u8], turn_ns: u64, now_ns: u64) {
        match MessageSummary::of(bytes) {
            MessageSummary::Taken { from, transfer } => {
                if let Some((sent_ns, entities)) = self.timed.remove(&(to, from, transfer)) {
                    self.stats.handovers.record_many(now_ns.saturating_sub(sent_ns), entities.into());
                }
            }
            MessageSummary::Ghosts { count, .. } => {
                self.stats.ghosts += u64::from(count);
                self.host.receive(to, bytes, now_ns);
                return self.stats.ghosts_late.record(monotonic_ns().saturating_sub(turn_ns));
            }
            _ => {}
        }
        self.host.receive(to, bytes, now_ns);
    }

    /// Handles another process's claim of a region.
    fn hear_claim(
        &mut self,
        region: RegionId,
        process: u64,
        epoch: u64,
        now_ns: u64,
    ) -> Result<(), RunnerRefusal> {
        let ours = self.host.region(region).map(|region| region.handover().epoch());
        if let Some(ours) = ours.filter(|ours| *ours >= epoch) {
            return Err(RunnerRefusal::Region { region, epoch, ours });
        }
        self.meet(region, process, epoch, now_ns);
        Ok(())
    }

    /// Sends the state of one of this process's regions to a process that becomes its standby.
    fn begin_standby(&mut self, region: RegionId, process: u64) {
        // Sends earlier records first, because the new standby must not receive them: they are already in the state.
        self.ship();
        if self.host.region(region).is_none() || !self.standby_tracker.begin(region, process) {
            return;
        }
        if let Some((whole, _)) = self.host.standby_starts(region) {
            let frame = SpaceFrame::Whole { region, bytes: &[] };
            self.links.send_or_end(process, &frame, &whole.into());
        }
    }

    fn follow_on(&mut self, region: RegionId, process: u64, bytes: &[u8], whole: bool) {
        let from_owner = self.links.whereabouts(region).is_some_and(|(owner, _)| owner == process);
        // A record that is not a whole state can only be applied to a copy that has the earlier records.
        let begins = whole || self.standby_tracker.copy(region).is_some();
        if !from_owner || !self.standby_tracker.wants(region) || !begins {
            return;
        }
        if !self.standby_tracker.take_in(region, bytes, whole) {
            self.links.send(process, &SpaceFrame::Follow(region));
        }
    }
}
