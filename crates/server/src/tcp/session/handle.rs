//! Handles each message that a client sends, according to its kind.

use dunlin::wire::{FromClient, FromNode};

use super::outbound::protocol;
use super::reading::HandleOutcome;
use super::{Phase, Session};
use crate::session::turn::COMMAND_WORK;

impl Session {
    pub(super) fn handle(&mut self, message: FromClient<'_>) -> HandleOutcome {
        match (&self.phase, message) {
            (Phase::Hello, FromClient::Hello(hello)) => return self.hello(hello),
            (Phase::Open, FromClient::Publish(publish)) => {
                self.commands.add(1);
                return self.publish(&publish);
            }
            (Phase::Open, message) => {
                if self.commands.is_spent() || self.must_await_end(&message) {
                    self.has_unhandled = true;
                    return HandleOutcome::Blocked;
                }
                self.commands.add(work_of(&message));
                if self.begin_preparation(&message) {
                    return HandleOutcome::Blocked;
                }
                self.handle_open(message);
                self.prepared = None;
            }
            (_, other) => {
                self.fail(&protocol(format!("expected HELLO, received {:?}", other.kind())));
            }
        }
        HandleOutcome::Handled
    }

    /// Whether the message starts a subscription or membership while subscriptions have not ended completely. It then
    /// waits: it may have the number of such a subscription, whose channels also count towards the limits until they
    /// have ended.
    fn must_await_end(&self, message: &FromClient<'_>) -> bool {
        !self.ending.is_empty() && matches!(message, FromClient::Subscribe(_) | FromClient::JoinGroup(_))
    }

    fn handle_open(&mut self, message: FromClient<'_>) {
        match message {
            FromClient::OpenPublisher(open) => self.open_publisher(&open),
            FromClient::ClosePublisher { publisher } => self.close_publisher(publisher),
            FromClient::Resume(resume) => self.resume(&resume),
            FromClient::Subscribe(subscribe) => self.subscribe(&subscribe),
            FromClient::Unsubscribe { subscription } => self.unsubscribe(subscription),
            FromClient::Credit(credit) => self.credit(&credit),
            FromClient::Ping(ping) => self.outbound.push(FromNode::Pong(ping)),
            FromClient::CreateTopic(create) => self.create_topic(&create),
            FromClient::DeleteTopic(delete) => self.delete_topic(delete),
            FromClient::ListTopics(list) => self.list_topics(&list),
            FromClient::DescribeTopic(describe) => self.describe_topic(describe),
            FromClient::Leave => self.begin_closing(),
            FromClient::Follow(follow) => self.follow(follow),
            FromClient::Resync(resync) => self.resync(resync),
            FromClient::CreateTopicWithSettings(create) => self.create_topic_with_settings(&create),
            FromClient::DescribeSettings(describe) => self.describe_settings(describe),
            FromClient::Hello(_) => self.fail(&protocol("HELLO was already sent")),
            FromClient::Publish(_) => {}
            FromClient::JoinGroup(join) => self.join_group(&join),
            FromClient::Claim(claim) => self.claim(claim),
            FromClient::Ack(ack) => self.ack(&ack),
            FromClient::Nack(nack) => self.nack(&nack),
            FromClient::Renew(renew) => self.renew(&renew),
            FromClient::Control(message) => self.control(&message),
            FromClient::Tasks(message) => self.tasks(&message),
            FromClient::ExpectTopic(expected) => self.expect_topic(&expected),
        }
    }
}

/// The work of a message, without the topics that it examines.
pub(super) fn work_of(message: &FromClient<'_>) -> usize {
    match message {
        FromClient::Credit(credit) => 1 + credit.consumed.len(),
        FromClient::Resume(resume) => 1 + resume.logs.len(),
        FromClient::Ack(settle) | FromClient::Renew(settle) => 1 + settle.tokens.len(),
        FromClient::Nack(nack) => 1 + nack.tokens.len(),
        FromClient::OpenPublisher(_)
        | FromClient::ClosePublisher { .. }
        | FromClient::Subscribe(_)
        | FromClient::Unsubscribe { .. }
        | FromClient::JoinGroup(_)
        | FromClient::CreateTopic(_)
        | FromClient::CreateTopicWithSettings(_)
        | FromClient::DeleteTopic(_)
        | FromClient::ListTopics(_)
        | FromClient::DescribeTopic(_)
        | FromClient::DescribeSettings(_) => COMMAND_WORK,
        _ => 1,
    }
}
