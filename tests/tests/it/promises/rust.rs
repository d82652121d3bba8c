//! The same traits in process and over Dunlin's own protocol.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result};
use dunlin::Node;
use dunlin::topic::{
    Draft, Event, Meta, Notice, OnGap, Payload, Publish, Start, Subscribe, SubscribeOptions,
};
use dunlin_client::{Claimed, Client, Credentials, Group, GroupOptions, Member, Options};

use super::door::{Door, Message, Reader, Seen, Taken, Visitor, Wish};
use super::trial::{Started, TOKEN};

pub struct InProcess;
pub struct Tcp;
pub struct Unix;

impl Door for InProcess {
    fn name(&self) -> &'static str {
        "in process"
    }

    fn address(&self, _: &Started) -> Option<SocketAddr> {
        None
    }

    fn remark(&self, promise: &str) -> Option<&'static str> {
        (promise == "left alone over a restart").then_some("ends with the node: its calls return an error")
    }

    fn not_offered(&self, promise: &str) -> Option<&'static str> {
        (promise == "cut off and back").then_some("there is no connection")
    }

    fn enter(&self, node: &Started, _: Option<SocketAddr>) -> Result<Box<dyn Visitor>> {
        Ok(Box::new(Inside { node: node.node.clone(), answering: Vec::new() }))
    }
}

impl Door for Tcp {
    fn name(&self) -> &'static str {
        "TCP"
    }

    fn address(&self, node: &Started) -> Option<SocketAddr> {
        Some(node.tcp())
    }

    fn enter(&self, _: &Started, address: Option<SocketAddr>) -> Result<Box<dyn Visitor>> {
        let address = address.context("no address")?;
        Outside::connect(&format!("dunlin://{address}"))
    }
}

impl Door for Unix {
    fn name(&self) -> &'static str {
        "Unix socket"
    }

    fn address(&self, _: &Started) -> Option<SocketAddr> {
        None
    }

    fn not_offered(&self, promise: &str) -> Option<&'static str> {
        (promise == "cut off and back").then_some("tested over TCP: the code is the same")
    }

    fn enter(&self, node: &Started, _: Option<SocketAddr>) -> Result<Box<dyn Visitor>> {
        Outside::connect(&format!("unix://{}", node.unix().display()))
    }
}

struct Inside {
    node: Node,
    answering: Vec<dunlin::Responder>,
}

/// A client over a connection.
pub struct Outside {
    client: Client,
    answering: Vec<Answering>,
}

/// A thread that replies to requests.
struct Answering {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

fn options(wish: &Wish<'_>) -> SubscribeOptions {
    let start = match wish {
        Wish { with_state: true, .. } => Start::Snapshot,
        Wish { from_earliest: true, .. } => Start::Earliest,
        _ => Start::Latest,
    };
    let on_gap = if wish.with_state { OnGap::Snapshot } else { OnGap::Oldest };
    SubscribeOptions { start, on_gap, ..SubscribeOptions::default() }
}

fn publish(publisher: &mut impl Publish, message: &Message<'_>) -> Result<Option<u64>> {
    let headers: Vec<_> = message.headers.iter().map(|(name, value)| (*name, value.as_bytes())).collect();
    let meta = Meta { headers: &headers, ..Meta::default() };
    let receipt = publisher.publish(Draft { meta, payload: Payload::Copied(message.payload) })?;
    Ok(Some(receipt.position.seq))
}

impl Visitor for Inside {
    fn publish(&mut self, message: &Message<'_>) -> Result<Option<u64>> {
        publish(&mut self.node.publisher(message.subject)?, message)
    }

    fn subscribe(&mut self, wish: &Wish<'_>) -> Result<Box<dyn Reader>> {
        Ok(Box::new(Reading(self.node.subscribe(wish.subject, &options(wish))?)))
    }

    fn request(&mut self, subject: &str, payload: &[u8]) -> Result<Vec<u8>> {
        let mut requester = self.node.requester(&SubscribeOptions::default())?;
        Ok(requester.request(subject, payload, super::trial::PATIENCE)?.payload.to_vec())
    }

    fn answer(&mut self, subject: &str) -> Result<()> {
        let responder = self.node.respond(subject, |mut request| {
            let answer = request.record().payload().to_ascii_uppercase();
            // The requester may be gone.
            let _ = request.reply(&answer[..]);
        })?;
        self.answering.push(responder);
        Ok(())
    }

    fn join(&mut self, topic: &str, group: &str) -> Result<Box<dyn Reader>> {
        let options = dunlin::ShareOptions::default();
        Ok(Box::new(Reading(self.node.join_share(topic, group, &options)?)))
    }
}

impl Outside {
    pub fn connect(url: &str) -> Result<Box<dyn Visitor>> {
        let credentials = Credentials::token(TOKEN.0.as_str());
        let client = Client::connect(url, Options { credentials, ..Options::default() })?;
        Ok(Box::new(Outside { client, answering: Vec::new() }))
    }
}

impl Visitor for Outside {
    fn publish(&mut self, message: &Message<'_>) -> Result<Option<u64>> {
        publish(&mut self.client.publisher(message.subject)?, message)
    }

    fn subscribe(&mut self, wish: &Wish<'_>) -> Result<Box<dyn Reader>> {
        Ok(Box::new(Reading(self.client.subscribe(wish.subject, options(wish))?)))
    }

    fn request(&mut self, subject: &str, payload: &[u8]) -> Result<Vec<u8>> {
        Ok(self.client.request(subject, payload, super::trial::PATIENCE)?.payload.to_vec())
    }

    fn answer(&mut self, subject: &str) -> Result<()> {
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
                let answer = request.payload().to_ascii_uppercase();
                if let Some(reply) = reply {
                    // The requester may be gone.
                    let _ = responder.reply(&reply, &answer[..]);
                }
            }
        });
        self.answering.push(Answering { stop, thread: Some(thread) });
        Ok(())
    }

    fn join(&mut self, topic: &str, group: &str) -> Result<Box<dyn Reader>> {
        Ok(Box::new(Sharing(self.client.join(Group { topic, name: group }, GroupOptions::default())?)))
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // The thread has reported its own panic.
            let _ = thread.join();
        }
    }
}

struct Reading<S>(S);

impl<S: Subscribe> Reader for Reading<S> {
    fn next(&mut self, patience: Duration) -> Result<Seen> {
        loop {
            let Some(event) = self.0.next_timeout(patience)? else { return Ok(Seen::Nothing) };
            return Ok(match event {
                Event::Record(record) => Seen::Record(Taken {
                    subject: record.subject(),
                    seq: Some(record.seq()),
                    payload: record.payload().to_vec(),
                    headers: headers(record.frame.headers()),
                }),
                Event::Notice(notice) => match seen(notice) {
                    Some(seen) => seen,
                    None => continue,
                },
            });
        }
    }
}

struct Sharing(Member);

impl Reader for Sharing {
    fn next(&mut self, patience: Duration) -> Result<Seen> {
        while !self.0.ready()? {
            if !self.0.wait(Some(patience))? && !self.0.ready()? {
                return Ok(Seen::Nothing);
            }
        }
        Ok(match self.0.take() {
            Claimed::Record { position, frame, log, .. } => Seen::Record(Taken {
                subject: format!("{}{}", log.subject_prefix, frame.subject_tail()),
                seq: Some(position.seq),
                payload: frame.payload().to_vec(),
                headers: headers(frame.headers()),
            }),
            Claimed::Notice(notice) => seen(notice).unwrap_or(Seen::Nothing),
        })
    }
}

fn headers<'a>(headers: impl Iterator<Item = (&'a str, &'a [u8])>) -> Vec<(String, String)> {
    headers.map(|(name, value)| (name.to_owned(), String::from_utf8_lossy(value).into_owned())).collect()
}

/// The events that matter for the checks.
fn seen(notice: Notice) -> Option<Seen> {
    match notice {
        Notice::Gap(gap) => Some(Seen::Gap(gap.first, gap.last)),
        Notice::Lagging(_) => Some(Seen::Lagging),
        Notice::EpochChanged(_) => Some(Seen::Anew),
        Notice::Snapshot(snapshot) => Some(Seen::State(snapshot.position.seq)),
        _ => None,
    }
}
