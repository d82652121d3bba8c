//! Tests of the guarantees with Dunlin's own clients: in the node's process, over TCP and over a Unix socket. The tests
//! use these clients through the traits that clients for all other listeners implement too.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result};
use dunlin::Node;
use dunlin::topic::{
    Draft, Event, Notice, OnGap, Payload, Publish, RecordMeta, Start, Subscribe, SubscribeOptions,
};
use dunlin_client::{Client, ClientOptions, Credentials, Group, GroupEvent, GroupOptions, Member};

use super::listener::{
    Listener, ListenerClient, ListenerSubscriber, Message, ReceivedRecord, SubscriberEvent,
    SubscriptionOptions,
};
use super::trial::{NodeUnderTest, TOKEN};

/// The node itself, used inside its process without a listener.
pub struct InProcessNode;
/// The TCP listener, which speaks Dunlin's own protocol.
pub struct Tcp;
/// The Unix socket, which speaks Dunlin's own protocol.
pub struct UnixSocket;

impl Listener for InProcessNode {
    fn name(&self) -> &'static str {
        "in process"
    }

    fn address(&self, _: &NodeUnderTest) -> Option<SocketAddr> {
        None
    }

    fn remark(&self, promise: &str) -> Option<&'static str> {
        (promise == "left alone over a restart")
            .then_some("the subscriber ends with its node: its calls return an error")
    }

    fn not_offered(&self, promise: &str) -> Option<&'static str> {
        (promise == "cut off and back").then_some("there is no connection")
    }

    fn connect_client(&self, node: &NodeUnderTest, _: Option<SocketAddr>) -> Result<Box<dyn ListenerClient>> {
        Ok(Box::new(LocalClient { node: node.node.clone(), responders: Vec::new() }))
    }
}

impl Listener for Tcp {
    fn name(&self) -> &'static str {
        "TCP"
    }

    fn address(&self, node: &NodeUnderTest) -> Option<SocketAddr> {
        Some(node.tcp())
    }

    fn connect_client(
        &self,
        _: &NodeUnderTest,
        address: Option<SocketAddr>,
    ) -> Result<Box<dyn ListenerClient>> {
        let address = address.context("the listener has no address")?;
        RemoteClient::connect(&format!("dunlin://{address}"))
    }
}

impl Listener for UnixSocket {
    fn name(&self) -> &'static str {
        "Unix socket"
    }

    fn address(&self, _: &NodeUnderTest) -> Option<SocketAddr> {
        None
    }

    fn not_offered(&self, promise: &str) -> Option<&'static str> {
        (promise == "cut off and back").then_some("tested over TCP: the code is the same")
    }

    fn connect_client(&self, node: &NodeUnderTest, _: Option<SocketAddr>) -> Result<Box<dyn ListenerClient>> {
        RemoteClient::connect(&format!("unix://{}", node.unix().display()))
    }
}

struct LocalClient {
    node: Node,
    responders: Vec<dunlin::Responder>,
}

/// A client that uses the node through a connection.
pub struct RemoteClient {
    client: Client,
    responders: Vec<ResponderThread>,
}

/// A thread that replies to requests.
struct ResponderThread {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

fn subscribe_options(options: &SubscriptionOptions<'_>) -> SubscribeOptions {
    let start = match options {
        SubscriptionOptions { with_state: true, .. } => Start::Snapshot,
        SubscriptionOptions { from_earliest: true, .. } => Start::Earliest,
        _ => Start::Latest,
    };
    let on_gap = if options.with_state { OnGap::Snapshot } else { OnGap::Oldest };
    SubscribeOptions { start, on_gap, ..SubscribeOptions::default() }
}

fn publish(publisher: &mut impl Publish, message: &Message<'_>) -> Result<Option<u64>> {
    let headers: Vec<_> = message.headers.iter().map(|(name, value)| (*name, value.as_bytes())).collect();
    let meta = RecordMeta { headers: &headers, ..RecordMeta::default() };
    let receipt = publisher.publish(Draft { meta, payload: Payload::Copied(message.payload) })?;
    Ok(Some(receipt.position.seq))
}

impl ListenerClient for LocalClient {
    fn publish(&mut self, message: &Message<'_>) -> Result<Option<u64>> {
        publish(&mut self.node.publisher(message.subject)?, message)
    }

    fn subscribe(&mut self, options: &SubscriptionOptions<'_>) -> Result<Box<dyn ListenerSubscriber>> {
        Ok(Box::new(RustReader(self.node.subscribe(options.subject, &subscribe_options(options))?)))
    }

    fn request(&mut self, subject: &str, payload: &[u8]) -> Result<Vec<u8>> {
        let mut requester = self.node.requester(&SubscribeOptions::default())?;
        Ok(requester.request(subject, payload, super::trial::PATIENCE)?.payload.to_vec())
    }

    fn respond(&mut self, subject: &str) -> Result<()> {
        let responder = self.node.respond(subject, |mut request| {
            let reply_payload = request.record().payload().to_ascii_uppercase();
            // Ignores the error, which means that the requester is gone.
            let _ = request.reply(&reply_payload[..]);
        })?;
        self.responders.push(responder);
        Ok(())
    }

    fn join(&mut self, topic: &str, group: &str) -> Result<Box<dyn ListenerSubscriber>> {
        let options = dunlin::ShareOptions::default();
        Ok(Box::new(RustReader(self.node.join_share(topic, group, &options)?)))
    }
}

impl RemoteClient {
    pub fn connect(url: &str) -> Result<Box<dyn ListenerClient>> {
        let credentials = Credentials::token(TOKEN.0.as_str());
        let client = Client::connect(url, ClientOptions { credentials, ..ClientOptions::default() })?;
        Ok(Box::new(RemoteClient { client, responders: Vec::new() }))
    }
}

impl ListenerClient for RemoteClient {
    fn publish(&mut self, message: &Message<'_>) -> Result<Option<u64>> {
        publish(&mut self.client.publisher(message.subject)?, message)
    }

    fn subscribe(&mut self, options: &SubscriptionOptions<'_>) -> Result<Box<dyn ListenerSubscriber>> {
        Ok(Box::new(RustReader(self.client.subscribe(options.subject, subscribe_options(options))?)))
    }

    fn request(&mut self, subject: &str, payload: &[u8]) -> Result<Vec<u8>> {
        Ok(self.client.request(subject, payload, super::trial::PATIENCE)?.payload.to_vec())
    }

    fn respond(&mut self, subject: &str) -> Result<()> {
        let mut requests = self.client.subscribe(subject, SubscribeOptions::default())?;
        let mut responder = self.client.responder();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                let Ok(Some(Event::Record(request))) = requests.next_timeout(Duration::from_millis(50))
                else {
                    continue;
                };
                let reply = request.frame.reply().map(str::to_owned);
                let reply_payload = request.payload().to_ascii_uppercase();
                if let Some(reply) = reply {
                    // Ignores the error, which means that the requester is gone.
                    let _ = responder.reply(&reply, &reply_payload[..]);
                }
            }
        });
        self.responders.push(ResponderThread { stop, thread: Some(thread) });
        Ok(())
    }

    fn join(&mut self, topic: &str, group: &str) -> Result<Box<dyn ListenerSubscriber>> {
        Ok(Box::new(RustMember(self.client.join(Group { topic, name: group }, GroupOptions::default())?)))
    }
}

impl Drop for ResponderThread {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // Ignores a panic of the thread, because the panic has already printed its message.
            let _ = thread.join();
        }
    }
}

struct RustReader<S>(S);

impl<S: Subscribe> ListenerSubscriber for RustReader<S> {
    fn next(&mut self, patience: Duration) -> Result<SubscriberEvent> {
        loop {
            let Some(event) = self.0.next_timeout(patience)? else { return Ok(SubscriberEvent::Nothing) };
            return Ok(match event {
                Event::Record(record) => SubscriberEvent::Record(ReceivedRecord {
                    subject: record.subject(),
                    seq: Some(record.seq()),
                    payload: record.payload().to_vec(),
                    headers: headers(record.frame.headers()),
                }),
                Event::Notice(notice) => match to_received(notice) {
                    Some(received) => received,
                    None => continue,
                },
            });
        }
    }
}

struct RustMember(Member);

impl ListenerSubscriber for RustMember {
    fn next(&mut self, patience: Duration) -> Result<SubscriberEvent> {
        while !self.0.ready()? {
            if !self.0.wait(Some(patience))? && !self.0.ready()? {
                return Ok(SubscriberEvent::Nothing);
            }
        }
        Ok(match self.0.take() {
            GroupEvent::Record { position, frame, log, .. } => SubscriberEvent::Record(ReceivedRecord {
                subject: format!("{}{}", log.subject_prefix, frame.subject_tail()),
                seq: Some(position.seq),
                payload: frame.payload().to_vec(),
                headers: headers(frame.headers()),
            }),
            GroupEvent::Notice(notice) => to_received(notice).unwrap_or(SubscriberEvent::Nothing),
        })
    }
}

fn headers<'a>(headers: impl Iterator<Item = (&'a str, &'a [u8])>) -> Vec<(String, String)> {
    headers.map(|(name, value)| (name.to_owned(), String::from_utf8_lossy(value).into_owned())).collect()
}

/// Converts a notice to a subscriber's event; `None` for a notice that the checks ignore.
fn to_received(notice: Notice) -> Option<SubscriberEvent> {
    match notice {
        Notice::Gap(gap) => Some(SubscriberEvent::Gap(gap.first, gap.last)),
        Notice::Lagging(_) => Some(SubscriberEvent::Lagging),
        Notice::EpochChanged(_) => Some(SubscriberEvent::NewEpoch),
        Notice::Snapshot(snapshot) => Some(SubscriberEvent::State(snapshot.position.seq)),
        _ => None,
    }
}
