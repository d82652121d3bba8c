//! Serves the calls with which subscribers are members of groups. In such a call, the member sends requests and
//! receives records.
//!
//! Records are taken from the group only when the member's connection has room. In share groups, the member receives at
//! most `share_in_flight_max` records before it confirms some of them. In work groups, the member receives as many
//! records as it has requested.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use dunlin::topic::{Event, Notice, Record, Start, Subscribe, SubscribeError, Topic, Waiter};
use dunlin::wire::ErrorCode;
use dunlin::{
    ClaimedRecord, DeadLetterTarget, Inbox, Node, Refused, ShareMember, ShareOptions, WorkEvent, WorkMember,
    WorkOptions, steady_ns,
};
use tokio_stream::Stream;
use tonic::{Status, Streaming};
use v1::join_group_request::Request as MemberRequest;
use v1::join_group_response::Event as MemberResponse;
use v1::start::At;

use super::connection::{GrpcConnection, StreamRegistration};
use super::proto::dunlin as v1;
use super::status::{status, with_protocol_code};
use super::translate;
use crate::access::SubscriptionAccess;
use crate::shared::STOP;

/// Token with which the member's waiter is notified of new records.
const NEW_RECORDS: u32 = 1;
/// Maximum number of records in one message. A message is also complete when its payloads reach [`RECORD_BYTES_MAX`]
/// bytes.
const RECORDS_MAX: usize = 256;
const RECORD_BYTES_MAX: usize = 32 << 10;

pub(super) struct GroupMembership {
    node: Node,
    requests: Streaming<v1::JoinGroupRequest>,
    group_member: Option<GroupMember>,
    waiter: Arc<Waiter>,
    /// Responses to the member's requests. They are sent before records.
    responses: VecDeque<MemberResponse>,
    /// Number of records that the member has requested. Used only in work groups.
    requested: u64,
    /// Number of records that the member has received. Used only in work groups.
    delivered: u64,
    validity: Option<SubscriptionAccess>,
    _registration: StreamRegistration,
}

enum GroupMember {
    Share(ShareMember),
    Work(WorkMember),
}

enum MemberEvent {
    Delivery(v1::Delivery),
    Notice(Notice),
}

/// Joins the group that the first message names.
pub(super) async fn join(
    connection: &Arc<GrpcConnection>,
    mut requests: Streaming<v1::JoinGroupRequest>,
) -> Result<GroupMembership, Status> {
    let first = requests.message().await?.and_then(|first| first.request);
    let joined = match first {
        Some(MemberRequest::Join(join)) => begin_membership(connection, requests, &join).await,
        _ => Err(Refused::new(ErrorCode::Protocol, "the first message must be join")),
    };
    joined.map_err(|refused| status(&refused))
}

async fn begin_membership(
    connection: &Arc<GrpcConnection>,
    requests: Streaming<v1::JoinGroupRequest>,
    join: &v1::Join,
) -> Result<GroupMembership, Refused> {
    if Inbox::is_of_any(&join.topic) {
        return Err(Refused::new(ErrorCode::Forbidden, "the inbox belongs to another session"));
    }
    let waiter = Waiter::new();
    let validity = connection.login.as_ref().map(SubscriptionAccess::of_member);
    let registration = connection.register_stream(&waiter)?;
    let prepared = match join.kind() {
        v1::GroupKind::Work => connection.node.prepare_work(&join.topic, &join.group, &work_options(join)?),
        _ => connection.node.prepare_share(&join.topic, &join.group),
    };
    prepared.await.map_err(|error| Refused::from(&error))?;
    let group_member = GroupMember::join(connection, join, &waiter)?;
    let topic = group_member.topic();
    let joined = v1::Joined { topic: topic.name().to_owned(), partitions: topic.config().partitions.into() };
    let responses = VecDeque::from([MemberResponse::Joined(joined)]);
    Ok(GroupMembership {
        node: connection.node.clone(),
        requests,
        group_member: Some(group_member),
        waiter,
        responses,
        requested: 0,
        delivered: 0,
        validity,
        _registration: registration,
    })
}

impl GroupMember {
    fn join(
        connection: &GrpcConnection,
        join: &v1::Join,
        waiter: &Arc<Waiter>,
    ) -> Result<GroupMember, Refused> {
        let node = &connection.node;
        let wakeup = (Arc::clone(waiter), NEW_RECORDS);
        let joined = match join.kind() {
            v1::GroupKind::Share => {
                let options = ShareOptions {
                    member: join.member.clone(),
                    start: parse_start(join)?,
                    registered: true,
                    ..ShareOptions::default()
                };
                node.join_share_with_waiter(&join.topic, &join.group, &options, wakeup)
                    .map(GroupMember::Share)
            }
            v1::GroupKind::Work => node
                .join_work_with_waiter(&join.topic, &join.group, &work_options(join)?, wakeup)
                .map(GroupMember::Work),
            v1::GroupKind::Unspecified => {
                return Err(Refused::new(
                    ErrorCode::GroupKind,
                    "the group's kind is missing; set SHARE or WORK",
                ));
            }
        };
        joined.map_err(|error| Refused::from(&error))
    }

    fn topic(&self) -> &Arc<Topic> {
        match self {
            GroupMember::Share(share) => share.topic(),
            GroupMember::Work(work) => work.topic(),
        }
    }

    fn group(&self) -> &str {
        match self {
            GroupMember::Share(share) => share.group(),
            GroupMember::Work(work) => work.group(),
        }
    }

    fn leave(self) {
        match self {
            GroupMember::Share(share) => share.leave(),
            GroupMember::Work(work) => work.leave(),
        }
    }

    fn sleep(&self, accepts: bool) -> bool {
        match self {
            GroupMember::Share(share) => share.sleep(accepts),
            GroupMember::Work(work) => work.sleep(accepts),
        }
    }

    fn is_skipping(&self) -> bool {
        match self {
            GroupMember::Share(share) => share.is_skipping(),
            GroupMember::Work(work) => work.is_skipping(),
        }
    }

    /// The next record or notice for the member, or `None`. In work groups, records are returned only if `accepts` is
    /// true.
    fn next(&mut self, accepts: bool) -> Result<Option<MemberEvent>, SubscribeError> {
        match self {
            GroupMember::Share(share) => {
                if !share.ready()? {
                    return Ok(None);
                }
                Ok(Some(match share.take() {
                    Event::Record(record) => MemberEvent::Delivery(delivery(&record, None)),
                    Event::Notice(notice) => MemberEvent::Notice(notice),
                }))
            }
            GroupMember::Work(work) => Ok(work.try_claim(accepts)?.map(|event| match event {
                WorkEvent::ClaimedRecord(claimed) => {
                    MemberEvent::Delivery(delivery(&claimed.record(), Some(&claimed)))
                }
                WorkEvent::Notice(notice) => MemberEvent::Notice(notice),
            })),
        }
    }
}

impl GroupMembership {
    fn accepts_records(&self) -> bool {
        matches!(self.group_member, Some(GroupMember::Share(_))) || self.delivered < self.requested
    }

    fn handle(&mut self, request: Option<MemberRequest>) -> Result<(), Refused> {
        let protocol_error = |text| Err(Refused::new(ErrorCode::Protocol, text));
        match (request, &mut self.group_member) {
            (Some(MemberRequest::Join(_)), _) => {
                return protocol_error("join was already sent on this stream");
            }
            (Some(MemberRequest::Consumed(consumed)), Some(GroupMember::Share(share))) => {
                let partition = u16::try_from(consumed.partition);
                if let Ok(partition) = partition {
                    share.consume(partition, consumed.seq);
                }
            }
            (Some(MemberRequest::Claim(claim)), Some(GroupMember::Work(_))) => {
                self.requested = self.requested.max(claim.wanted)
            }
            (Some(MemberRequest::Ack(ack)), Some(GroupMember::Work(work))) => {
                let settled = settle(ack.request, &ack.tokens, |token| work.ack(token).is_ok());
                self.responses.push_back(settled);
            }
            (Some(MemberRequest::Nack(nack)), Some(GroupMember::Work(work))) => {
                let delay = Duration::from_millis(nack.delay_ms.into());
                let settled = settle(nack.request, &nack.tokens, |token| work.nack(token, delay).is_ok());
                self.responses.push_back(settled);
            }
            (Some(MemberRequest::Renew(renew)), Some(GroupMember::Work(work))) => {
                let settled = settle(renew.request, &renew.tokens, |token| work.renew(token).is_ok());
                self.responses.push_back(settled);
            }
            (Some(MemberRequest::Consumed(_)), _) => {
                return protocol_error("consumed is for share groups; members of work groups send ack");
            }
            (Some(_), _) => return protocol_error("claim, ack, nack and renew are for work groups"),
            (None, _) => return protocol_error("the message has no request"),
        }
        Ok(())
    }

    /// The next message for the member: several records, a notice, or a response; `None` if there is nothing to send.
    fn next(&mut self) -> Result<Option<MemberResponse>, Refused> {
        let mut deliveries = Vec::new();
        let mut bytes = 0;
        while self.responses.is_empty() && deliveries.len() < RECORDS_MAX && bytes < RECORD_BYTES_MAX {
            let accepts = self.accepts_records();
            let Some(group_member) = &mut self.group_member else { break };
            match group_member.next(accepts).map_err(|error| Refused::from(&error)) {
                Ok(Some(MemberEvent::Delivery(delivery))) => {
                    self.delivered += 1;
                    bytes += delivery.record.as_ref().map_or(0, |record| record.payload.len());
                    deliveries.push(delivery);
                }
                Ok(Some(MemberEvent::Notice(notice))) => self.responses.extend(notice_response(&notice)),
                Ok(None) => break,
                // Sends the records that were taken before the error. The next call of `next` returns the error.
                Err(_) if !deliveries.is_empty() => break,
                Err(ended) => return Err(ended),
            }
        }
        if !deliveries.is_empty() {
            return Ok(Some(MemberResponse::Deliveries(v1::Deliveries { deliveries })));
        }
        Ok(self.responses.pop_front())
    }

    fn poll_step(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<MemberResponse, Status>>> {
        loop {
            if let Some(response) = self.responses.pop_front() {
                return Poll::Ready(Some(Ok(response)));
            }
            if let Some(Err(refused)) = self.validity.as_mut().map(SubscriptionAccess::check) {
                return self.end(&refused);
            }
            let mut stop = false;
            self.waiter.take_ready(|token| stop |= token == STOP);
            if stop {
                return self.end(&Refused::new(ErrorCode::ShuttingDown, ""));
            }
            match Pin::new(&mut self.requests).poll_next(cx) {
                Poll::Ready(Some(Ok(request))) => match self.handle(request.request) {
                    Ok(()) => continue,
                    Err(refused) => return self.end(&refused),
                },
                Poll::Ready(Some(Err(broken))) => {
                    // The connection broke, or the message is invalid: drops the member, so that other members receive
                    // its claimed records.
                    self.end_membership(drop);
                    return Poll::Ready(Some(Err(with_protocol_code(broken))));
                }
                Poll::Ready(None) => {
                    self.end_membership(GroupMember::leave);
                    return Poll::Ready(None);
                }
                Poll::Pending => {}
            }
            match self.next() {
                Ok(Some(response)) => return Poll::Ready(Some(Ok(response))),
                Ok(None) => {}
                Err(refused) => return self.end(&refused),
            }
            if self.group_member.as_ref().is_some_and(GroupMember::is_skipping) {
                // The member has skipped many records and must read on. Other tasks of the thread run first.
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            let accepts = self.accepts_records();
            let sleeps = self.group_member.as_ref().is_none_or(|group_member| group_member.sleep(accepts));
            if sleeps && self.waiter.set_waker(cx.waker()) {
                return Poll::Pending;
            }
        }
    }

    /// Leaves the group, and ends the call with `refused` as the reason.
    fn end(&mut self, refused: &Refused) -> Poll<Option<Result<MemberResponse, Status>>> {
        self.end_membership(GroupMember::leave);
        Poll::Ready(Some(Err(status(refused))))
    }

    /// Ends the membership by calling `end`. If a NATS client created the group and the group has no member left, ends
    /// the group.
    fn end_membership(&mut self, end: impl FnOnce(GroupMember)) {
        let Some(group_member) = self.group_member.take() else { return };
        let (topic, group) = (group_member.topic().name().to_owned(), group_member.group().to_owned());
        end(group_member);
        self.node.end_group(&topic, &group);
    }
}

impl Drop for GroupMembership {
    fn drop(&mut self) {
        self.end_membership(drop);
    }
}

impl Stream for GroupMembership {
    type Item = Result<v1::JoinGroupResponse, Status>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        if this.group_member.is_none() {
            return Poll::Ready(None);
        }
        let step = this.poll_step(cx);
        step.map(|response| {
            response.map(|response| response.map(|event| v1::JoinGroupResponse { event: Some(event) }))
        })
    }
}

fn settle(request: u32, tokens: &[u64], mut settle: impl FnMut(u64) -> bool) -> MemberResponse {
    let stale: Vec<_> = tokens.iter().copied().filter(|token| !settle(*token)).collect();
    let settled = (tokens.len() - stale.len()) as u32;
    MemberResponse::Settled(v1::Settled { request, settled, stale })
}

/// Converts a notice to a message for the member. Only gaps and deletions are sent; `None` for other notices.
fn notice_response(notice: &Notice) -> Option<MemberResponse> {
    match notice {
        Notice::Gap(gap) => Some(MemberResponse::Gap(translate::gap(gap))),
        Notice::Deleted { log, last } => {
            Some(MemberResponse::Deleted(v1::LogDeleted { last: Some(translate::position(log, *last)) }))
        }
        _ => None,
    }
}

fn delivery(record: &Record<'_>, claimed: Option<&ClaimedRecord>) -> v1::Delivery {
    let (token, attempt, claim_ms) = match claimed {
        Some(claimed) => {
            let left_ms = claimed.deadline_ns.saturating_sub(steady_ns()) / 1_000_000;
            (claimed.token, claimed.attempt, u32::try_from(left_ms).unwrap_or(u32::MAX))
        }
        None => (0, 1, 0),
    };
    v1::Delivery {
        partition: record.log.partition.into(),
        epoch: record.position.epoch,
        record: Some(translate::record(record)),
        token,
        attempt,
        claim_ms,
    }
}

fn work_options(join: &v1::Join) -> Result<WorkOptions, Refused> {
    let defaults = WorkOptions::default();
    Ok(WorkOptions {
        member: join.member.clone(),
        start: if join.start.is_none() { defaults.start } else { parse_start(join)? },
        registered: true,
        claim: match join.claim_ms {
            0 => defaults.claim,
            ms => Duration::from_millis(ms.into()),
        },
        attempts_max: join.attempts_max,
        dead_letters: match (join.dead_letter.as_str(), join.drop_dead_letters) {
            ("", false) => DeadLetterTarget::Default,
            ("", true) => DeadLetterTarget::Drop,
            (subject, false) => DeadLetterTarget::Subject(subject.to_owned()),
            (_, true) => {
                let text = "dead_letter and drop_dead_letters exclude each other: set one of them";
                return Err(Refused::new(ErrorCode::Protocol, text));
            }
        },
    })
}

fn parse_start(join: &v1::Join) -> Result<Start, Refused> {
    Ok(match join.start.as_ref().and_then(|start| start.at.as_ref()) {
        None | Some(At::Latest(_)) => Start::Latest,
        Some(At::Earliest(_)) => Start::Earliest,
        Some(At::TimeNs(ns)) => Start::Time(*ns),
        Some(At::Snapshot(_)) => Start::Snapshot,
        Some(At::After(positions)) => match &positions.logs[..] {
            [one] => Start::After(dunlin::topic::Position { epoch: one.epoch, seq: one.seq }),
            many => {
                let numbers = [many.len() as u64, 0, 0];
                return Err(Refused { numbers, ..Refused::new(ErrorCode::ManyLogs, join.topic.as_str()) });
            }
        },
    })
}
