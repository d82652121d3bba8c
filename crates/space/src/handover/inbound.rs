//! Handles handovers in the region that takes the entities, the target.

use std::collections::HashSet;

use crate::layout::{Fields, SpaceDecodeError};

use super::transfer::{bytes_of, entities, put_entities, put_refused, refused};
use super::{
    AdmissionCheck, Direction, EntityRefusal, Handover, HandoverEffect, HandoverStep, MessageBody,
    RefusedEntity, RegionId, TransferId, TransferredEntity,
};

/// A transfer of entities from another region.
#[derive(Debug, Clone)]
pub(super) struct InboundTransfer {
    state: InboundState,
    refused: Vec<RefusedEntity>,
    /// Whether the standby knows the last step of this transfer.
    pub(super) known: bool,
    /// Time at which the target next asks the source for its decision.
    pub(super) query_at: u64,
}

#[derive(Debug, Clone)]
enum InboundState {
    Staged(Vec<TransferredEntity>),
    Taken,
    Dropped,
}

impl InboundTransfer {
    /// The accepted entities while the source has not decided. After the decision, there are none.
    pub(super) fn staged(&self) -> &[TransferredEntity] {
        match &self.state {
            InboundState::Staged(entities) => entities,
            InboundState::Taken | InboundState::Dropped => &[],
        }
    }

    /// Approximate memory in use, bytes.
    pub(super) fn bytes(&self) -> usize {
        size_of::<InboundTransfer>()
            + bytes_of(self.staged())
            + self.refused.len() * size_of::<RefusedEntity>()
    }

    pub(super) fn write_snapshot(&self, out: &mut Vec<u8>) {
        match &self.state {
            InboundState::Staged(entities) => {
                out.push(0);
                put_entities(out, entities);
            }
            InboundState::Taken => out.push(1),
            InboundState::Dropped => out.push(2),
        }
        put_refused(out, &self.refused);
    }

    pub(super) fn read_snapshot(fields: &mut Fields<'_>) -> Result<InboundTransfer, SpaceDecodeError> {
        let state = match fields.u8()? {
            0 => InboundState::Staged(entities(fields)?),
            1 => InboundState::Taken,
            2 => InboundState::Dropped,
            number => return Err(SpaceDecodeError::Unknown { what: "state of a handover", number }),
        };
        Ok(InboundTransfer { state, refused: refused(fields)?, known: true, query_at: 0 })
    }

    pub(super) fn is_staged(&self) -> bool {
        matches!(self.state, InboundState::Staged(_))
    }
}

impl Handover {
    fn inbound(&mut self, peer: RegionId, transfer: TransferId) -> Option<&mut InboundTransfer> {
        self.peers.get_mut(&peer)?.inbound.get_mut(&transfer)
    }

    /// Whether the source has settled the transfer.
    fn is_peer_settled(&self, peer: RegionId, transfer: TransferId) -> bool {
        self.peers.get(&peer).is_some_and(|peer| transfer < peer.peer_settled)
    }

    pub(super) fn on_prepare(
        &mut self,
        from: RegionId,
        transfer: TransferId,
        entities: Vec<TransferredEntity>,
        admission: &dyn AdmissionCheck,
        effects: &mut Vec<HandoverEffect>,
    ) {
        if self.is_peer_settled(from, transfer) {
            self.counts.repeated += 1;
            return;
        }
        if self.inbound(from, transfer).is_some() {
            self.counts.repeated += 1;
            return self.resend_response(from, transfer, effects);
        }
        let busy = self.peers.get(&from).is_none_or(|peer| peer.inbound.len() >= self.limits.transfers_max);
        let refused = if busy || entities.len() > self.limits.batch_max {
            (0..entities.len() as u32)
                .map(|index| RefusedEntity { index, why: EntityRefusal::Busy })
                .collect()
        } else {
            self.find_refused(&entities, admission)
        };
        if refused.len() == entities.len() {
            return self.send(from, transfer, MessageBody::Prepared(refused), effects);
        }
        let entities = super::transfer::split_refused(&entities, &refused).0;
        let entry = self.write(from, transfer, HandoverStep::Staged { entities, refused }, effects);
        let query_at = self.now + self.timing.query_ns;
        if let Some(one) = self.inbound(from, transfer) {
            (one.known, one.query_at) = (false, query_at);
        }
        self.waiting.push_back((entry, from, transfer, Direction::Inbound));
    }

    fn find_refused(
        &self,
        entities: &[TransferredEntity],
        admission: &dyn AdmissionCheck,
    ) -> Vec<RefusedEntity> {
        let mut taken = HashSet::with_capacity(entities.len());
        let refused = |(index, entity): (u32, &TransferredEntity)| {
            let is_duplicate = self.staged.contains_key(&entity.id) || taken.contains(&entity.id);
            let others = self.staged.len() + taken.len();
            let why =
                if is_duplicate { Some(EntityRefusal::Held) } else { admission.refusal(entity, others) };
            if why.is_none() {
                taken.insert(entity.id);
            }
            why.map(|why| RefusedEntity { index, why })
        };
        (0..).zip(entities).filter_map(refused).collect()
    }

    /// Sends the last response for a transfer a second time, provided that the standby knows the step that the response
    /// reports.
    fn resend_response(&mut self, from: RegionId, transfer: TransferId, effects: &mut Vec<HandoverEffect>) {
        let Some(one) = self.inbound(from, transfer).filter(|one| one.known) else { return };
        let body = match one.state {
            InboundState::Staged(_) => MessageBody::Prepared(one.refused.clone()),
            InboundState::Taken => MessageBody::Taken(one.refused.clone()),
            InboundState::Dropped => return,
        };
        self.send(from, transfer, body, effects);
    }

    pub(super) fn on_commit(
        &mut self,
        from: RegionId,
        transfer: TransferId,
        effects: &mut Vec<HandoverEffect>,
    ) {
        let peer_settled = self.is_peer_settled(from, transfer);
        match self.inbound(from, transfer).map(|one| &one.state) {
            Some(InboundState::Staged(_)) => {
                let entry = self.write(from, transfer, HandoverStep::Taken, effects);
                self.waiting.push_back((entry, from, transfer, Direction::Inbound));
            }
            Some(InboundState::Taken) => {
                self.counts.repeated += 1;
                self.resend_response(from, transfer, effects);
            }
            Some(InboundState::Dropped) => self.counts.repeated += 1,
            None if peer_settled => self.counts.repeated += 1,
            None => self.send(from, transfer, MessageBody::Unknown, effects),
        }
    }

    pub(super) fn on_abort(
        &mut self,
        from: RegionId,
        transfer: TransferId,
        effects: &mut Vec<HandoverEffect>,
    ) {
        match self.inbound(from, transfer) {
            Some(one) if one.is_staged() => self.drop_staged(from, transfer, effects),
            _ => self.counts.repeated += 1,
        }
    }

    fn drop_staged(&mut self, from: RegionId, transfer: TransferId, effects: &mut Vec<HandoverEffect>) {
        self.write(from, transfer, HandoverStep::Dropped, effects);
    }

    /// Responds to a new owner of the source region. The new owner does not know what the previous owner decided.
    pub(super) fn on_query_target(
        &mut self,
        from: RegionId,
        transfer: TransferId,
        addressed: u64,
        effects: &mut Vec<HandoverEffect>,
    ) {
        let is_state_lost = addressed < self.state_lost_epoch;
        match self.inbound(from, transfer).map(|one| &one.state) {
            Some(InboundState::Taken) => self.resend_response(from, transfer, effects),
            Some(InboundState::Staged(_)) => {
                self.drop_staged(from, transfer, effects);
                self.send(from, transfer, MessageBody::NotTaken, effects);
            }
            None if is_state_lost => self.send(from, transfer, MessageBody::Unknown, effects),
            Some(InboundState::Dropped) | None => self.send(from, transfer, MessageBody::NotTaken, effects),
        }
    }

    /// Forgets the transfers of this source with an id below `settled`. If such a transfer is still staged, the source
    /// has aborted it; the transfer's entities are then dropped.
    pub(super) fn discard_settled(
        &mut self,
        from: RegionId,
        settled: TransferId,
        effects: &mut Vec<HandoverEffect>,
    ) {
        let Some(peer) = self.peers.get_mut(&from) else { return };
        if settled <= peer.peer_settled {
            return;
        }
        peer.peer_settled = settled;
        let staged = peer.inbound.range(..settled).filter(|(_, one)| one.is_staged());
        let staged: Vec<TransferId> = staged.map(|(transfer, _)| *transfer).collect();
        let any = peer.inbound.range(..settled).next().is_some();
        staged.into_iter().for_each(|transfer| self.drop_staged(from, transfer, effects));
        if any {
            self.write(from, settled, HandoverStep::PeerSettled, effects);
        }
    }

    pub(super) fn on_new_owner_inbound(&mut self, peer: RegionId, effects: &mut Vec<HandoverEffect>) {
        let now = self.now;
        if let Some(known) = self.peers.get_mut(&peer) {
            known.inbound.values_mut().for_each(|one| one.query_at = now);
        }
        self.advance_inbound(peer, effects);
    }

    pub(super) fn advance_inbound(&mut self, from: RegionId, effects: &mut Vec<HandoverEffect>) {
        let (now, again) = (self.now, self.now + self.timing.query_ns);
        let Some(peer) = self.peers.get_mut(&from) else { return };
        let mut in_doubt = Vec::new();
        for (transfer, one) in &mut peer.inbound {
            if one.is_staged() && one.query_at <= now {
                one.query_at = again;
                in_doubt.push(*transfer);
            }
        }
        in_doubt
            .into_iter()
            .for_each(|transfer| self.send(from, transfer, MessageBody::QuerySource, effects));
    }

    pub(super) fn on_inbound_known(
        &mut self,
        from: RegionId,
        transfer: TransferId,
        effects: &mut Vec<HandoverEffect>,
    ) {
        if let Some(one) = self.inbound(from, transfer) {
            one.known = true;
            self.resend_response(from, transfer, effects);
        }
    }

    pub(super) fn apply_staged(
        &mut self,
        from: RegionId,
        transfer: TransferId,
        entities: Vec<TransferredEntity>,
        refused: Vec<RefusedEntity>,
    ) {
        self.staged.extend(entities.iter().map(|entity| (entity.id, (from, transfer))));
        let one =
            InboundTransfer { state: InboundState::Staged(entities), refused, known: true, query_at: 0 };
        self.peers.entry(from).or_default().inbound.insert(transfer, one);
    }

    /// Ends the staging of a transfer: sets the transfer's state to `state`, and returns its entities.
    fn unstage(
        &mut self,
        from: RegionId,
        transfer: TransferId,
        state: InboundState,
    ) -> Vec<TransferredEntity> {
        let Some(one) = self.inbound(from, transfer) else { return Vec::new() };
        let InboundState::Staged(entities) = std::mem::replace(&mut one.state, state) else {
            return Vec::new();
        };
        for entity in &entities {
            self.staged.remove(&entity.id);
        }
        entities
    }

    pub(super) fn apply_taken(
        &mut self,
        from: RegionId,
        transfer: TransferId,
        effects: &mut Vec<HandoverEffect>,
    ) {
        let entities = self.unstage(from, transfer, InboundState::Taken);
        self.counts.admitted += entities.len() as u64;
        effects.push(HandoverEffect::Admit(entities));
        let known = self.standby == super::StandbyMode::None;
        if let Some(one) = self.inbound(from, transfer) {
            one.known = known;
        }
    }

    pub(super) fn apply_dropped(&mut self, from: RegionId, transfer: TransferId) {
        self.unstage(from, transfer, InboundState::Dropped);
    }

    pub(super) fn apply_peer_settled(&mut self, from: RegionId, settled: TransferId) {
        if let Some(peer) = self.peers.get_mut(&from) {
            peer.peer_settled = peer.peer_settled.max(settled);
            peer.inbound = peer.inbound.split_off(&settled);
        }
    }
}
