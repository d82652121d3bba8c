//! A viewer's connection to one process of a world.

use std::time::{Duration, Instant};

use dunlin_space::{
    Scene, SceneChange, SurroundingsWatch, ViewerId, WorldRefusal, WorldRequest, WorldResponse,
};
use dunlin_topic::{Draft, Event, Publish, PublishError, Start, Subscribe, SubscribeOptions};
use dunlin_wire::ErrorCode;

use super::viewer::ViewError;
use crate::client::Client;
use crate::disconnect_reason::DisconnectReason;
use crate::link::PumpOutcome;
use crate::pending_request::deadline;
use crate::publisher::{Publisher, PublisherOptions};
use crate::request::requester_prefix;
use crate::subscriber::Subscriber;

/// A viewer's connection to one process. Over it, the viewer receives the messages of the process.
#[derive(Debug)]
pub(super) struct ViewerLink {
    client: Client,
    subject: String,
    watch: SurroundingsWatch,
    open_link: Option<OpenLink>,
}

/// The subscriber and the publisher of a link. They exist only as long as the link's connection.
#[derive(Debug)]
struct OpenLink {
    connection: u64,
    inbox: String,
    subscriber: Subscriber,
    publisher: Publisher,
    /// The time until which the node may take to accept the subscriber and the publisher.
    until: Instant,
    /// Whether the node has accepted the subscriber and the publisher, so that the request to watch could be sent.
    is_watching: bool,
}

impl ViewerLink {
    /// Prepares a link to a process, through the node of `client`. The process receives requests at `subject`.
    pub(super) fn new(client: Client, subject: String, watch: SurroundingsWatch) -> ViewerLink {
        ViewerLink { client, subject, watch, open_link: None }
    }

    /// Whether the link is open, so that the process can send its entities.
    pub(super) fn is_open(&self) -> bool {
        self.open_link.as_ref().is_some_and(|open_link| open_link.is_watching)
    }

    /// Applies all messages that have arrived to `scene`, without waiting. Returns `false` if the link is not open.
    pub(super) fn drain<const D: usize>(
        &mut self,
        scene: &mut Scene<D>,
        changes: &mut Vec<SceneChange>,
    ) -> Result<bool, ViewError> {
        let connections = self.client.connections();
        if self.open_link.as_ref().is_some_and(|open_link| open_link.connection != connections) {
            self.open_link = None;
        }
        if self.open_link.is_none() {
            self.begin_open()?;
        }
        if !self.is_open() && !self.try_watch()? {
            return Ok(false);
        }
        let Some(open_link) = &mut self.open_link else { return Ok(false) };
        let mut restarts = false;
        loop {
            match open_link.subscriber.ready() {
                Ok(true) => {}
                Ok(false) => break,
                // The subscription failed. The next call opens a new one.
                Err(_) => {
                    self.open_link = None;
                    return Ok(false);
                }
            }
            match open_link.subscriber.take() {
                Event::Record(record) => match WorldResponse::decode(record.payload())? {
                    WorldResponse::ViewerUpdate(sight) => scene.apply(&sight, changes)?,
                    WorldResponse::Refused { why: WorldRefusal::Busy, .. } => restarts = true,
                    WorldResponse::Refused { text, .. } => return Err(ViewError::Invalid(text.to_owned())),
                    WorldResponse::Watching | WorldResponse::Done { .. } | WorldResponse::Absent { .. } => {}
                },
                // Messages of the process were lost, so the viewer requests the complete list of entities again.
                Event::Notice(_) => restarts = true,
            }
        }
        if restarts {
            self.send(&WorldRequest::Unwatch(ViewerId(0)));
            self.send(&WorldRequest::Watch(ViewerId(0), self.watch));
        }
        Ok(true)
    }

    /// Waits until messages may have arrived, at most `timeout`.
    pub(super) fn wait(&mut self, timeout: Duration) {
        match &mut self.open_link {
            // An error of the wait is ignored, because the next call of `drain` finds it again.
            Some(open_link) => drop(open_link.subscriber.wait(Some(timeout))),
            None => std::thread::sleep(timeout),
        }
    }

    /// Opens the subscriber and the publisher if there is a connection. Does not wait for the node's responses. Fails
    /// if the node does not accept the client's credentials.
    fn begin_open(&mut self) -> Result<(), ViewError> {
        let shared = &self.client.shared;
        if !self.client.is_up()
            && let PumpOutcome::Disconnected(DisconnectReason::Refused(refused), _) = shared.try_pump()
            && refused.code == ErrorCode::Unauthenticated
        {
            return Err(ViewError::Refused(refused.to_string()));
        }
        let Some((session, connection)) = shared.inbox_if_up() else { return Ok(()) };
        let prefix = requester_prefix(&session);
        let options = SubscribeOptions { start: Start::Latest, ..SubscribeOptions::default() };
        let subscriber = self.client.subscribe_nowait(&format!("{prefix}>"), options, Vec::new());
        let quiet = PublisherOptions { quiet: true, identity: None };
        let publisher = self.client.publisher_nowait(&self.subject, quiet);
        let inbox = format!("{prefix}sight");
        let until = deadline(Duration::from_millis(shared.limits.answer_ms_max));
        self.open_link =
            Some(OpenLink { connection, inbox, subscriber, publisher, until, is_watching: false });
        Ok(())
    }

    /// Sends the request to watch as soon as the node has accepted the subscriber and the publisher. If the node does
    /// not accept them in time, the next call of [`drain`](ViewerLink::drain) opens new ones. Returns whether the
    /// request was sent.
    fn try_watch(&mut self) -> Result<bool, ViewError> {
        let Some(open_link) = &mut self.open_link else { return Ok(false) };
        drop(self.client.shared.try_pump());
        match (open_link.subscriber.is_subscribed(), open_link.publisher.is_opened()) {
            (Ok(true), Ok(true)) => open_link.is_watching = true,
            (_, Err(PublishError::Forbidden(why) | PublishError::Refused(why))) => {
                return Err(ViewError::Refused(why));
            }
            (Ok(_), Ok(_)) => {
                if Instant::now() >= open_link.until {
                    self.open_link = None;
                }
                return Ok(false);
            }
            // The next call of `drain` opens the link again.
            (Err(_), _) | (_, Err(_)) => {
                self.open_link = None;
                return Ok(false);
            }
        }
        self.send(&WorldRequest::Watch(ViewerId(0), self.watch));
        Ok(true)
    }

    fn send(&mut self, request: &WorldRequest<'_, 0>) {
        let Some(OpenLink { inbox, publisher, is_watching: true, .. }) = &mut self.open_link else { return };
        let mut bytes = Vec::new();
        request.encode(&mut bytes);
        let mut draft = Draft::from(&bytes[..]);
        draft.meta.reply = Some(inbox);
        // A lost connection is ignored, because the request is sent again on the next connection.
        let _ = publisher.send(draft).and_then(|()| publisher.send_batches());
    }
}

impl Drop for ViewerLink {
    fn drop(&mut self) {
        self.send(&WorldRequest::Unwatch(ViewerId(0)));
    }
}
