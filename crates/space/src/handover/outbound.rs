//! Handles handovers in the region that gives the entities, the source.

use super::transfer::{bytes_of, put_refused, refused, split_refused};
use super::{
    Direction, Handover, HandoverEffect, HandoverStep, MessageBody, OfferError, RefusedEntity, RegionId,
    TransferId, TransferredEntity,
};
use crate::entity::EntityId;
use crate::layout::{Fields, SpaceDecodeError, put_u32, put_u64};

/// A transfer of entities to another region.
#[derive(Debug, Clone)]
pub(super) struct OutboundTransfer {
    ids: Vec<EntityId>,
    /// The encoded entities, which are needed to send the offer again. Only the owner that made the offer has this
    /// copy; a standby has none.
    entities: Vec<TransferredEntity>,
    addressed: u64,
    state: OutboundState,
    /// Whether the standby knows the last step of this transfer.
    pub(super) known: bool,
    /// Time at which the last message is sent again.
    pub(super) resend_at: u64,
}

#[derive(Debug, Clone)]
enum OutboundState {
    /// Offered to the target. `prepared` is the target's response, once the response has arrived.
    Preparing { deadline: u64, prepared: Option<Vec<RefusedEntity>> },
    /// Offered by a previous owner of the source. This owner asks the target for the result.
    Querying,
    /// Committed to the target, which has not confirmed yet.
    Committing { refused: Vec<RefusedEntity> },
    /// The transfer has ended, but the standby does not know this yet.
    Closed { committed: bool },
}

impl OutboundTransfer {
    pub(super) fn is_closed(&self) -> bool {
        matches!(self.state, OutboundState::Closed { .. })
    }

    /// Approximate memory in use, bytes.
    pub(super) fn bytes(&self) -> usize {
        size_of::<OutboundTransfer>() + self.ids.len() * size_of::<EntityId>() + bytes_of(&self.entities)
    }

    /// The entities that the target accepted, while the transfer is committed and the target has not confirmed it. At
    /// any other time, there are none.
    pub(super) fn committed(&self) -> Vec<EntityId> {
        match &self.state {
            OutboundState::Committing { refused } => split_refused(&self.ids, refused).0,
            _ => Vec::new(),
        }
    }

    pub(super) fn write_snapshot(&self, out: &mut Vec<u8>) {
        put_u64(out, self.addressed);
        put_u32(out, self.ids.len() as u32);
        self.ids.iter().for_each(|id| put_u64(out, id.0));
        match &self.state {
            OutboundState::Committing { refused } => {
                out.push(1);
                put_refused(out, refused);
            }
            _ => out.push(0),
        }
    }

    pub(super) fn read_snapshot(fields: &mut Fields<'_>) -> Result<OutboundTransfer, SpaceDecodeError> {
        let (addressed, ids) = (fields.u64()?, fields.list(8, |fields| fields.u64().map(EntityId))?);
        let state = match fields.u8()? {
            0 => OutboundState::Querying,
            1 => OutboundState::Committing { refused: refused(fields)? },
            number => return Err(SpaceDecodeError::Unknown { what: "state of a handover", number }),
        };
        Ok(OutboundTransfer { ids, entities: Vec::new(), addressed, state, known: true, resend_at: 0 })
    }

    /// Removes from the transfer everything that a standby cannot know from the entries.
    pub(super) fn reset_to_standby(&mut self) {
        self.entities = Vec::new();
        if let OutboundState::Preparing { .. } = self.state {
            self.state = OutboundState::Querying;
        }
    }
}

impl Handover {
    /// Offers entities to another region. The entities stand still until the transfer has ended.
    pub fn offer(
        &mut self,
        to: RegionId,
        entities: Vec<TransferredEntity>,
        now: u64,
        effects: &mut Vec<HandoverEffect>,
    ) -> Result<TransferId, OfferError> {
        self.set_now(now);
        let (max, batch_max, count) = (self.limits.transfers_max, self.limits.batch_max, entities.len());
        let peer =
            self.peers.get_mut(&to).filter(|peer| peer.epoch > 0).ok_or(OfferError::UnknownPeer(to))?;
        if peer.outbound.len() >= max {
            return Err(OfferError::Busy { max });
        }
        if !(1..=batch_max).contains(&count) {
            return Err(OfferError::Batch { count, max: batch_max });
        }
        let (addressed, transfer) = (peer.epoch, TransferId { epoch: self.epoch, number: peer.next });
        peer.next += 1;
        let ids = entities.iter().map(|entity| entity.id).collect();
        let entry = self.write(to, transfer, HandoverStep::Leaving { addressed, ids }, effects);
        let (deadline, resend_at) = (self.now + self.timing.prepare_ns, self.now + self.timing.resend_ns);
        if let Some(out) = self.outbound(to, transfer) {
            out.state = OutboundState::Preparing { deadline, prepared: None };
            (out.entities, out.resend_at, out.known) = (entities.clone(), resend_at, false);
        }
        self.waiting.push_back((entry, to, transfer, Direction::Outbound));
        self.send(to, transfer, MessageBody::Prepare(entities), effects);
        self.resume_waiting(effects);
        Ok(transfer)
    }

    fn outbound(&mut self, peer: RegionId, transfer: TransferId) -> Option<&mut OutboundTransfer> {
        self.peers.get_mut(&peer)?.outbound.get_mut(&transfer)
    }

    pub(super) fn on_prepared(
        &mut self,
        from: RegionId,
        transfer: TransferId,
        response: Vec<RefusedEntity>,
        effects: &mut Vec<HandoverEffect>,
    ) {
        match self.outbound(from, transfer).map(|out| &mut out.state) {
            Some(OutboundState::Preparing { prepared, .. }) => {
                prepared.get_or_insert(response);
                self.try_commit(from, transfer, effects);
            }
            Some(OutboundState::Committing { .. }) => self.send(from, transfer, MessageBody::Commit, effects),
            Some(OutboundState::Querying | OutboundState::Closed { committed: true }) => {
                self.counts.repeated += 1
            }
            Some(OutboundState::Closed { committed: false }) | None => {
                self.send(from, transfer, MessageBody::Abort, effects)
            }
        }
    }

    /// Commits a transfer if the target is prepared and this region's standby knows the offer.
    fn try_commit(&mut self, to: RegionId, transfer: TransferId, effects: &mut Vec<HandoverEffect>) {
        let resend_at = self.now + self.timing.resend_ns;
        let Some(out) = self.outbound(to, transfer) else { return };
        let (true, OutboundState::Preparing { prepared: Some(refused), .. }) = (out.known, &out.state) else {
            return;
        };
        if refused.len() >= out.ids.len() {
            let refused = refused.clone();
            self.report_refused(to, transfer, &refused, effects);
            return self.abort_transfer(to, transfer, effects);
        }
        out.resend_at = resend_at;
        let refused = refused.clone();
        self.report_refused(to, transfer, &refused, effects);
        self.write(to, transfer, HandoverStep::Committed(refused), effects);
        self.send(to, transfer, MessageBody::Commit, effects);
    }

    fn report_refused(
        &mut self,
        to: RegionId,
        transfer: TransferId,
        refused: &[RefusedEntity],
        effects: &mut Vec<HandoverEffect>,
    ) {
        let Some(out) = self.outbound(to, transfer) else { return };
        let named = |one: &RefusedEntity| Some((*out.ids.get(one.index as usize)?, one.why));
        let refusals: Vec<_> = refused.iter().filter_map(named).collect();
        self.counts.refused += refusals.len() as u64;
        if !refusals.is_empty() {
            effects.push(HandoverEffect::Refused(refusals));
        }
    }

    /// Aborts a transfer. After that, this region moves the transfer's entities again.
    fn abort_transfer(&mut self, to: RegionId, transfer: TransferId, effects: &mut Vec<HandoverEffect>) {
        let entry = self.write(to, transfer, HandoverStep::Aborted, effects);
        self.waiting.push_back((entry, to, transfer, Direction::Outbound));
        self.send(to, transfer, MessageBody::Abort, effects);
    }

    pub(super) fn on_taken(
        &mut self,
        from: RegionId,
        transfer: TransferId,
        refused: Vec<RefusedEntity>,
        effects: &mut Vec<HandoverEffect>,
    ) {
        match self.outbound(from, transfer).map(|out| &out.state) {
            Some(OutboundState::Committing { .. }) => self.settle(from, transfer, effects),
            Some(OutboundState::Querying) => {
                self.write(from, transfer, HandoverStep::Committed(refused), effects);
                self.settle(from, transfer, effects);
            }
            _ => self.counts.repeated += 1,
        }
    }

    fn settle(&mut self, to: RegionId, transfer: TransferId, effects: &mut Vec<HandoverEffect>) {
        let entry = self.write(to, transfer, HandoverStep::Settled, effects);
        self.waiting.push_back((entry, to, transfer, Direction::Outbound));
    }

    pub(super) fn on_not_taken(
        &mut self,
        from: RegionId,
        transfer: TransferId,
        effects: &mut Vec<HandoverEffect>,
    ) {
        match self.outbound(from, transfer).map(|out| &out.state) {
            Some(OutboundState::Querying) => {
                self.counts.aborted += 1;
                self.abort_transfer(from, transfer, effects);
            }
            _ => self.counts.repeated += 1,
        }
    }

    /// Handles the message `Unknown`, with which the target reports that it has lost its state. The target has then
    /// also lost the entities that it had taken from this region.
    pub(super) fn on_unknown(
        &mut self,
        from: RegionId,
        transfer: TransferId,
        effects: &mut Vec<HandoverEffect>,
    ) {
        let Some(out) = self.outbound(from, transfer) else { return };
        let refused = match &out.state {
            OutboundState::Committing { refused } => refused.clone(),
            OutboundState::Querying => Vec::new(),
            _ => return,
        };
        let ids = split_refused(&out.ids, &refused).0;
        if let OutboundState::Querying = out.state {
            self.write(from, transfer, HandoverStep::Committed(refused), effects);
        }
        effects.push(HandoverEffect::Lost { to: from, ids });
        self.settle(from, transfer, effects);
    }

    pub(super) fn on_query_source(
        &mut self,
        from: RegionId,
        transfer: TransferId,
        effects: &mut Vec<HandoverEffect>,
    ) {
        match self.outbound(from, transfer).map(|out| &out.state) {
            Some(OutboundState::Committing { .. }) => self.send(from, transfer, MessageBody::Commit, effects),
            Some(
                OutboundState::Preparing { .. }
                | OutboundState::Querying
                | OutboundState::Closed { committed: true },
            ) => {}
            Some(OutboundState::Closed { committed: false }) | None => {
                self.send(from, transfer, MessageBody::Abort, effects)
            }
        }
    }

    pub(super) fn on_new_owner_outbound(&mut self, peer: RegionId, effects: &mut Vec<HandoverEffect>) {
        let now = self.now;
        let Some(known) = self.peers.get_mut(&peer) else { return };
        known.outbound.values_mut().for_each(|out| out.resend_at = now);
        let offered = |(transfer, out): (&TransferId, &OutboundTransfer)| {
            matches!(out.state, OutboundState::Preparing { .. }).then_some(*transfer)
        };
        let offered: Vec<TransferId> = known.outbound.iter().filter_map(offered).collect();
        for transfer in offered {
            self.counts.aborted += 1;
            self.abort_transfer(peer, transfer, effects);
        }
        self.advance_outbound(peer, effects);
    }

    pub(super) fn advance_outbound(&mut self, to: RegionId, effects: &mut Vec<HandoverEffect>) {
        let (now, again) = (self.now, self.now + self.timing.resend_ns);
        let Some(peer) = self.peers.get_mut(&to) else { return };
        let (mut messages, mut late) = (Vec::new(), Vec::new());
        for (transfer, out) in &mut peer.outbound {
            if let OutboundState::Preparing { deadline, .. } = out.state
                && deadline <= now
            {
                late.push(*transfer);
                continue;
            }
            if out.resend_at > now {
                continue;
            }
            out.resend_at = again;
            match &out.state {
                OutboundState::Preparing { prepared: None, .. } => {
                    messages.push((*transfer, MessageBody::Prepare(out.entities.clone())));
                }
                OutboundState::Querying => {
                    messages.push((*transfer, MessageBody::QueryTarget { addressed: out.addressed }))
                }
                OutboundState::Committing { .. } => messages.push((*transfer, MessageBody::Commit)),
                OutboundState::Preparing { .. } | OutboundState::Closed { .. } => {}
            }
        }
        self.counts.aborted += late.len() as u64;
        late.into_iter().for_each(|transfer| self.abort_transfer(to, transfer, effects));
        messages.into_iter().for_each(|(transfer, body)| self.send(to, transfer, body, effects));
    }

    pub(super) fn on_outbound_known(
        &mut self,
        to: RegionId,
        transfer: TransferId,
        effects: &mut Vec<HandoverEffect>,
    ) {
        let Some(out) = self.outbound(to, transfer) else { return };
        out.known = true;
        if !out.is_closed() {
            return self.try_commit(to, transfer, effects);
        }
        let Some(peer) = self.peers.get_mut(&to) else { return };
        peer.outbound.remove(&transfer);
        // As long as other transfers to the peer are in progress, their messages carry `settled`. Without such
        // transfers, `settled` needs a separate message.
        let (idle, settled_sent) = (peer.outbound.is_empty(), peer.settled_sent);
        if idle && settled_sent < self.settled(to) {
            self.send(to, transfer, MessageBody::Settled, effects);
        }
    }

    pub(super) fn apply_leaving(
        &mut self,
        to: RegionId,
        transfer: TransferId,
        addressed: u64,
        ids: Vec<EntityId>,
        effects: &mut Vec<HandoverEffect>,
    ) {
        effects.push(HandoverEffect::Suspend(ids.clone()));
        let out = OutboundTransfer {
            ids,
            entities: Vec::new(),
            addressed,
            state: OutboundState::Querying,
            known: true,
            resend_at: 0,
        };
        self.peers.entry(to).or_default().outbound.insert(transfer, out);
    }

    pub(super) fn apply_committed(
        &mut self,
        to: RegionId,
        transfer: TransferId,
        refused: Vec<RefusedEntity>,
        effects: &mut Vec<HandoverEffect>,
    ) {
        let Some(out) = self.outbound(to, transfer) else { return };
        let (departing, released) = split_refused(&out.ids, &refused);
        out.entities = Vec::new();
        out.state = OutboundState::Committing { refused };
        self.counts.departed += departing.len() as u64;
        effects.push(HandoverEffect::Depart(departing));
        if !released.is_empty() {
            effects.push(HandoverEffect::Release(released));
        }
    }

    pub(super) fn apply_aborted(
        &mut self,
        to: RegionId,
        transfer: TransferId,
        effects: &mut Vec<HandoverEffect>,
    ) {
        let Some(out) = self.outbound(to, transfer) else { return };
        out.state = OutboundState::Closed { committed: false };
        out.entities = Vec::new();
        effects.push(HandoverEffect::Release(std::mem::take(&mut out.ids)));
    }

    pub(super) fn apply_settled(&mut self, to: RegionId, transfer: TransferId) {
        if let Some(out) = self.outbound(to, transfer) {
            out.state = OutboundState::Closed { committed: true };
        }
    }
}
