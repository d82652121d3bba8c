//! Defines [`FromClient`], which is any message that a client can send.

use crate::control::Control;
use crate::error::WireError;
use crate::group::{Claim, JoinGroup, Nack, Settle};
use crate::header::MessageKind;
use crate::hello::{Hello, Ping};
use crate::layout::{Fields, Layout};
use crate::message::{finish, start};
use crate::publish::{ExpectTopic, OpenPublisher, Publish, PublishHeader};
use crate::run::publish_head;
use crate::state::{Follow, Resync};
use crate::subscribe::{Credit, Resume, Subscribe};
use crate::tasks::Tasks;
use crate::topic::{CreateTopic, CreateTopicWithSettings, ListTopics, NamedTopic};

/// Any message from a client to a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)] // Each variant is documented at its `MessageKind` and at its content's type.
pub enum FromClient<'a> {
    Hello(Hello<'a>),
    Publish(Publish<'a>),
    OpenPublisher(OpenPublisher<'a>),
    ClosePublisher { publisher: u32 },
    Resume(Resume<'a>),
    Subscribe(Subscribe<'a>),
    Unsubscribe { subscription: u32 },
    Credit(Credit<'a>),
    Ping(Ping),
    CreateTopic(CreateTopic<'a>),
    DeleteTopic(NamedTopic<'a>),
    ListTopics(ListTopics<'a>),
    DescribeTopic(NamedTopic<'a>),
    JoinGroup(JoinGroup<'a>),
    Claim(Claim),
    Ack(Settle<'a>),
    Nack(Nack<'a>),
    Leave,
    Follow(Follow),
    Resync(Resync),
    CreateTopicWithSettings(CreateTopicWithSettings<'a>),
    DescribeSettings(NamedTopic<'a>),
    Renew(Settle<'a>),
    Control(Control<'a>),
    Tasks(Tasks<'a>),
    ExpectTopic(ExpectTopic<'a>),
}

impl<'a> FromClient<'a> {
    /// The message's kind.
    pub fn kind(&self) -> MessageKind {
        match self {
            FromClient::Hello(_) => MessageKind::Hello,
            FromClient::Publish(_) => MessageKind::Publish,
            FromClient::OpenPublisher(_) => MessageKind::OpenPublisher,
            FromClient::ClosePublisher { .. } => MessageKind::ClosePublisher,
            FromClient::Resume(_) => MessageKind::Resume,
            FromClient::Subscribe(_) => MessageKind::Subscribe,
            FromClient::Unsubscribe { .. } => MessageKind::Unsubscribe,
            FromClient::Credit(_) => MessageKind::Credit,
            FromClient::Ping(_) => MessageKind::Ping,
            FromClient::CreateTopic(_) => MessageKind::CreateTopic,
            FromClient::DeleteTopic(_) => MessageKind::DeleteTopic,
            FromClient::ListTopics(_) => MessageKind::ListTopics,
            FromClient::DescribeTopic(_) => MessageKind::DescribeTopic,
            FromClient::JoinGroup(_) => MessageKind::JoinGroup,
            FromClient::Claim(_) => MessageKind::Claim,
            FromClient::Ack(_) => MessageKind::Ack,
            FromClient::Nack(_) => MessageKind::Nack,
            FromClient::Leave => MessageKind::Leave,
            FromClient::Follow(_) => MessageKind::Follow,
            FromClient::Resync(_) => MessageKind::Resync,
            FromClient::CreateTopicWithSettings(_) => MessageKind::CreateTopicWithSettings,
            FromClient::DescribeSettings(_) => MessageKind::DescribeSettings,
            FromClient::Renew(_) => MessageKind::Renew,
            FromClient::Control(_) => MessageKind::Control,
            FromClient::Tasks(_) => MessageKind::Tasks,
            FromClient::ExpectTopic(_) => MessageKind::ExpectTopic,
        }
    }

    /// Appends the message's bytes to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        if let FromClient::Publish(publish) = self {
            out.extend_from_slice(&publish_head(&publish.header, publish.flags));
            return out.extend_from_slice(publish.frames);
        }
        let at = start(out, self.kind());
        match self {
            FromClient::Publish(_) | FromClient::Leave => {}
            FromClient::Hello(body) => body.write(out),
            FromClient::OpenPublisher(body) => body.write(out),
            FromClient::ClosePublisher { publisher } => publisher.write(out),
            FromClient::Resume(body) => body.write(out),
            FromClient::Subscribe(body) => body.write(out),
            FromClient::Unsubscribe { subscription } => subscription.write(out),
            FromClient::Credit(body) => body.write(out),
            FromClient::Ping(body) => body.write(out),
            FromClient::CreateTopic(body) => body.write(out),
            FromClient::DeleteTopic(body)
            | FromClient::DescribeTopic(body)
            | FromClient::DescribeSettings(body) => body.write(out),
            FromClient::Follow(body) => body.write(out),
            FromClient::Resync(body) => body.write(out),
            FromClient::CreateTopicWithSettings(body) => body.write(out),
            FromClient::ListTopics(body) => body.write(out),
            FromClient::JoinGroup(body) => body.write(out),
            FromClient::Claim(body) => body.write(out),
            FromClient::Ack(body) | FromClient::Renew(body) => body.write(out),
            FromClient::Nack(body) => body.write(out),
            FromClient::Control(body) => body.write(out),
            FromClient::Tasks(body) => body.write(out),
            FromClient::ExpectTopic(body) => body.write(out),
        }
        finish(out, at);
    }

    /// Decodes the body of a message from a client; `None` if only nodes send messages of this kind.
    pub(crate) fn read(fields: &mut Fields<'a>, flags: u8) -> Result<Option<FromClient<'a>>, WireError> {
        Ok(Some(match fields.kind {
            MessageKind::Publish => {
                let header = PublishHeader::parse(fields, flags)?;
                FromClient::Publish(Publish { flags, header, frames: std::mem::take(&mut fields.rest) })
            }
            MessageKind::Hello => FromClient::Hello(Layout::read(fields)?),
            MessageKind::OpenPublisher => FromClient::OpenPublisher(Layout::read(fields)?),
            MessageKind::ClosePublisher => FromClient::ClosePublisher { publisher: Layout::read(fields)? },
            MessageKind::Resume => FromClient::Resume(Layout::read(fields)?),
            MessageKind::Subscribe => FromClient::Subscribe(Layout::read(fields)?),
            MessageKind::Unsubscribe => FromClient::Unsubscribe { subscription: Layout::read(fields)? },
            MessageKind::Credit => FromClient::Credit(Layout::read(fields)?),
            MessageKind::Ping => FromClient::Ping(Layout::read(fields)?),
            MessageKind::CreateTopic => FromClient::CreateTopic(Layout::read(fields)?),
            MessageKind::DeleteTopic => FromClient::DeleteTopic(Layout::read(fields)?),
            MessageKind::ListTopics => FromClient::ListTopics(Layout::read(fields)?),
            MessageKind::DescribeTopic => FromClient::DescribeTopic(Layout::read(fields)?),
            MessageKind::JoinGroup => FromClient::JoinGroup(Layout::read(fields)?),
            MessageKind::Claim => FromClient::Claim(Layout::read(fields)?),
            MessageKind::Ack => FromClient::Ack(Layout::read(fields)?),
            MessageKind::Nack => FromClient::Nack(Layout::read(fields)?),
            MessageKind::Leave => FromClient::Leave,
            MessageKind::Follow => FromClient::Follow(Layout::read(fields)?),
            MessageKind::Resync => FromClient::Resync(Layout::read(fields)?),
            MessageKind::CreateTopicWithSettings => {
                FromClient::CreateTopicWithSettings(Layout::read(fields)?)
            }
            MessageKind::DescribeSettings => FromClient::DescribeSettings(Layout::read(fields)?),
            MessageKind::Renew => FromClient::Renew(Layout::read(fields)?),
            MessageKind::Control => FromClient::Control(Layout::read(fields)?),
            MessageKind::Tasks => FromClient::Tasks(Layout::read(fields)?),
            MessageKind::ExpectTopic => FromClient::ExpectTopic(Layout::read(fields)?),
            _ => return Ok(None),
        }))
    }
}
