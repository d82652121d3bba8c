//! Handles the frames of other processes.

use dunlin::space::{Behaviour, MessageSummary, RegionId};

use super::super::error::Refused;
use super::super::frame::Frame;
use super::super::links::LinkId;
use super::super::pace::monotonic_ns;
use super::Runner;

/// Largest frame of an unverified peer: a hello of 65,535 regions with the longest name.
const HELLO_BYTES_MAX: usize = 1 << 20;

impl<const D: usize, B: Behaviour<D> + Clone> Runner<D, B> {
    /// Handles the received frames of a connection, up to the first that must wait.
    pub(super) fn read(&mut self, key: LinkId) {
        let Some(link) = self.links.get(key) else { return };
        let mut came = link.connection.take_read_buffer();
        let now_ns = monotonic_ns();
        let outcome = loop {
            // The peer may be verified by now.
            let is_stranger = self.links.get(key).is_none_or(|link| link.process.is_none());
            let max = if is_stranger { HELLO_BYTES_MAX } else { self.config.limits.frame_bytes_max };
            match Frame::decode(came.unread(), max) {
                Ok(Some((Frame::Turn { tick, .. }, _))) if self.is_ahead(tick) => break Ok(true),
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

    /// Whether the step has not begun here.
    fn is_ahead(&self, step: u64) -> bool {
        self.lockstep.as_ref().is_some_and(|lockstep| step > lockstep.step())
    }

    fn hear(&mut self, key: LinkId, frame: &Frame<'_>, now_ns: u64) -> Result<(), Refused> {
        let Some(link) = self.links.get(key) else { return Ok(()) };
        let Some(process) = link.process else {
            return match frame {
                Frame::Hello(hello) => self.links.hear(key, hello),
                Frame::Proof(proof) => {
                    self.links.meet(key, proof)?;
                    // Later frames require that the end of the previous connection is handled.
                    self.take_events(now_ns);
                    Ok(())
                }
                Frame::Refused(why) => Err(Refused::ByThem((*why).to_owned())),
                _ => Err(Refused::Stranger),
            };
        };
        match *frame {
            Frame::Turn { tick, time_ns } => link.turn = (tick, time_ns),
            Frame::Message { to, bytes } => {
                let turn_ns = link.turn.1;
                self.hear_message(to, bytes, turn_ns, now_ns);
            }
            Frame::Region { region, epoch } => self.hear_claim(region, process, epoch, now_ns)?,
            Frame::Gone(region) => self.links.unroute(region, process),
            Frame::Settled(step) => {
                if let Some(lockstep) = &mut self.lockstep {
                    lockstep.hear(process, step);
                }
            }
            Frame::Follow(region) => self.begin_standby(region, process),
            Frame::Whole { region, bytes } => self.follow_on(region, process, bytes, true),
            Frame::Record { region, bytes } => self.follow_on(region, process, bytes, false),
            Frame::Knows { region, entries, tick } => {
                if let Some((entries, tick)) = self.standby_tracker.hear(region, process, (entries, tick)) {
                    self.host.standby_acknowledged(region, entries, tick, now_ns);
                }
            }
            Frame::LoadReport(bytes) => self.hear_weight(bytes, now_ns)?,
            Frame::Cut(bytes) => self.hear_cut(bytes, now_ns)?,
            Frame::Ids { number, ids } => self.hear_ids(process, number, ids)?,
            Frame::Held { number, bytes } => self.hear_held(number, bytes)?,
            Frame::Ping => {}
            Frame::Refused(why) => return Err(Refused::ByThem(why.to_owned())),
            Frame::Hello(_) | Frame::Proof(_) => {
                return Err(Refused::Frame("the process sent a second hello"));
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
    fn hear_claim(&mut self, region: RegionId, process: u64, epoch: u64, now_ns: u64) -> Result<(), Refused> {
        let ours = self.host.region(region).map(|region| region.handover().epoch());
        if let Some(ours) = ours.filter(|ours| *ours >= epoch) {
            return Err(Refused::Region { region, epoch, ours });
        }
        self.meet(region, process, epoch, now_ns);
        Ok(())
    }

    /// Handles a standby of a region of this process.
    fn begin_standby(&mut self, region: RegionId, process: u64) {
        // Earlier records do not concern this standby.
        self.ship();
        if self.host.region(region).is_none() || !self.standby_tracker.begin(region, process) {
            return;
        }
        if let Some((whole, _)) = self.host.standby_starts(region) {
            let frame = Frame::Whole { region, bytes: &[] };
            self.links.send_or_end(process, &frame, &whole.into());
        }
    }

    fn follow_on(&mut self, region: RegionId, process: u64, bytes: &[u8], whole: bool) {
        let from_owner = self.links.whereabouts(region).is_some_and(|(owner, _)| owner == process);
        // Records from before the copy are part of it.
        let begins = whole || self.standby_tracker.copy(region).is_some();
        if !from_owner || !self.standby_tracker.wants(region) || !begins {
            return;
        }
        if !self.standby_tracker.take_in(region, bytes, whole) {
            self.links.send(process, &Frame::Follow(region));
        }
    }
}
