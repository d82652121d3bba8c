//! Tests of a handover, step by step.

use std::sync::Arc;

use super::*;

const MS: u64 = 1_000_000;
const TIMING: HandoverTiming =
    HandoverTiming { prepare_ns: 100 * MS, resend_ns: 20 * MS, query_ns: 200 * MS };
const A: RegionId = RegionId(1);
const B: RegionId = RegionId(2);

/// A target without entities. It accepts all entities except for the given one, if there is one.
struct TargetStub(Option<(EntityId, EntityRefusal)>);

impl AdmissionCheck for TargetStub {
    fn refusal(&self, entity: &TransferredEntity, _: usize) -> Option<EntityRefusal> {
        self.0.filter(|(id, _)| *id == entity.id).map(|(_, why)| why)
    }
}

fn entity(id: u64) -> TransferredEntity {
    TransferredEntity { id: EntityId(id), generation: 1, state: Arc::from(&b"state"[..]) }
}

fn pair(standby: StandbyMode) -> (Handover, Handover) {
    let (mut source, mut target) =
        (Handover::new(A, 1, standby, TIMING), Handover::new(B, 1, standby, TIMING));
    source.record_peer_epoch(B, 1, 0, &mut Vec::new());
    target.record_peer_epoch(A, 1, 0, &mut Vec::new());
    (source, target)
}

fn offer(source: &mut Handover, ids: &[u64], now: u64) -> Vec<HandoverEffect> {
    let mut effects = Vec::new();
    source.offer(B, ids.iter().map(|id| entity(*id)).collect(), now, &mut effects).unwrap();
    effects
}

fn sent(effects: &[HandoverEffect]) -> Vec<HandoverMessage> {
    let message = |effect: &HandoverEffect| match effect {
        HandoverEffect::Send { message, .. } => Some(message.clone()),
        _ => None,
    };
    effects.iter().filter_map(message).collect()
}

fn receive_all(
    side: &mut Handover,
    messages: Vec<HandoverMessage>,
    target_stub: &TargetStub,
    now: u64,
) -> Vec<HandoverEffect> {
    let mut effects = Vec::new();
    messages.into_iter().for_each(|message| side.receive(message, target_stub, now, &mut effects));
    effects
}

fn acknowledge(side: &mut Handover, now: u64) -> Vec<HandoverEffect> {
    let mut effects = Vec::new();
    side.standby_acknowledged(side.written(), now, &mut effects);
    effects
}

fn bodies(effects: &[HandoverEffect]) -> Vec<MessageBody> {
    sent(effects).into_iter().map(|message| message.body).collect()
}

#[test]
fn handover_without_standbys_takes_two_messages_each_way() {
    let (mut source, mut target) = pair(StandbyMode::None);
    let prepare = offer(&mut source, &[7], 0);
    assert!(prepare.contains(&HandoverEffect::Suspend(vec![EntityId(7)])));
    let prepared = receive_all(&mut target, sent(&prepare), &TargetStub(None), 0);
    let commit = receive_all(&mut source, sent(&prepared), &TargetStub(None), 0);
    assert!(commit.contains(&HandoverEffect::Depart(vec![EntityId(7)])));
    let taken = receive_all(&mut target, sent(&commit), &TargetStub(None), 0);
    assert!(taken.contains(&HandoverEffect::Admit(vec![entity(7)])));
    assert_eq!(bodies(&taken), [MessageBody::Taken(vec![])]);
    let settled = receive_all(&mut source, sent(&taken), &TargetStub(None), 0);
    receive_all(&mut target, sent(&settled), &TargetStub(None), 0);
    assert_eq!((source.in_progress(), target.in_progress()), ((0, 0), (0, 0)));
    assert_eq!((source.counts().departed, target.counts().admitted), (1, 1));
}

#[test]
fn handover_is_committed_when_both_standbys_have_received_it() {
    let (mut source, mut target) = pair(StandbyMode::Required);
    let prepare = offer(&mut source, &[7], 0);
    let staged = receive_all(&mut target, sent(&prepare), &TargetStub(None), 0);
    assert_eq!(bodies(&staged), [], "the target's standby does not have it yet");
    let prepared = acknowledge(&mut target, 0);
    let pending = receive_all(&mut source, sent(&prepared), &TargetStub(None), 0);
    assert_eq!(bodies(&pending), [], "the source's standby would still move it");
    let commit = acknowledge(&mut source, 0);
    assert_eq!(bodies(&commit), [MessageBody::Commit]);
    let admitted = receive_all(&mut target, sent(&commit), &TargetStub(None), 0);
    assert!(admitted.contains(&HandoverEffect::Admit(vec![entity(7)])));
    assert_eq!(bodies(&admitted), [], "the standby would ask and receive Unknown");
    assert_eq!(bodies(&acknowledge(&mut target, 0)), [MessageBody::Taken(vec![])]);
}

#[test]
fn entity_of_an_unanswered_handover_is_released_at_the_deadline() {
    let (mut source, mut target) = pair(StandbyMode::None);
    let prepare = offer(&mut source, &[7], 0);
    let mut effects = Vec::new();
    source.advance_time(99 * MS, &mut effects);
    assert!(!effects.contains(&HandoverEffect::Release(vec![EntityId(7)])));
    source.advance_time(100 * MS, &mut effects);
    assert!(effects.contains(&HandoverEffect::Release(vec![EntityId(7)])));
    // Only after the deadline, the offer arrives at the target, and the target's response arrives at the source.
    let prepared = receive_all(&mut target, sent(&prepare), &TargetStub(None), 100 * MS);
    let abort = receive_all(&mut source, sent(&prepared), &TargetStub(None), 100 * MS);
    assert_eq!(bodies(&abort), [MessageBody::Abort]);
    receive_all(&mut target, sent(&abort), &TargetStub(None), 100 * MS);
    assert_eq!((target.in_progress(), target.counts().admitted), ((0, 0), 0));
}

/// A region that accepts an entity reserves the entity's id. This must not block a later handover of the entity.
#[test]
fn entity_can_be_handed_over_back_and_forth_many_times() {
    let (mut source, mut target) = pair(StandbyMode::None);
    for round in 1..=20 {
        let mut effects = offer(&mut source, &[7], round);
        for step in 0..6 {
            let side = if step % 2 == 0 { &mut target } else { &mut source };
            effects = receive_all(side, sent(&effects), &TargetStub(None), round);
        }
        assert_eq!(target.counts().admitted, round);
    }
}

#[test]
fn refused_entities_of_a_batch_handover_stay_and_others_leave() {
    let (mut source, mut target) = pair(StandbyMode::None);
    let target_stub = TargetStub(Some((EntityId(8), EntityRefusal::Held)));
    let prepare = offer(&mut source, &[7, 8, 9, 9], 0);
    let prepared = receive_all(&mut target, sent(&prepare), &target_stub, 0);
    let commit = receive_all(&mut source, sent(&prepared), &TargetStub(None), 0);
    assert!(commit.contains(&HandoverEffect::Depart(vec![EntityId(7), EntityId(9)])));
    assert!(commit.contains(&HandoverEffect::Release(vec![EntityId(8), EntityId(9)])));
    let refused = vec![(EntityId(8), EntityRefusal::Held), (EntityId(9), EntityRefusal::Held)];
    assert!(commit.contains(&HandoverEffect::Refused(refused)));
    let taken = receive_all(&mut target, sent(&commit), &target_stub, 0);
    assert!(taken.contains(&HandoverEffect::Admit(vec![entity(7), entity(9)])));
}

#[test]
fn repeated_handover_messages_change_nothing() {
    let (mut source, mut target) = pair(StandbyMode::None);
    let mut effects = offer(&mut source, &[7], 0);
    for step in 0..6 {
        let twice = [sent(&effects), sent(&effects)].concat();
        let side = if step % 2 == 0 { &mut target } else { &mut source };
        effects = receive_all(side, twice, &TargetStub(None), 0);
    }
    assert_eq!((source.counts().departed, target.counts().admitted), (1, 1));
}

#[test]
fn handover_messages_of_a_replaced_owner_are_ignored() {
    let (mut source, mut target) = pair(StandbyMode::None);
    let prepare = offer(&mut source, &[7], 0);
    target.record_peer_epoch(A, 2, 0, &mut Vec::new());
    let response = receive_all(&mut target, sent(&prepare), &TargetStub(None), 0);
    assert_eq!((response, target.counts().fenced), (vec![], 1));
}

/// After the source's new owner has asked, messages of the previous owner come too late.
#[test]
fn late_commit_is_ignored_if_the_new_owner_keeps_the_entity() {
    let (mut source, mut target) = pair(StandbyMode::Required);
    let prepare = offer(&mut source, &[7], 0);
    let mut heir = source.copy_for_standby();
    receive_all(&mut target, sent(&prepare), &TargetStub(None), 0);
    let prepared = acknowledge(&mut target, 0);
    receive_all(&mut source, sent(&prepared), &TargetStub(None), 0);
    let commit = acknowledge(&mut source, 0);
    assert_eq!(bodies(&commit), [MessageBody::Commit]);
    let mut effects = Vec::new();
    heir.take_over(2, false, &[(B, 1)], MS, &mut effects);
    assert!(matches!(bodies(&effects)[..], [MessageBody::QueryTarget { .. }]));
    let response = receive_all(&mut target, sent(&effects), &TargetStub(None), MS);
    assert!(bodies(&response).contains(&MessageBody::NotTaken));
    let released = receive_all(&mut heir, sent(&response), &TargetStub(None), MS);
    assert!(released.contains(&HandoverEffect::Release(vec![EntityId(7)])));
    let late = receive_all(&mut target, sent(&commit), &TargetStub(None), 2 * MS);
    assert_eq!((late, target.counts().admitted), (vec![], 0));
}

#[test]
fn setting_the_clock_back_changes_no_deadline() {
    let (mut source, _) = pair(StandbyMode::None);
    source.advance_time(50 * MS, &mut Vec::new());
    offer(&mut source, &[7], 10 * MS);
    let mut effects = Vec::new();
    source.advance_time(149 * MS, &mut effects);
    assert!(!effects.contains(&HandoverEffect::Release(vec![EntityId(7)])));
    source.advance_time(0, &mut effects);
    source.advance_time(150 * MS, &mut effects);
    assert!(effects.contains(&HandoverEffect::Release(vec![EntityId(7)])));
}

#[test]
fn refused_handover_offer_reports_the_exceeded_limit() {
    let limits = HandoverLimits { transfers_max: 1, batch_max: 2, peers_max: 4 };
    let mut source = Handover::new(A, 1, StandbyMode::None, TIMING).with_limits(limits);
    let mut effects = Vec::new();
    assert_eq!(source.offer(B, vec![entity(1)], 0, &mut effects), Err(OfferError::UnknownPeer(B)));
    source.record_peer_epoch(B, 1, 0, &mut effects);
    assert_eq!(source.offer(B, vec![], 0, &mut effects), Err(OfferError::Batch { count: 0, max: 2 }));
    let three = vec![entity(1), entity(2), entity(3)];
    assert_eq!(source.offer(B, three, 0, &mut effects), Err(OfferError::Batch { count: 3, max: 2 }));
    source.offer(B, vec![entity(1)], 0, &mut effects).unwrap();
    assert_eq!(source.offer(B, vec![entity(2)], 0, &mut effects), Err(OfferError::Busy { max: 1 }));
}
