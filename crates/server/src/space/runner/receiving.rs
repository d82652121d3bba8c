//! Handles the frames that other processes send.

use dunlin::space::{Behaviour, MessageSummary, RegionId};

use super::super::error::RunnerRefusal;
use super::super::frame::SpaceFrame;
use super::super::links::LinkId;
use super::super::pace::monotonic_ns;
use super::super::standby_tracker::StandbyTracker;
use super::WorldRunner;

/// Maximum size of a frame from a peer that has not proved yet that it belongs to the world, bytes. A hello of 65,535
/// regions with the longest name is smaller.
const HELLO_BYTES_MAX: usize = 1 << 20;

impl<const D: usize, B: Behaviour<D> + Clone> WorldRunner<D, B> {
    /// Handles the frames that were received over a connection, up to the first frame that must wait for lock-step.
    pub(super) fn read(&mut self, key: LinkId) {
        let Some(link) = self.links.get(key) else { return };
        let mut buffer = link.connection.take_read_buffer();
        let now_ns = monotonic_ns();
        let outcome = loop {
            // Determined for each frame, because the last frame may have been the peer's valid proof.
            let is_unverified = self.links.get(key).is_none_or(|link| link.process.is_none());
            let max = if is_unverified { HELLO_BYTES_MAX } else { self.config.limits.frame_bytes_max };
            match SpaceFrame::decode(buffer.unread(), max) {
                Ok(Some((SpaceFrame::Turn { tick, .. }, _))) if self.is_ahead(tick) => break Ok(true),
                Ok(Some((frame, taken))) => match self.handle_frame(key, &frame, now_ns) {
                    Ok(()) => buffer.consume(taken),
                    Err(refused) => break Err(refused),
                },
                Ok(None) => break Ok(false),
                Err(refused) => break Err(refused),
            }
        };
        match outcome {
            Ok(must_wait) => {
                if let Some(link) = self.links.get(key) {
                    link.must_wait = must_wait;
                    link.connection.return_read_buffer(buffer);
                }
            }
            Err(refused) => self.links.refuse(key, refused),
        }
    }

    /// Whether a peer has begun a step that this process has not begun.
    fn is_ahead(&self, step: u64) -> bool {
        self.lockstep.as_ref().is_some_and(|lockstep| step > lockstep.step())
    }

    fn handle_frame(
        &mut self,
        key: LinkId,
        frame: &SpaceFrame<'_>,
        now_ns: u64,
    ) -> Result<(), RunnerRefusal> {
        let Some(link) = self.links.get(key) else { return Ok(()) };
        let Some(process) = link.process else {
            return match frame {
                SpaceFrame::Hello(hello) => self.links.handle_hello(key, hello),
                SpaceFrame::Proof(proof) => {
                    self.links.handle_proof(key, proof)?;
                    // If the proof is valid, this connection may have replaced an older one to the same process. The
                    // end of the older connection must be handled before more frames of this connection.
                    self.handle_link_events(now_ns);
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
                self.handle_message(to, bytes, turn_ns, now_ns);
            }
            SpaceFrame::Region { region, epoch } => self.handle_claim(region, process, epoch, now_ns)?,
            SpaceFrame::RegionEnded(region) => self.links.remove_route(region, process),
            SpaceFrame::Settled(step) => {
                if let Some(lockstep) = &mut self.lockstep {
                    lockstep.record_settled(process, step);
                }
            }
            SpaceFrame::Follow { region, is_fed } => self.start_standby(region, process, is_fed),
            SpaceFrame::Snapshot { region, records, bytes } => {
                self.apply_standby_frame(region, process, |tracker| {
                    tracker.begin_copy(region, process, bytes, records)
                });
            }
            SpaceFrame::Record { region, bytes } => {
                self.apply_standby_frame(region, process, |tracker| tracker.apply_record(region, bytes));
            }
            SpaceFrame::Progress { region, progress } => {
                if let Some(progress) = self.standby_tracker.record_progress(region, process, progress) {
                    self.host.standby_acknowledged(region, progress, now_ns);
                }
            }
            SpaceFrame::LoadReport(bytes) => self.handle_load_report(bytes, now_ns)?,
            SpaceFrame::Partition(bytes) => self.handle_partition(bytes, now_ns)?,
            SpaceFrame::IdQuery { number, ids } => self.handle_id_query(process, number, ids)?,
            SpaceFrame::IdResponse { number, bytes } => self.handle_id_response(process, number, bytes)?,
            SpaceFrame::Ping => {}
            SpaceFrame::Refused(why) => return Err(RunnerRefusal::ByThem(why.to_owned())),
            SpaceFrame::Hello(_) | SpaceFrame::Proof(_) => {
                return Err(RunnerRefusal::Frame("the process sent a second hello"));
            }
        }
        Ok(())
    }

    fn handle_message(&mut self, to: RegionId, bytes: &[u8], turn_ns: u64, now_ns: u64) {
        match MessageSummary::of(bytes) {
            MessageSummary::Taken { from, transfer } => {
                if let Some((sent_ns, entities)) = self.pending_handovers.remove(&(to, from, transfer)) {
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

    /// Handles the message that another process runs a region from now on.
    fn handle_claim(
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
        self.add_remote_region(region, process, epoch, now_ns);
        Ok(())
    }

    /// Sends the whole state of a region of this process to a process that follows the region as a standby, unless both
    /// processes agree that the standby's copy receives all changes.
    fn start_standby(&mut self, region: RegionId, process: u64, is_fed: bool) {
        if is_fed && self.standby_tracker.followers_of(region).any(|follower| follower == process) {
            return;
        }
        // Sends all existing records before the process is added as a follower. The new follower must not receive these
        // records, because the state that it receives contains their changes.
        self.send_output();
        if self.host.region(region).is_none() || !self.standby_tracker.add_follower(region, process) {
            return;
        }
        if let Some((snapshot, records)) = self.host.add_standby(region) {
            let frame = SpaceFrame::Snapshot { region, records, bytes: &[] };
            self.links.send_or_close(process, &frame, &snapshot.into());
        }
    }

    /// Applies a frame of a region's owner to this process's copy of the region with `apply`. If the copy must begin
    /// again, asks the owner for its state.
    fn apply_standby_frame(
        &mut self,
        region: RegionId,
        process: u64,
        apply: impl FnOnce(&mut StandbyTracker<D>) -> bool,
    ) {
        let from_owner = self.links.route_to(region).is_some_and(|(owner, _)| owner == process);
        if !from_owner || !self.standby_tracker.is_followed(region) {
            return;
        }
        if !apply(&mut self.standby_tracker) {
            self.send_follow(region, process);
        }
    }
}
