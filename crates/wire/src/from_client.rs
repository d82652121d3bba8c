//! The messages of a client.

use crate::control::Control;
use crate::error::WireError;
use crate::group::{Claim, JoinGroup, Nack, Settle};
use crate::header::Kind;
use crate::hello::{Hello, Ping};
use crate::layout::{Fields, Layout};
use crate::message::{finish, start};
use crate::publish::{ExpectTopic, OpenPublisher, Publish, PublishHeader};
use crate::run::publish_head;
use crate::state::{Follow, Resync};
use crate::subscribe::{Credit, Resume, Subscribe};
use crate::tasks::Tasks;
use crate::topic::{CreateTopic, CreateTopicWith, ListTopics, NamedTopic};

/// A message from the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)] // Each variant is documented at its kind and at what it holds.
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
    CreateTopicWith(CreateTopicWith<'a>),
    DescribeSettings(NamedTopic<'a>),
    Renew(Settle<'a>),
    Control(Control<'a>),
    Tasks(Tasks<'a>),
    ExpectTopic(ExpectTopic<'a>),
}

impl<'a> FromClient<'a> {
    /// The message's kind.
    pub fn kind(&self) -> Kind {
        match self {
            FromClient::Hello(_) => Kind::Hello,
            FromClient::Publish(_) => Kind::Publish,
            FromClient::OpenPublisher(_) => Kind::OpenPublisher,
            FromClient::ClosePublisher { .. } => Kind::ClosePublisher,
            FromClient::Resume(_) => Kind::Resume,
            FromClient::Subscribe(_) => Kind::Subscribe,
            FromClient::Unsubscribe { .. } => Kind::Unsubscribe,
            FromClient::Credit(_) => Kind::Credit,
            FromClient::Ping(_) => Kind::Ping,
            FromClient::CreateTopic(_) => Kind::CreateTopic,
            FromClient::DeleteTopic(_) => Kind::DeleteTopic,
            FromClient::ListTopics(_) => Kind::ListTopics,
            FromClient::DescribeTopic(_) => Kind::DescribeTopic,
            FromClient::JoinGroup(_) => Kind::JoinGroup,
            FromClient::Claim(_) => Kind::Claim,
            FromClient::Ack(_) => Kind::Ack,
            FromClient::Nack(_) => Kind::Nack,
            FromClient::Leave => Kind::Leave,
            FromClient::Follow(_) => Kind::Follow,
            FromClient::Resync(_) => Kind::Resync,
            FromClient::CreateTopicWith(_) => Kind::CreateTopicWith,
            FromClient::DescribeSettings(_) => Kind::DescribeSettings,
            FromClient::Renew(_) => Kind::Renew,
            FromClient::Control(_) => Kind::Control,
            FromClient::Tasks(_) => Kind::Tasks,
            FromClient::ExpectTopic(_) => Kind::ExpectTopic,
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
            FromClient::CreateTopicWith(body) => body.write(out),
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

    /// Decodes the body of a message; `None` for a node's kind.
    pub(crate) fn read(fields: &mut Fields<'a>, flags: u8) -> Result<Option<FromClient<'a>>, WireError> {
        Ok(Some(match fields.kind {
            Kind::Publish => {
                let header = PublishHeader::parse(fields, flags)?;
                FromClient::Publish(Publish { flags, header, frames: std::mem::take(&mut fields.rest) })
            }
            Kind::Hello => FromClient::Hello(Layout::read(fields)?),
            Kind::OpenPublisher => FromClient::OpenPublisher(Layout::read(fields)?),
            Kind::ClosePublisher => FromClient::ClosePublisher { publisher: Layout::read(fields)? },
            Kind::Resume => FromClient::Resume(Layout::read(fields)?),
            Kind::Subscribe => FromClient::Subscribe(Layout::read(fields)?),
            Kind::Unsubscribe => FromClient::Unsubscribe { subscription: Layout::read(fields)? },
            Kind::Credit => FromClient::Credit(Layout::read(fields)?),
            Kind::Ping => FromClient::Ping(Layout::read(fields)?),
            Kind::CreateTopic => FromClient::CreateTopic(Layout::read(fields)?),
            Kind::DeleteTopic => FromClient::DeleteTopic(Layout::read(fields)?),
            Kind::ListTopics => FromClient::ListTopics(Layout::read(fields)?),
            Kind::DescribeTopic => FromClient::DescribeTopic(Layout::read(fields)?),
            Kind::JoinGroup => FromClient::JoinGroup(Layout::read(fields)?),
            Kind::Claim => FromClient::Claim(Layout::read(fields)?),
            Kind::Ack => FromClient::Ack(Layout::read(fields)?),
            Kind::Nack => FromClient::Nack(Layout::read(fields)?),
            Kind::Leave => FromClient::Leave,
            Kind::Follow => FromClient::Follow(Layout::read(fields)?),
            Kind::Resync => FromClient::Resync(Layout::read(fields)?),
            Kind::CreateTopicWith => FromClient::CreateTopicWith(Layout::read(fields)?),
            Kind::DescribeSettings => FromClient::DescribeSettings(Layout::read(fields)?),
            Kind::Renew => FromClient::Renew(Layout::read(fields)?),
            Kind::Control => FromClient::Control(Layout::read(fields)?),
            Kind::Tasks => FromClient::Tasks(Layout::read(fields)?),
            Kind::ExpectTopic => FromClient::ExpectTopic(Layout::read(fields)?),
            _ => return Ok(None),
        }))
    }
}
