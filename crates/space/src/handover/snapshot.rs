//! Encodes and decodes handovers as part of a region's snapshot.

use std::collections::HashMap;

use super::inbound::InboundTransfer;
use super::outbound::OutboundTransfer;
use super::transfer::{self, RegionId};
use super::{Handover, HandoverTiming, Peer, StandbyMode};
use crate::layout::{Fields, SpaceDecodeError, put_u32, put_u64};

impl Handover {
    /// Appends the part of the handovers that a standby needs.
    pub(crate) fn write_snapshot(&self, out: &mut Vec<u8>) {
        put_u32(out, self.region.0);
        put_u64(out, self.epoch);
        put_u64(out, self.written);
        put_u64(out, self.state_lost_epoch);
        put_u32(out, self.peers.len() as u32);
        for (id, peer) in &self.peers {
            put_u32(out, id.0);
            put_u64(out, peer.epoch);
            transfer::put_transfer(out, peer.peer_settled);
            let open: Vec<_> = peer.outbound.iter().filter(|(_, one)| !one.is_closed()).collect();
            put_u32(out, open.len() as u32);
            for (transfer, one) in open {
                transfer::put_transfer(out, *transfer);
                one.write_snapshot(out);
            }
            put_u32(out, peer.inbound.len() as u32);
            for (transfer, one) in &peer.inbound {
                transfer::put_transfer(out, *transfer);
                one.write_snapshot(out);
            }
        }
    }

    /// Decodes the handovers in a region's snapshot. The result has what a standby has, without deadlines and messages
    /// to resend.
    pub(crate) fn read_snapshot(
        fields: &mut Fields<'_>,
        standby: StandbyMode,
        timing: HandoverTiming,
    ) -> Result<Handover, SpaceDecodeError> {
        let (region, epoch) = (RegionId(fields.u32()?), fields.u64()?);
        let mut handover = Handover::new(region, epoch, standby, timing);
        handover.written = fields.u64()?;
        (handover.known, handover.state_lost_epoch) = (handover.written, fields.u64()?);
        for _ in 0..fields.count(36)? {
            let id = RegionId(fields.u32()?);
            let mut peer =
                Peer { epoch: fields.u64()?, peer_settled: transfer::transfer(fields)?, ..Peer::default() };
            for _ in 0..fields.count(16)? {
                let transfer = transfer::transfer(fields)?;
                peer.outbound.insert(transfer, OutboundTransfer::read_snapshot(fields)?);
            }
            for _ in 0..fields.count(16)? {
                let transfer = transfer::transfer(fields)?;
                let one = InboundTransfer::read_snapshot(fields)?;
                let staged: HashMap<_, _> =
                    one.staged().iter().map(|entity| (entity.id, (id, transfer))).collect();
                handover.staged.extend(staged);
                peer.inbound.insert(transfer, one);
            }
            handover.peers.insert(id, peer);
        }
        Ok(handover)
    }
}
