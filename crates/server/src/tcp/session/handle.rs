//! What each message makes the session do.

use dunlin::Refused;
use dunlin::wire::{ErrorCode, FromClient, FromNode, SubscriptionEnded};

use super::outbound::protocol;
use super::reading::Taken;
use super::{Phase, Session};

impl Session {
    pub(super) fn handle(&mut self, message: FromClient<'_>) -> Taken {
        match (&self.phase, message) {
            (Phase::Hello, FromClient::Hello(hello)) => self.hello(hello),
            (Phase::Open, FromClient::Publish(publish)) => return self.publish(&publish),
            (Phase::Open, message) => self.handle_open(message),
            (_, other) => {
                self.fail(&protocol(format!("{:?} where HELLO was expected", other.kind())));
            }
        }
        Taken::Whole
    }

    fn handle_open(&mut self, message: FromClient<'_>) {
        match message {
            FromClient::OpenPublisher(open) => self.open_publisher(&open),
            FromClient::ClosePublisher { publisher } => self.close_publisher(publisher),
            FromClient::Resume(resume) => self.resume(&resume),
            FromClient::Subscribe(subscribe) => self.subscribe(&subscribe),
            FromClient::Unsubscribe { subscription } => self.unsubscribe(subscription),
            FromClient::Credit(credit) => self.credit(&credit),
            FromClient::Ping(ping) => self.outbound.say(FromNode::Pong(ping)),
            FromClient::CreateTopic(create) => self.create_topic(&create),
            FromClient::DeleteTopic(delete) => self.delete_topic(delete),
            FromClient::ListTopics(list) => self.list_topics(&list),
            FromClient::DescribeTopic(describe) => self.describe_topic(describe),
            FromClient::Leave => self.part(),
            FromClient::Hello(_) => self.fail(&protocol("a second HELLO")),
            FromClient::Publish(_) => {}
            FromClient::JoinGroup(join) => self.no_groups_yet(join.subscription),
            FromClient::Claim(claim) => self.no_groups_yet(claim.subscription),
            FromClient::Ack(settle) => self.no_groups_yet(settle.subscription),
            FromClient::Nack(nack) => self.no_groups_yet(nack.subscription),
        }
    }

    fn no_groups_yet(&mut self, subscription: u32) {
        let refused = Refused::new(ErrorCode::Internal, "this node has no groups");
        let refusal = refused.as_wire();
        self.outbound.say(FromNode::SubscriptionEnded(SubscriptionEnded { subscription, refusal }));
    }
}
