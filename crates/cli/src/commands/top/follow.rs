//! Reads a node's status in a thread of its own, so that the screen responds to keys even while the node is
//! unreachable.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use dunlin_client::{Client, Subscriber};
use dunlin_topic::{Event, OnGap, Start, Subscribe, SubscribeError, SubscribeOptions};
use serde_json::Value;

use super::report::NodeReport;
use crate::arguments::GlobalOptions;
use crate::connect::connect;
use crate::outage::unreachable;

/// The pause between attempts to reach the node.
const RETRY_PAUSE: Duration = Duration::from_millis(500);
/// The longest wait for a message before the thread checks the connection again.
const WAIT: Duration = Duration::from_millis(200);
/// The maximum number of messages that the thread passes on before it checks the connection again.
const EVENTS_MAX: usize = 64;
/// The subjects to which a node publishes its status.
const PATTERN: &str = "$node.>";

/// A message to a [`StatusFollower`] from the thread that reads the status.
enum FollowerMessage {
    Status {
        part: String,
        value: Value,
    },
    Unreachable(String),
    /// The node refused the connection or the subscription of this client.
    Refused(anyhow::Error),
}

/// The result of a wait for a node's status: the report has changed, or the node refused the client.
pub enum StatusUpdate {
    /// The report has received a new part of the status, or the node became unreachable.
    NodeReport,
    /// The node refused the connection or the subscription of this client.
    Refused(anyhow::Error),
}

/// A thread that reads a node's status repeatedly. Dropping the handle ends the thread.
pub struct StatusFollower {
    events: Receiver<FollowerMessage>,
}

impl StatusFollower {
    /// Connects to the node and starts the thread. Fails if the node is unreachable or refuses the client.
    pub fn start(global: &GlobalOptions) -> Result<StatusFollower> {
        let opened = open(global)?;
        let (sender, events) = channel();
        let global = global.clone();
        let thread = thread::Builder::new().name("top".to_owned());
        thread
            .spawn(move || follow(opened, &global, &sender))
            .context("cannot start the thread that reads the node's status")?;
        Ok(StatusFollower { events })
    }

    /// Waits at most `wait` for a message from the thread, and applies all messages that have arrived to `report`.
    pub fn next(&self, wait: Duration, report: &mut NodeReport) -> Option<StatusUpdate> {
        let mut next = self.events.recv_timeout(wait).ok();
        let mut outcome = None;
        while let Some(event) = next {
            match event {
                FollowerMessage::Status { part, value } => report.update(part, value),
                FollowerMessage::Unreachable(why) => report.mark_unreachable(why),
                FollowerMessage::Refused(error) => return Some(StatusUpdate::Refused(error)),
            }
            outcome = Some(StatusUpdate::NodeReport);
            next = self.events.try_recv().ok();
        }
        outcome
    }
}

fn open(global: &GlobalOptions) -> Result<(Client, Subscriber)> {
    let client = connect(global, "dunlin top")?;
    let options =
        SubscribeOptions { start: Start::Latest, on_gap: OnGap::Newest, ..SubscribeOptions::default() };
    let subscriber = client
        .subscribe(PATTERN, options)
        .context("cannot read the node's status, which needs the permission `surveys`")?;
    Ok((client, subscriber))
}

/// Reads the status until the receiver of `sender` is dropped. Connects again whenever the connection is lost.
fn follow(mut opened: (Client, Subscriber), global: &GlobalOptions, sender: &Sender<FollowerMessage>) {
    loop {
        let Err(error) = read(&opened.0, &mut opened.1, sender) else { return };
        if sender.send(FollowerMessage::Unreachable(format!("{error:#}"))).is_err() {
            return;
        }
        opened = loop {
            thread::sleep(RETRY_PAUSE);
            match open(global) {
                Ok(opened) => break opened,
                Err(error) if is_refusal(&error) => {
                    // The send fails only if the receiver was dropped.
                    let _ = sender.send(FollowerMessage::Refused(error));
                    return;
                }
                Err(error) if sender.send(FollowerMessage::Unreachable(format!("{error:#}"))).is_err() => {
                    return;
                }
                Err(_sent) => {}
            }
        };
    }
}

/// Reads the status until the receiver is dropped. Returns an error when the connection to the node is lost.
fn read(
    client: &Client,
    subscriber: &mut Subscriber,
    sender: &Sender<FollowerMessage>,
) -> Result<(), SubscribeError> {
    loop {
        if let Some(lost) = unreachable(client) {
            return Err(SubscribeError::Connection(lost.why));
        }
        let mut has_receiver = true;
        let count = subscriber.drain(EVENTS_MAX, |event| {
            let Event::Record(record) = event else { return };
            let part = record.frame.key().and_then(|key| String::from_utf8(key.to_vec()).ok());
            let value = serde_json::from_slice(record.payload()).ok();
            if let (Some(part), Some(value)) = (part, value) {
                has_receiver &= sender.send(FollowerMessage::Status { part, value }).is_ok();
            }
        })?;
        if !has_receiver {
            return Ok(());
        }
        if count == 0 {
            subscriber.wait(Some(WAIT))?;
        }
    }
}

/// Whether the error is a refusal by the node and not a lost connection.
fn is_refusal(error: &anyhow::Error) -> bool {
    let of_subscriber = error.chain().filter_map(|cause| cause.downcast_ref::<SubscribeError>());
    let of_node = error.chain().any(|cause| cause.is::<dunlin_client::CallError>());
    of_node || of_subscriber.into_iter().any(|error| !matches!(error, SubscribeError::Connection(_)))
}
